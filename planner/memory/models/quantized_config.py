"""The storage of a model's weights, from the `quantization_config` of its `config.json`."""

from collections.abc import Mapping
from typing import Any

from data.base.errors import scrub

_BY_BITS = {
    "awq": {4: "awq-int4"},
    "gptq": {4: "gptq-int4", 8: "gptq-int8"},
    "int": {4: "gptq-int4", 8: "gptq-int8"},
    "float": {8: "fp8"},
}
_WHOLE = {"fp8": "fp8", "fbgemm_fp8": "fp8", "mxfp4": "mxfp4"}


def stored_quantization(config: Mapping[str, Any]) -> tuple[str, str]:
    """Return the name of a quantization, '' for 16 bit, and a note, '' where none is stated.

    A method that is not known is 16 bit, and the note says so.
    """
    stated = config.get("quantization_config")
    if stated is None:
        return "", ""
    stated = stated if isinstance(stated, Mapping) else {}
    method = str(stated.get("quant_method") or "").lower()
    name = _WHOLE.get(method) or _with_bits(method, stated)
    text = f"quantization_config {scrub(method, limit=40) or 'without quant_method'}"
    if not name:
        return "", f"{text} is not known and ignored: weights are taken as 16 bit"
    return name, f"{text} is read as {name} where the model is served; training takes 16 bit"


def _with_bits(method: str, stated: Mapping[str, Any]) -> str:
    """Return the quantization of a method that has several widths, '' for one not known."""
    if method == "bitsandbytes":
        if stated.get("load_in_4bit"):
            return "nf4-dq" if stated.get("bnb_4bit_use_double_quant") else "nf4"
        return "int8" if stated.get("load_in_8bit") else ""
    if method != "compressed-tensors":
        return _of_width(method, stated.get("bits"))
    groups = stated.get("config_groups")
    weights = [
        group["weights"]
        for group in (groups.values() if isinstance(groups, Mapping) else ())
        if isinstance(group, Mapping) and isinstance(group.get("weights"), Mapping)
    ]
    names = {_of_width(str(each.get("type") or "int"), each.get("num_bits")) for each in weights}
    return names.pop() if len(names) == 1 else ""


def _of_width(kind: str, bits: object) -> str:
    return _BY_BITS.get(kind, {}).get(bits, "") if isinstance(bits, int) else ""
