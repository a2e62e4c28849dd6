"""The vendor's names of GPUs stand in one file."""

from pathlib import Path

from data.facts.gpu_resources import is_of_vendor, resource_of

ROOT = Path(__file__).parents[2]
PACKAGES = ("data", "collectors", "forecasting", "planner", "dashboard")


def test_no_other_file_spells_a_resource_of_the_vendor() -> None:
    """Another vendor's plugin, or another name, is a change of one file."""
    spelling = [
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if "nvidia.com" in path.read_text(encoding="utf-8").replace("\\", "")
    ]
    assert spelling == ["data/facts/gpu_resources.py"]


def test_a_resource_counts_boards_or_instances() -> None:
    """Whole boards and each MIG profile have a resource of their own."""
    assert resource_of("") == "nvidia.com/gpu"
    assert resource_of("1g.10gb") == "nvidia.com/mig-1g.10gb"
    assert is_of_vendor("nvidia.com/mig-1g.10gb")
    assert not is_of_vendor("example.com/nvidia.com/gpu")
