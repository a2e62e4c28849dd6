"""The command of an inference engine in a pod's container, cut down to what its memory depends on.

Only named options are kept, as a command may hold secrets. Where another option could change the
memory, or a value is not told in the command, nothing is: half of a command reads like another.
"""

import re
import shlex
from collections.abc import Mapping
from types import MappingProxyType

from collectors.kubernetes.objects import list_in, text_in

_ENGINES: Mapping[str, tuple[re.Pattern[str], str]] = MappingProxyType(
    {
        "vllm": (
            re.compile(r"(?:^|[\s/])vllm\s+serve\b|\bvllm\.entrypoints\.openai\.api_server\b"),
            "vllm serve",
        ),
        "sglang": (re.compile(r"\bsglang\.launch_server\b"), "python -m sglang.launch_server"),
    }
)
_KEPT = frozenset(
    (
        *("model", "model-path", "tensor-parallel-size", "tp", "tp-size", "max-model-len"),
        *("context-length", "max-num-seqs", "max-running-requests", "max-num-batched-tokens"),
        *("chunked-prefill-size", "gpu-memory-utilization", "mem-fraction-static"),
        *("kv-cache-dtype", "quantization"),
    )
)
_UNREAD = re.compile(
    r"lora|adapter|specul|draft|offload|config|override|rope|parallel|^[dp]p(?:-size)?$|^q$|^O$"
    r"|mamba|encoder|mm-|worker|load-format|revision"
)
_PLAIN = re.compile(r"[A-Za-z0-9-][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?")
_HALF = frozenset(("auto", "half", "float16", "bfloat16"))
_MAX_LENGTH = 120
_MAX_WORDS = 200


def engine_command(container: object) -> str:
    """Return the command of the engine that a container starts, '' where it is not wholly told."""
    words = [str(word) for name in ("command", "args") for word in list_in(container, name)]
    try:
        if words and re.fullmatch(r"(?:/\w+)*/?(?:ba|da)?sh", words[0]):
            words = shlex.split(words[-1])
    except ValueError:  # a quote that does not close
        return ""
    line = " ".join(words)
    for name, (starts, shown) in _ENGINES.items():
        begun = starts.search(line)
        if begun:
            return _cut(shown, line[begun.end() :].split())
        if not list_in(container, "command") and f"/{name}" in f"/{text_in(container, 'image')}":
            return _cut(shown, words)  # the image's own entrypoint
    return ""


def _cut(shown: str, words: list[str]) -> str:
    """Return the options that are kept of those given, '' where another one matters."""
    if len(words) > _MAX_WORDS:
        return ""
    kept, place = [shown], 0
    if words and not words[0].startswith("-"):
        kept.append(words[0])
        place = 1
    while place < len(words):
        flag, stated, value = words[place].partition("=")
        name = flag.lstrip("-").replace("_", "-")
        place += 1
        if not flag.startswith("-"):
            continue
        if name in _KEPT:
            if not stated:
                value = words[place] if place < len(words) else ""
                place += 1
            kept += [f"--{name}", value]
        elif _UNREAD.search(name) or (
            name == "dtype" and (value or "".join(words[place : place + 1])) not in _HALF
        ):
            return ""
    plain = all(_PLAIN.fullmatch(word) and len(word) <= _MAX_LENGTH for word in kept[1:])
    return " ".join(kept) if plain and len(kept) > 1 else ""
