"""MIG layouts for nodes of Slurm, from an administrator's file of nvidia-mig-parted."""

from dataclasses import dataclass
from pathlib import Path

from collectors.shared.mig_layouts import layouts_in
from data.catalogue.gpu_catalogue import GpuModel
from data.facts.fleet import MigManager


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutFile:
    """The text of a file of layouts, '' without one, and what stood against reading it."""

    path: str
    text: str = ""
    warnings: tuple[str, ...] = ()

    def manager_of(self, model: GpuModel | None, boards: int) -> MigManager | None:
        """Return the layouts for a node of so many uncut boards, None where the file has none.

        Its layout is the one that cuts nothing, which is the way back; '' without such a layout.
        """
        layouts = () if model is None or not self.text else layouts_in(self.text, model, boards)
        if not layouts:
            return None
        uncut = next((layout.name for layout in layouts if not layout.cut), "")
        return MigManager(
            layout=uncut, state="", strategy="mixed", source=self.path, layouts=layouts
        )


def read_layouts(path: str) -> LayoutFile:
    """Return the content of the file, with a warning where it cannot be read."""
    if not path:
        return LayoutFile(path="")
    try:
        return LayoutFile(path=path, text=Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        warning = (
            f"no MIG layout is known: cannot read {path}: {reason}. Correct slurm.mig_layouts_file."
        )
        return LayoutFile(path=path, warnings=(warning,))
