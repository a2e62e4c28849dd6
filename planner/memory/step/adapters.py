"""Small trained parts beside frozen weights: their parameters and the bytes that they keep."""

from planner.memory.models.model_shape import ModelShape
from planner.memory.step.assumptions import Recipe
from planner.memory.step.framework_traits import adapter_kinds


def projection_widths(shape: ModelShape) -> dict[str, tuple[int, int]]:
    """Return input and output width of every projection of a layer, in elements."""
    hidden, ffn = shape.hidden, shape.ffn
    widths = {
        "q": (hidden, shape.query_width),
        "k": (hidden, shape.key_width),
        "v": (hidden, shape.value_width),
        "o": (shape.attention_width, hidden),
        "up": (hidden, ffn),
        "down": (ffn, hidden),
    }
    if shape.gated_mlp:
        widths["gate"] = (hidden, ffn)
    return widths


def low_rank_share(shape: ModelShape, rank: int) -> float:
    """Return two moments of projected gradients and the projection, per element of the matrices.

    A gradient of m x n, m <= n, is kept as r x n, by a projection of m x r (GaLore, Zhao et al.,
    arXiv 2403.03507, table 1: m r + 2 n r).
    """
    low_rank = full = 0
    for sides in projection_widths(shape).values():
        narrow, wide = min(sides), max(sides)
        low = min(rank, narrow)
        low_rank += min(low * narrow + 2 * low * wide, 2 * narrow * wide)
        full += narrow * wide
    return low_rank / full


def adapter_parameters(recipe: Recipe) -> float:
    """Return the trained parameters of the adapter: sum of r (d_in + d_out) over its targets.

    Without the trained copies of embedding and head, which are counted with the states.
    """
    adapter = recipe.adapter
    if adapter is None:
        return 0.0
    if adapter.trainable is not None:
        return float(adapter.trainable)
    widths = projection_widths(recipe.job.shape)
    rank = adapter.rank or 0
    per_layer = sum(rank * sum(widths[target]) for target in adapter.targets if target in widths)
    return float(per_layer * recipe.job.shape.layers)


def adapter_kept_bytes(recipe: Recipe) -> float:
    """Return the bytes per token and layer that the adapter keeps for its own gradient.

    Inputs by the framework's habit. `cast`: every target casts its input to the adapter's dtype,
    and the copies are not shared. `dropout`: every target drops out its input: a copy and a mask.
    `dropout-fused`: the same, once for a fused projection. `shared`: kept once, uncast. `autocast`:
    every target keeps a 16-bit copy, for autocast casts back what was cast to the adapter's dtype,
    and of its dropout a mask; a job that says bf16-true runs without autocast, as `cast`
    (measured, benchmarks/measured/training_memory_h200.json).
    """
    adapter = recipe.adapter
    if adapter is None:
        return 0.0
    shape, width = recipe.job.shape, recipe.policy.compute
    kind = adapter_kinds()[adapter.kind]
    widths = projection_widths(shape)
    targets = (
        list(widths) if kind.all else [target for target in adapter.targets if target in widths]
    )
    stored = kind.input * _input_bytes(recipe, targets, widths)
    stored += kind.output * sum(widths[target][1] for target in targets)
    stored += kind.attention * shape.attention_width
    if kind.norms:
        stored += 2 * width * shape.norms_per_layer * shape.hidden
    if kind.input and recipe.traits.adapter_qkv_copy and {"q", "k", "v"} & set(targets):
        stored += width * (shape.query_width + shape.key_width + shape.value_width)
    return stored


def _input_bytes(recipe: Recipe, targets: list[str], widths: dict[str, tuple[int, int]]) -> float:
    manner, width = recipe.traits.adapter_input, recipe.policy.compute
    if manner == "autocast" and recipe.job.precision == "bf16-true":
        manner = "shared" if recipe.traits.casts_adapters else "cast"
    dropped = 1 if recipe.adapter and recipe.adapter.dropout else 0
    by_manner = {"cast": recipe.policy.weight, "shared": width, "autocast": width + dropped}
    each = by_manner.get(manner, width + 1)
    inputs = {target: (target, widths[target][0]) for target in targets}
    if manner in {"dropout-fused", "shared"}:
        groups = {"q": "qkv", "k": "qkv", "v": "qkv"}
        if manner == "shared":
            groups |= {"gate": "mlp", "up": "mlp"}
        inputs = {groups.get(target, target): (target, widths[target][0]) for target in targets}
    low = recipe.policy.weight * ((recipe.adapter and recipe.adapter.rank) or 0)
    return each * sum(size for _, size in inputs.values()) + low * len(targets)


def built_weight_bytes(recipe: Recipe) -> float:
    """Return the bytes per layer of weight matrices that the adapter builds in its forward pass."""
    adapter = recipe.adapter
    if adapter is None:
        return 0.0
    kind, widths = adapter_kinds()[adapter.kind], projection_widths(recipe.job.shape)
    targets = [widths[target] for target in adapter.targets if target in widths]
    return kind.weight * sum(rows * columns for rows, columns in targets)
