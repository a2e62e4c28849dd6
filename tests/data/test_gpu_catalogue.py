"""The catalogue of GPU models: which boards it knows, and by which reported names."""

from itertools import product
from pathlib import Path

import pytest
from factories import NOW, make_collected, make_job, make_samples

from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.store import open_store

REPORTED = {
    "NVIDIA H100 NVL": ("H100-NVL-94GB", 95_830, 400),
    "NVIDIA H200 NVL": ("H200-NVL-141GB", 143_771, 600),
    "NVIDIA GH200 480GB": ("GH200-96GB", 97_871, 900),
    "NVIDIA GH200 120GB": ("GH200-96GB", 97_871, 900),
    "NVIDIA GH200 144G HBM3e": ("GH200-144GB", 146_831, 900),
    "NVIDIA B300 SXM6 AC": ("B300-SXM-270GB", 275_040, 1100),
    "NVIDIA GB200": ("GB200-186GB", 189_471, 1200),
    "NVIDIA GB300": ("GB300-278GB", 284_208, 1400),
    "NVIDIA A16": ("A16-16GB", 15_356, 62),
    "AMD Instinct MI300X": ("MI300X-192GB", 196_592, 750),
    "AMD Instinct MI300X OAM": ("MI300X-192GB", 196_592, 750),
    "AMD Instinct MI325X": ("MI325X-256GB", 262_128, 1000),
    "NVIDIA RTX PRO 6000 Blackwell Server Edition": ("RTX-PRO-6000-96GB", 97_887, 600),
    "NVIDIA A100-PCIE-40GB": ("A100-PCIE-40GB", 40_960, 250),
    "NVIDIA L40": ("L40-48GB", 46_068, 300),
    "NVIDIA L40S": ("L40S-48GB", 46_068, 350),
    "NVIDIA A40": ("A40-48GB", 46_068, 300),
    "NVIDIA A10G": ("A10G-24GB", 23_028, 300),
    "Tesla V100-PCIE-32GB": ("V100-PCIE-32GB", 32_768, 250),
    "Tesla V100-PCIE-16GB": ("V100-PCIE-16GB", 16_384, 250),
    "NVIDIA H20": ("H20-96GB", 97_871, 500),
    "NVIDIA H800": ("H800-SXM-80GB", 81_559, 700),
    "NVIDIA A800-SXM4-80GB": ("A800-SXM4-80GB", 81_920, 400),
    "NVIDIA A800 80GB PCIe": ("A800-PCIE-80GB", 81_920, 300),
    "NVIDIA A100-SXM-64GB": ("A100-SXM-64GB", 65_536, 440),
    "NVIDIA A2": ("A2-16GB", 15_356, 60),
    "NVIDIA L20": ("L20-48GB", 46_068, 275),
    "NVIDIA RTX A6000": ("RTX-A6000-48GB", 49_140, 300),
    "NVIDIA RTX A5000": ("RTX-A5000-24GB", 24_564, 230),
    "NVIDIA RTX 6000 Ada Generation": ("RTX-6000-ADA-48GB", 49_140, 300),
    "NVIDIA GeForce RTX 3090": ("RTX-3090-24GB", 24_576, 350),
    "NVIDIA GeForce RTX 4090": ("RTX-4090-24GB", 24_564, 450),
    "NVIDIA GeForce RTX 5090": ("RTX-5090-32GB", 32_607, 575),
    "NVIDIA GeForce RTX 2080 Ti": ("RTX-2080-TI-11GB", 11_264, 250),
    "Quadro RTX 8000": ("QUADRO-RTX-8000-48GB", 49_152, 260),
    "Tesla V100S-PCIE-32GB": ("V100S-PCIE-32GB", 32_768, 250),
    "Tesla P100-PCIE-16GB": ("P100-PCIE-16GB", 16_384, 250),
    "Tesla P100-SXM2-16GB": ("P100-SXM2-16GB", 16_384, 300),
    "AMD Instinct MI210": ("MI210-64GB", 65_520, 300),
    "AMD Instinct MI250X": ("MI250X-64GB", 65_520, 280),
    "AMD Instinct MI300A": ("MI300A-128GB", 131_072, 550),
    "AMD Instinct MI355X": ("MI355X-288GB", 294_896, 1400),
}
"""What NVML, or AMD SMI, says of a board: name, then its model here, MiB of memory, limit in W."""


@pytest.mark.parametrize("reported", REPORTED)
def test_a_board_is_known_by_each_name_that_users_see(reported: str) -> None:
    """NVML and DCGM write spaces, gpu-feature-discovery hyphens, Slurm's AutoDetect underscores."""
    name, memory_mib, watts = REPORTED[reported]
    known = load_gpu_catalogue()
    label, gres_type = reported.replace(" ", "-"), reported.replace(" ", "_").lower()
    for written in (reported, label, gres_type, f"{reported} MIG 1g.12gb", name):
        assert known.recognise(written) == name, written
    model = known.get(name)
    assert (model.memory_mib, model.tdp_watts) == (memory_mib, watts)


def test_every_model_is_consistent() -> None:
    """No two have a name in common; idle power is ordered; the slices of a profile fit a board."""
    known = load_gpu_catalogue()
    written = [word for model in known for word in {model.name, *model.vendor_names}]
    assert len({word.casefold() for word in written}) == len(written)
    for model in known:
        assert 0 < model.idle_watts_low < model.idle_watts < model.idle_watts_high
        assert model.idle_watts_high < model.tdp_watts / 2
        for profile in model.mig_profiles:
            placement = model.mig_placement(profile)
            assert placement is not None, (model.name, profile.name)
            assert len(placement.starts) >= profile.max_instances
            assert profile.memory_mib * profile.max_instances <= model.memory_mib
            assert model.mig_profile(profile.name) == profile


def test_a_job_kept_under_a_reported_name_is_of_that_model_when_it_is_read(tmp_path: Path) -> None:
    """It was collected before the catalogue had its model."""
    job = make_job("ml/job/old", gpu_model="NVIDIA H100 NVL", first_seen_at=NOW)
    with open_store(f"duckdb:///{tmp_path}/store.duckdb") as store:
        store.keep(make_collected(make_samples(gpus=1, minutes=5), jobs=(job,)))
        (read,) = store.reader.jobs_of(["ml/job/old"]).values()
    assert read.gpu_model == "H100-NVL-94GB"


def test_programs_run_on_the_boards_of_one_vendor() -> None:
    """Whatever is the cheapest and the fastest."""
    catalogue = load_gpu_catalogue()
    others = {model.name for model in catalogue if not model.runs_cuda}
    assert others == {
        "MI210-64GB", "MI250-64GB", "MI250X-64GB", "MI300A-128GB", "MI300X-192GB", "MI325X-256GB",
        "MI355X-288GB",
    }  # fmt: skip
    for here, there in product(catalogue, catalogue):
        alike = (here.name in others) == (there.name in others)
        assert here.runs_what_runs_on(there) is alike


GRES_TYPES = {
    "l40s": "L40S-48GB", "L40": "L40-48GB", "l4": "L4-24GB", "t4": "T4-16GB", "a40": "A40-48GB",
    "a30": "A30-24GB", "a2": "A2-16GB", "b200": "B200-SXM-180GB", "gb200": "GB200-186GB",
    "mi300x": "MI300X-192GB", "mi250x": "MI250X-64GB", "rtx_a6000": "RTX-A6000-48GB",
    "a6000": "RTX-A6000-48GB", "rtx3090": "RTX-3090-24GB", "rtx_4090": "RTX-4090-24GB",
    "2080ti": "RTX-2080-TI-11GB", "rtx8000": "QUADRO-RTX-8000-48GB", "v100s": "V100S-PCIE-32GB",
    "nvidia_geforce_rtx_3090": "RTX-3090-24GB", "nvidia_a100-sxm4-40gb": "A100-SXM4-40GB",
}  # fmt: skip
"""Words that sites use as gres types, each of one board alone."""


@pytest.mark.parametrize("word", GRES_TYPES)
def test_a_gres_type_that_means_one_board_needs_no_setting(word: str) -> None:
    """Whatever parts its words."""
    known = load_gpu_catalogue()
    for written in (word, word.upper(), word.replace("_", "-"), word.replace("_", "")):
        assert known.recognise(written) == GRES_TYPES[word], written


@pytest.mark.parametrize(
    "word", ["a100", "h100", "h200", "h20", "h800", "a800", "v100", "p100", "rtx6000", "gpu", "3g"]
)
def test_a_word_of_several_boards_is_no_board(word: str) -> None:
    """Memory, form and price differ between them: the site says which it has."""
    assert load_gpu_catalogue().find(word) is None
