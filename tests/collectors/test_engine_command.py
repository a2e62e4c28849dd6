"""What is read of an engine's command: what its memory depends on, wholly or not at all."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.kubernetes.pod_templates import engine_command

QWEN = "Qwen/Qwen2.5-7B-Instruct"


def of(*args: str, command: tuple[str, ...] = (), image: str = "vllm/vllm-openai:v0.19") -> str:
    """What is read of a container."""
    container: dict[str, Any] = {"image": image, "args": list(args), "command": list(command)}
    return engine_command(container)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (of("--model", QWEN, "--tp=2"), f"vllm serve --model {QWEN} --tp 2"),
        (of(QWEN, "--port", "80", command=("vllm", "serve")), f"vllm serve {QWEN}"),
        (
            of("vllm serve Q7 --max_num_seqs 32 --enable-prefix-caching", command=("sh", "-c")),
            "vllm serve Q7 --max-num-seqs 32",
        ),
        (
            of("-m", "sglang.launch_server", "--model-path", QWEN, "--tp=2", command=("python3",)),
            f"python -m sglang.launch_server --model-path {QWEN} --tp 2",
        ),
        (of("--model", QWEN, "--dtype", "bfloat16"), f"vllm serve --model {QWEN}"),
    ],
)  # fmt: skip
def test_an_engine_is_known_by_its_command_or_its_image(found: str, expected: str) -> None:
    """With options in either spelling; ports, names and switches of speed are no matter."""
    assert found == expected


@pytest.mark.parametrize(
    "found",
    [
        of("--model", QWEN, image="example/train:1"),
        of("train.py", "--model", QWEN, command=("python3",)),
        of("--model", QWEN, "--enable-lora"),
        of("--model", QWEN, "--speculative-config", "{}"),
        of("--model", QWEN, "--pipeline-parallel-size", "2"),
        of("--model", QWEN, "--cpu-offload-gb=10"),
        of("--model", QWEN, "--config", "all.yaml"),
        of("--model", QWEN, "--dtype=float32"),
        of("--model", "$(MODEL)"),
        of("--model", "/models/a"),
        of("--model", "a/../../etc"),
        of("--model"),
        of("vllm serve 'Q7", command=("bash", "-c")),
        of(),
    ],
)
def test_half_of_a_command_is_nothing(found: str) -> None:
    """Another program, what is not told in the command, and what changes the memory otherwise."""
    assert found == ""


@given(st.text(st.characters(codec="ascii"), min_size=4, max_size=40), st.booleans())
def test_no_value_of_another_option_is_kept(secret: str, joined: bool) -> None:
    """A command may hold a key, whatever it looks like."""
    words = [f"--api-key={secret}"] if joined else ["--api-key", f"s{secret}"]
    found = of("--model", "Q7", *words)
    assert found in {"vllm serve --model Q7", ""}
