"""The queueing formula against exact values and a simulator of single requests."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks._serving_kernel import NONE, replay_kernel
from dashboard.cli import main
from data.base.errors import ImpossibleProblemError
from planner.serving.queueing import ServiceLoad, WaitObjective, outlook, replicas_needed


def load_of(
    rate: float, *, service: float = 1.0, slots: int = 1, arrival: float = 1.0, scv: float = 1.0
) -> ServiceLoad:
    """A load, Poisson unless said."""
    return ServiceLoad(
        requests_per_second=rate,
        service_seconds=service,
        slots_per_replica=slots,
        arrival_scv=arrival,
        service_scv=scv,
    )


def simulated_waits(load: ServiceLoad, replicas: int, requests: int, seed: int) -> np.ndarray:
    """Waits of single requests with gamma gaps and services, after a warm-up."""
    rng = np.random.default_rng(seed)

    def gamma(scv: float, mean: float) -> np.ndarray:
        if scv == 0:
            return np.full(requests, mean)
        return rng.gamma(1 / scv, scv * mean, requests)

    arrivals = np.cumsum(gamma(load.arrival_scv, 1 / load.requests_per_second))
    steps = math.ceil(arrivals[-1] * 2 / 60) + 60
    waits, held, _asked = replay_kernel(
        arrivals,
        gamma(load.service_scv, load.service_seconds),
        np.array([300.0]),
        np.full(steps, replicas),
        60.0,
        load.slots_per_replica,
        np.array([NONE, 0, 1]),
        1.0,
        0.0,
    )
    assert (held == replicas).all()
    return np.asarray(waits[requests // 5 :])


@pytest.mark.parametrize(
    ("servers", "offered", "waits"),
    [(1, 0.5, 0.5), (1, 0.99, 0.99), (2, 1.0, 1 / 3), (10, 8.0, 0.40918)],
)
def test_erlang_c_has_its_published_values(servers: int, offered: float, waits: float) -> None:
    """The chance to wait at all, and the mean wait, of M/M/c are exact."""
    found = outlook(load_of(offered), servers, 0.0)
    assert found.late_ratio == pytest.approx(waits, abs=1e-5)
    assert found.mean_wait_seconds == pytest.approx(waits / (servers - offered), abs=1e-5)
    assert found.utilization_ratio == pytest.approx(offered / servers)


def test_one_server_has_the_mean_of_pollaczek_and_khinchine() -> None:
    """M/G/1: rho / (1 - rho) * (1 + cs2) / 2 services."""
    found = outlook(load_of(0.8, scv=3.0), 1, 0.0)
    assert found.mean_wait_seconds == pytest.approx(0.8 / 0.2 * 2.0)


def drawn_loads(count: int, *, bursty: bool) -> list[ServiceLoad]:
    """Loads of 1 to 60 busy slots; bursty arrivals vary more than Poisson's."""
    rng = np.random.default_rng(24)
    return [
        load_of(
            float(rng.uniform(1, 60) / service),
            service=float(service),
            slots=int(rng.choice([1, 4, 8, 16])),
            arrival=float(rng.uniform(1, 4)) if bursty else 1.0,
            scv=float(rng.uniform(0.2, 2)),
        )
        for service in rng.uniform(0.5, 20, count)
    ]


def late(load: ServiceLoad, replicas: int) -> float:
    """The share of simulated requests that waits longer than 1 s."""
    return float((simulated_waits(load, replicas, 80_000, 11) > 1.0).mean())


@pytest.mark.parametrize("load", drawn_loads(10, bursty=False))
def test_the_share_that_waits_is_that_of_a_simulator(load: ServiceLoad) -> None:
    """Of Poisson arrivals, within 0.05, at the replicas needed and with one less."""
    needed = replicas_needed(load, WaitObjective(wait_seconds=1.0))
    for replicas in {
        needed,
        max(needed - 1, math.floor(load.busy_slots / load.slots_per_replica) + 1),
    }:
        found = outlook(load, replicas, 1.0)
        if found.utilization_ratio < 0.97:  # nearer to 1 the simulator itself is not settled
            assert found.late_ratio == pytest.approx(late(load, replicas), abs=0.05)


BURSTS = (1.0, 2.0, 4.0, 8.0, 16.0)


@pytest.mark.parametrize("arrival", BURSTS)
@pytest.mark.parametrize(
    ("offered", "service", "slots", "scv", "allowed"),
    [(50, 10.0, 8, 1.0, 0.05), (12, 1.0, 4, 0.5, 0.05), (30, 5.0, 16, 2.0, 0.07),
     (4, 2.0, 1, 1.0, 0.08), (90, 8.0, 32, 0.25, 0.09)],
)  # fmt: skip
def test_bursts_raise_the_share_that_waits_as_in_a_simulator(
    *, arrival: float, offered: int, service: float, slots: int, scv: float, allowed: float
) -> None:
    """From near saturation to much room, up to the largest variation that is taken."""
    load = load_of(offered / service, service=service, slots=slots, arrival=arrival, scv=scv)
    least = offered // slots + 1
    for replicas in sorted({least, math.ceil(least * 1.25), math.ceil(least * 1.6)}):
        found = outlook(load, replicas, 1.0)
        simulated = [(simulated_waits(load, replicas, 80_000, seed) > 1.0) for seed in (1, 2)]
        assert found.late_ratio == pytest.approx(float(np.mean(simulated)), abs=allowed)


def test_bursts_need_more_replicas() -> None:
    """Never fewer as the gaps vary more, and steadier than Poisson needs no more."""
    needed = [
        replicas_needed(
            load_of(5.0, service=10.0, slots=8, arrival=arrival), WaitObjective(wait_seconds=1.0)
        )
        for arrival in (0.0, *BURSTS)
    ]
    assert needed == sorted(needed)
    assert (needed[1], needed[-1]) == (8, 11)
    assert outlook(load_of(8.0, arrival=0.5), 10, 0.0).late_ratio == pytest.approx(
        0.40918, abs=1e-5
    )


@pytest.mark.parametrize("load", [*drawn_loads(10, bursty=False), *drawn_loads(10, bursty=True)])
def test_a_simulator_needs_as_many_replicas_within_one(load: ServiceLoad) -> None:
    """One more keeps the objective, two less do not, for bursty arrivals as well."""
    needed = replicas_needed(load, WaitObjective(wait_seconds=1.0))
    assert late(load, needed + 1) <= 0.05
    if needed > 2:
        assert late(load, needed - 2) > 0.05


@given(
    rate=st.floats(0.01, 50),
    service=st.floats(0.05, 30),
    slots=st.integers(1, 32),
    wait=st.floats(0, 10),
    share=st.floats(0.5, 0.99),
)
def test_needed_is_the_least_that_meets_the_objective(
    *, rate: float, service: float, slots: int, wait: float, share: float
) -> None:
    """It does, one less does not, and one more is never worse."""
    load = load_of(rate, service=service, slots=slots)
    needed = replicas_needed(load, WaitObjective(wait_seconds=wait, share=share))
    late = [
        outlook(load, replicas, wait).late_ratio
        for replicas in range(max(1, needed - 1), needed + 2)
    ]
    assert late == sorted(late, reverse=True)
    assert outlook(load, needed, wait).late_ratio <= 1 - share
    assert needed == 1 or late[0] > 1 - share


def test_nothing_needs_nothing_and_the_impossible_is_refused() -> None:
    """No load is 0 replicas; NaN, negative and endless loads are named."""
    objective = WaitObjective(wait_seconds=1.0)
    assert replicas_needed(load_of(0.0), objective) == 0
    for rate, service in ((math.nan, 1.0), (-1.0, 1.0), (1.0, 0.0), (1.0, math.inf)):
        with pytest.raises(ImpossibleProblemError):
            load_of(rate, service=service)
    with pytest.raises(ImpossibleProblemError, match="more than 1,000,000"):
        replicas_needed(load_of(1e9), objective)
    for wait, share in ((1.0, 1.0), (1.0, 0.0), (math.nan, 0.95), (-1.0, 0.95)):
        with pytest.raises(ImpossibleProblemError, match="--wait must be 0 s or more, --share"):
            WaitObjective(wait_seconds=wait, share=share)


def test_an_overloaded_service_has_no_mean_wait() -> None:
    """The queue grows without end: unknown, and everybody is late."""
    found = outlook(load_of(3.0), 2, 5.0)
    assert (found.mean_wait_seconds, found.late_ratio) == (None, 1.0)


def test_the_command_shows_what_one_replica_more_or_less_does(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The least that meets it, two below and one above; an endless queue has no mean."""
    words = "serving replicas --rate 5 --service-seconds 6 --slots 8 --wait 1 --share 0.95"
    words += " --format json"
    assert main(words.split()) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["replicas"], row["meets"]) for row in rows] == [
        (3, "no"), (4, "no"), (5, "yes"), (6, "yes"),
    ]  # fmt: skip
    assert rows[0]["mean_wait_s"] is None
    assert rows[1]["late_ratio"] > 0.05 > rows[2]["late_ratio"]


@pytest.mark.parametrize("promised", [(2.0, 0.99), (9.0, 0.5)])
def test_the_command_sizes_for_what_the_settings_promise(
    promised: tuple[float, float],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As cycles do; options go before."""
    words = "serving replicas --rate 0.5 --service-seconds 6 --slots 1 --format json"
    given = f"{words} --wait {promised[0]} --share {promised[1]}"
    assert main(given.split()) == 0
    expected = capsys.readouterr().out
    if promised != (2.0, 0.99):
        monkeypatch.setenv("TRIMTAB_SERVING_WAIT_SECONDS", str(promised[0]))
        monkeypatch.setenv("TRIMTAB_SERVING_WAIT_RATIO", str(promised[1]))
    assert main(words.split()) == 0
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ("--rate -5", "the request rate is -5"),
        ("--rate nan", "the request rate is nan"),
        ("--service-seconds 0", "service time must be above 0 s"),
        ("--service-seconds 1e308", "at most 10,000,000 s, not 1e+308 s"),
        ("--slots 0", "slots per replica must be 1 to 1,000,000, not 0"),
        ("--slots 1000000000", "slots per replica must be 1 to 1,000,000, not 1.00000e+9"),
        (f"--slots 1{'0' * 400}", "slots per replica must be 1 to 1,000,000, not 1.00000e+400"),
        ("--arrival-scv 16.5", "--arrival-scv must be 0 to 16, not 16.5"),
        ("--arrival-scv nan", "--arrival-scv must be 0 to 16, not nan"),
        ("--service-scv 1e308", "--service-scv must be 0 to 100, not 1e+308"),
        ("--service-scv -1", "--service-scv must be 0 to 100, not -1"),
        ("--wait nan", "--wait must be 0 s or more, --share between 0 and 1, not nan s"),
    ],
)
def test_the_command_refuses_what_is_no_load(
    changed: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The number is named, and what may be given."""
    words = f"serving replicas --rate 5 --service-seconds 6 --slots 8 --format json {changed}"
    assert main(words.split()) == 1
    assert said in capsys.readouterr().err


def test_the_largest_numbers_that_are_taken_give_finite_answers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """At every limit at once."""
    words = (
        "serving replicas --rate 0.0999 --service-seconds 1e7 --slots 1000000 "
        "--arrival-scv 16 --service-scv 100 --format json"
    )
    assert main(words.split()) == 0
    assert all(math.isfinite(row["mean_wait_s"]) for row in json.loads(capsys.readouterr().out))
