"""Goodput: tables, single evaluations, and the fit of step times."""

import numpy as np
import pytest

from benchmarks._scaling_history import scaled_speed
from benchmarks.simulation.fit_kernel import misfit
from benchmarks.simulation.rounds.configurations import configurations
from benchmarks.simulation.rounds.goodput import GoodputModel, GoodputTables, step_seconds
from benchmarks.simulation.step_fit import fit_step_parameters
from data.base.errors import ImpossibleProblemError

STEP = (0.05, 0.001, 0.2, 0.01, 0.03, 0.002, 1.6)


def model(**changes: object) -> GoodputModel:
    """A model of an image job."""
    values = {
        "step": STEP,
        "noise": (1.0, 8.0),
        "initial_batch": 128.0,
        "largest_batch": 4096.0,
        "least_local_batch": 32.0,
        "largest_local_batch": 1024.0,
    }
    return GoodputModel(**(values | changes))  # type: ignore[arg-type]


def test_tables_and_single_evaluations_agree() -> None:
    """All configurations at once give what each gives alone."""
    table = configurations({"a": [8] * 3, "b": [4] * 2})
    wanted = np.ones((1, len(table.gpus)), dtype=np.bool_)
    together = GoodputTables(table).goodput([model()], wanted)[0]
    alone = [model().best(int(n), int(g))[0] for n, g in zip(table.nodes, table.gpus, strict=True)]
    assert together == pytest.approx(alone)


def test_a_pool_that_is_full_forgets_and_still_answers() -> None:
    """More models than the pool has room for."""
    table = configurations({"a": [8]})
    tables = GoodputTables(table, room=2)
    models = [model(largest_batch=float(128 * k)) for k in range(1, 6)]
    wanted = np.ones((5, len(table.gpus)), dtype=np.bool_)
    found = tables.goodput(models, wanted)
    assert found[:, 0] == pytest.approx([goodput_model.best(1, 1)[0] for goodput_model in models])


def test_one_sample_of_goodput_by_hand() -> None:
    """One batch size, one GPU, no accumulation: M / T times efficiency 1 at the initial batch."""
    one = model(largest_batch=128.0)
    assert one.best(1, 1)[0] == pytest.approx(128 / (0.05 + 0.128), rel=1e-6)


def test_a_largest_batch_below_the_initial_one_is_refused() -> None:
    """The error names both."""
    with pytest.raises(ImpossibleProblemError, match=r"64.*128"):
        model(largest_batch=64.0)


def test_the_gradient_of_the_misfit_is_that_of_differences() -> None:
    """Central differences at a point away from the optimum."""
    rng = np.random.default_rng(2)
    nodes, gpus = np.array([1, 1, 1, 2, 2]), np.array([1, 2, 4, 8, 16])
    local, grad, step = (rng.uniform(0.2, 2, 5) for _ in range(3))
    theta = np.array([0.3, 0.2, 0.5, 0.05, 0.2, 0.03, 2.0])
    found, none = np.empty(7), np.empty(7)
    misfit(theta, nodes, gpus, local, grad, step, found)
    for index in range(7):
        shift = np.zeros(7)
        shift[index] = 1e-6
        above = misfit(theta + shift, nodes, gpus, local, grad, step, none)
        below = misfit(theta - shift, nodes, gpus, local, grad, step, none)
        assert found[index] == pytest.approx((above - below) / 2e-6, rel=1e-3, abs=1e-6)


def test_a_fit_of_exact_steps_predicts_them() -> None:
    """One GPU within 1 %, all within 20 % on average: at Pollux's tolerance it stops early."""
    profile = {}
    for nodes, gpus in ((1, 1), (1, 2), (1, 4), (1, 8), (2, 16)):
        for local in (32, 128, 512):
            seconds = step_seconds(STEP, nodes, gpus, local)
            profile[nodes, gpus, local] = (seconds, seconds - (0.05 + 0.001 * local))
    fitted = fit_step_parameters(profile)
    errors = {
        key: abs(step_seconds(fitted, *key) / seconds - 1) for key, (seconds, _) in profile.items()
    }
    assert max(error for (_, gpus, _), error in errors.items() if gpus == 1) < 0.01
    assert np.mean(list(errors.values())) < 0.2


def test_one_gpu_alone_is_taken_to_scale_perfectly() -> None:
    """What was never measured costs nothing: the prior of Pollux."""
    fitted = fit_step_parameters({(1, 1, 64): (1.0, 0.01)})
    assert step_seconds(fitted, 1, 8, 64) == pytest.approx(step_seconds(fitted, 1, 1, 64))


def test_measured_sizes_correct_the_prior_between_and_beyond_them() -> None:
    """Half the prior at 8 GPUs, a quarter at 32: at 16 between both, beyond as at the nearest."""
    history = {("a", 8): 4.0, ("a", 32): 8.0}

    def speed(kind: str, gpus: int) -> float:
        return scaled_speed(kind, gpus, history, lambda _, count: float(count)).speed

    assert speed("a", 8) == 4.0
    assert speed("a", 16) == pytest.approx(16 / np.sqrt(8))
    assert speed("a", 64) == pytest.approx(16.0)
    assert speed("b", 8) == pytest.approx(8 / np.sqrt(8))
    assert scaled_speed("a", 4, {}, lambda _, count: float(count)).basis == "published scaling"
