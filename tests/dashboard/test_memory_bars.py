"""The memory bars stack what the breakdown says, and take no name for markup."""

from dashboard.charts.memory_bars import MemoryBar, memory_bars

BAR = MemoryBar(
    label="2 × <b>H100</b>",
    parts=(
        ("weights", 10.0),
        ("optimizer states", 20.0),
        ("optimizer step", 2.0),
        ("activations", 5.0),
        ("stream between layers", 1.0),
        ("something new", 0.5),
        ("CUDA context and NCCL", 1.5),
    ),
    limit_gib=80.0,
    bound_gib=50.0,
)


def test_the_stack_is_the_breakdown() -> None:
    """Every part is in the bar, parts of a kind together, unknown ones as buffers."""
    figure = memory_bars([BAR])
    sizes = {entry.name: entry.y[0] for entry in figure.data if entry.type == "bar"}
    assert sum(sizes.values()) == sum(size for _, size in BAR.parts)
    assert (sizes["activations"], sizes["other states"], sizes["buffers"]) == (6.0, 2.0, 0.5)


def test_limit_and_bound_are_marks() -> None:
    """What the GPU offers and the 95 % bound stand above the bar, with their unit."""
    marks = {entry.name: entry.y for entry in memory_bars([BAR]).data if entry.type == "scatter"}
    assert marks == {"usable memory": (80.0,), "95 % bound": (50.0,)}
    assert "GiB" in memory_bars([BAR]).layout.yaxis.title.text


def test_a_name_is_no_markup() -> None:
    """A label with tags is shown as it is typed."""
    assert "<b>" not in str(memory_bars([BAR]).data[0].x)
