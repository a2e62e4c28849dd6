"""What the doctor says of generated combinations of metrics, labels, files and settings."""

import json
import random
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from beds.faulty_server import answers_series, faulty_server
from beds.nvml import stub_library
from beds.slurm_replay import command_folder, recorded_commands

from dashboard.cli import main
from dashboard.cycle.diagnosis import source_findings
from data.settings.all_settings import Settings
from data.settings.sources import (
    KubernetesSettings,
    NvmlSettings,
    PrometheusSettings,
    SlurmSettings,
)

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
OTHERS = ["up", "go_goroutines", "node_load1", "dcgm_exporter_build_info", "nvidia_gpu_operator_up"]
METRICS = [
    "DCGM_FI_PROF_SM_ACTIVE",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_POWER_USAGE_INSTANT",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_FB_FREE",
    "DCGM_FI_DEV_FB_TOTAL",
    "DCGM_FI_DEV_GPU_TEMP",
    "nvidia_smi_power_draw_watts",
    "nvidia_gpu_duty_cycle",
]
LABELS: list[dict[str, str]] = [
    {},
    {"hpc_job": "12"},
    {"pod": "a", "namespace": "team"},
    {"exported_pod": "a", "exported_namespace": "team", "pod": "dcgm-exporter-x"},
]
SET = re.compile(r"\b[Ss]et ((?:prometheus|kubernetes|nvml|slurm)\.\w+)")


def matrix(labels: dict[str, str]) -> dict[str, Any]:
    """One series of now."""
    return {"metric": {"UUID": "GPU-1", "Hostname": "n1"} | labels, "values": [[0, "1"]]}


def slurm_of(draw: random.Random, folder: Path) -> SlurmSettings:
    """Slurm as it may be set: not at all, without programs, with and without Prolog."""
    kind = draw.choice(["none", "nowhere", "empty", "prolog", "plain"])
    if kind == "none":
        return SlurmSettings()
    if kind == "nowhere":
        return SlurmSettings(mode="commands", bin_directory=str(folder / "absent"))
    if kind == "empty":
        return SlurmSettings(mode="commands", bin_directory=str(command_folder(folder / "empty")))
    there = recorded_commands(folder / "slurm", "24.11")
    if kind == "plain":
        command_folder(there, scontrol="printf 'Prolog = (null)\\nSLURM_VERSION = 24.11\\n'")
    return SlurmSettings(mode="commands", bin_directory=str(there))


def kubernetes_of(draw: random.Random, folder: Path) -> KubernetesSettings:
    """Kubernetes as it may be set: not at all, or by a file that is absent, odd or without it."""
    odd = folder / "odd"
    odd.write_text(draw.choice(["", "- 1", "apiVersion: v1\nkind: Config\n", "a: [", "\x00"]))
    return KubernetesSettings(
        enabled=draw.random() < 0.7,
        kubeconfig=draw.choice([str(folder / "absent"), str(odd)]),
        context=draw.choice(["", "prod"]),
    )


def nvml_of(draw: random.Random, folder: Path) -> NvmlSettings:
    """NVML as it may be set."""
    odd = folder / "odd.so"
    odd.write_text("no library")
    return NvmlSettings(
        enabled=draw.random() < 0.3,
        library=draw.choice([str(folder / "absent.so"), str(odd), str(stub_library())]),
        mapping_directory=draw.choice(["", str(folder), str(folder / "absent")]),
        proc_root=str(folder),
    )


def is_set(settings: Settings, name: str) -> bool:
    """Whether a setting has another value than its default."""
    section, _, field = name.partition(".")
    return getattr(getattr(settings, section), field) != getattr(
        getattr(Settings(), section), field
    )


def drawn(seed: int, folder: Path) -> Iterator[tuple[Settings, list[str]]]:
    """Settings, with servers behind them, and the metrics that are there."""
    draw = random.Random(seed)  # noqa: S311 a draw, no secret
    names = [*OTHERS[: draw.randrange(len(OTHERS) + 1)]]
    if draw.random() < 0.75:
        names += [name for name in METRICS if draw.random() < draw.choice([0.2, 0.6, 1.0])]
    labels = draw.sample(LABELS, draw.randrange(3))
    with ExitStack() as stack:
        script = answers_series(*(matrix(label) for label in labels))
        url = stack.enter_context(faulty_server(script, names=names or ["up"])).url
        settings = replace(
            Settings(),
            prometheus=PrometheusSettings(url=url, selector=draw.choice(["", 'cluster="a"'])),
            slurm=slurm_of(draw, folder),
            kubernetes=kubernetes_of(draw, folder),
            nvml=nvml_of(draw, folder),
        )
        yield settings, names


@pytest.mark.parametrize("seed", range(40))
def test_no_finding_asks_for_what_is_there(seed: int, tmp_path: Path) -> None:
    """Nothing that is set is to be set, no two findings contradict, and one cause has one."""
    for settings, names in drawn(seed, tmp_path):
        found = list(source_findings(settings, NOW))
        parts = [(source, what) for source, (what, _state, _detail) in found]
        assert len(set(parts)) == len(parts), "a part is told twice"
        missing = {what: detail for _source, (what, state, detail) in found if state != "ok"}
        assert len(set(missing.values())) == len(missing), "one cause is told twice"
        for detail in missing.values():
            assert not [name for name in SET.findall(detail) if is_set(settings, name)], detail
            assert "selector" not in detail or settings.prometheus.selector
        added = re.findall(r"line `(\w+)", " ".join(missing.values()))
        assert not set(added) & set(names)
        if "GPU exporter" in missing:
            assert not added
            assert not {"fresh samples", "job labels"} & missing.keys()
        told = {what: (state, detail) for _source, (what, state, detail) in found}
        names_slurm = "Slurm job" in told.get("job labels", ("", ""))[1]
        if names_slurm and told["job labels"][0] == "ok":
            assert "slurm job mapping" not in missing
        assert not {"job labels", "slurm job mapping"} <= missing.keys() or (
            settings.kubernetes.enabled
        )


@pytest.mark.parametrize("names", [["up"], ["up", "go_info"], ["dcgm_exporter_build_info"]])
def test_a_prometheus_without_gpu_exporter_is_one_finding(names: list[str], tmp_path: Path) -> None:
    """What is missing is the exporter, not five of its counters; the next step is named."""
    with faulty_server(answers_series(), names=names) as server:
        settings = replace(Settings(), prometheus=PrometheusSettings(url=server.url))
        found = [entry for _source, entry in source_findings(settings, NOW) if entry[1] != "ok"]
    ((what, _state, detail),) = found
    assert what == "GPU exporter"
    assert "no GPU exporter is scraped" in detail
    assert "port 9400" in detail


@pytest.mark.parametrize(
    ("extra", "state", "lacking"),
    [
        ((), "missing", {"TENSOR", "DRAM", "FP32", "CLOCKS"}),
        (("DCGM_FI_PROF_TENSOR_UTIL_RATIO",), "missing", {"DRAM", "FP32", "CLOCKS"}),
        (
            (
                "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_DRAM_UTIL_RATIO",
                "DCGM_FI_PROF_FP32_UTIL_RATIO", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS",
            ),
            "ok",
            set(),
        ),
    ],
)  # fmt: skip
def test_counters_that_tell_why_a_job_is_slow_are_named(
    extra: tuple[str, ...], state: str, lacking: set[str]
) -> None:
    """Those that are not there, under whatever name, in one finding."""
    with faulty_server(answers_series(), names=["DCGM_FI_DEV_GPU_UTIL", *extra]) as server:
        settings = replace(Settings(), prometheus=PrometheusSettings(url=server.url))
        found = {entry[0]: entry[1:] for _source, entry in source_findings(settings, NOW)}
    said, detail = found["causes of slow work"]
    assert said == state
    assert {word for word in ("TENSOR", "DRAM", "FP32", "CLOCKS") if word in detail} == lacking


def test_a_kubeconfig_that_does_not_exist_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command names the file, and does not ask for the setting that names it."""
    absent = tmp_path / "kubeconfig"
    (tmp_path / "trimtab.toml").write_text(
        f'[kubernetes]\nenabled = true\nkubeconfig = "{absent}"\n'
    )
    common = ["--settings", str(tmp_path / "trimtab.toml"), "--store", f"duckdb:///{tmp_path}/t"]
    assert main([*common, "doctor", "--format", "json"]) == 3
    rows = {row["part"]: row["detail"] for row in json.loads(capsys.readouterr().out)}
    (detail,) = [detail for part, detail in rows.items() if part.startswith("kubernetes")]
    assert f"The file '{absent}' does not exist: correct kubernetes.kubeconfig." in detail


@pytest.mark.parametrize(("address", "words"), [("auto", "looks for a head"), ("local", "local")])
def test_a_ray_head_that_nobody_named_is_not_said_to_be_there(
    address: str,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`auto` is looked for when a cycle begins; until then nobody knows whether one runs."""
    pytest.importorskip("ray")
    monkeypatch.setenv("TRIMTAB_RAY_ADDRESS", address)
    main(["--store", f"duckdb:///{tmp_path}/t.duckdb", "doctor", "--format", "json"])
    rows = {row["part"]: row["detail"] for row in json.loads(capsys.readouterr().out)}
    assert words in rows["Ray"]


def board(number: int, metric: str, labels: dict[str, str]) -> dict[str, Any]:
    """A series of one board, now."""
    own = {"__name__": metric, "UUID": f"GPU-{number}", "gpu": "0", "modelName": "NVIDIA L4"}
    return {"metric": own | labels, "values": [[NOW.timestamp(), "1"]]}


def test_every_board_and_every_host_is_counted_whatever_names_them() -> None:
    """MIG boards have no GPU_UTIL, some exporters no Hostname, and few boards a counter."""
    power, energy = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
    series = [
        *(board(number, "DCGM_FI_DEV_GPU_UTIL", {"Hostname": f"n{number}"}) for number in (1, 2)),
        *(board(number, power, {"Hostname": f"n{number}"}) for number in (1, 2)),
        board(1, energy, {"Hostname": "n1"}),
        board(3, power, {"Hostname": "n3", "GPU_I_ID": "1", "GPU_I_PROFILE": "1g.6gb"}),
        board(4, power, {"instance": "10.0.0.4:9400"}),
    ]
    names = ["DCGM_FI_DEV_GPU_UTIL", power, energy]
    with faulty_server(answers_series(*series), names=names) as server:
        settings = replace(Settings(), prometheus=PrometheusSettings(url=server.url))
        told = {entry[0]: entry[1:] for _source, entry in source_findings(settings, NOW)}
    assert told["host names"] == ("ok", "4 hosts")
    assert told["fresh samples"] == ("ok", "7 series of 4 boards in the last 10 min")
    state, detail = told["boards with an energy counter"]
    assert state == "missing"
    assert detail.startswith("1 of 4. Add the line `DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")
