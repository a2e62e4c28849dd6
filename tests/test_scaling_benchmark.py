"""The scaling benchmark says what it did not run, and what it did not measure."""

import pytest

from benchmarks.scaling import Fit, Size, curve_lines, fit


def sized(gpus: int, cpu: float) -> Size:
    """A size of which only forecasting was run."""
    return Size(
        gpus=gpus, days=2, parts={"forecast": {"cpu": cpu, "peak_mib": 500.0}, "page": "not run: x"}
    )


def test_growth_is_fitted_above_what_the_smallest_takes() -> None:
    """A fixed start and a cost per GPU are a growth of one."""
    sizes = [sized(gpus, 1 + 0.01 * gpus) for gpus in (64, 512, 1_000, 4_000)]
    found = fit(sizes, sized(0, 1.0), "forecast", "cpu")
    assert found is not None
    assert found.exponent == pytest.approx(1.0)
    assert found.reaches(101.0) == "10,000 (extrapolated from 4,000)"
    assert found.reaches(21.0) == "2,000 (within what was run)"
    assert found.reaches(901.0) == "beyond 40,000 (extrapolated from 4,000)"


def test_growth_below_linear_is_not_extrapolated_as_such() -> None:
    """Beyond the largest run a part is taken to grow at least with the fleet."""
    slow = Fit(base=0.0, exponent=0.5, largest=1_000, last=10.0)
    assert slow.reaches(20.0) == "2,000 (extrapolated from 1,000)"


def test_no_fit_of_what_was_not_run() -> None:
    """Sizes without figures are no points of a fit, and the table says why there are none."""
    sizes = [sized(512, 5.0), Size(gpus=1_000, days=2, parts={"forecast": "stopped after 9 s"})]
    assert fit(sizes, sized(16, 1.0), "forecast", "cpu") is None
    text = "\n".join(curve_lines(sizes))
    assert "stopped after 9 s" in text
    assert "not run: x" in text
