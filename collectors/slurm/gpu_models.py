"""Models of the catalogue for Slurm's gres types, which a site names as it likes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from collectors.shared.unread import grouped, held_by
from collectors.slurm.records import SlurmJob, SlurmNode
from collectors.slurm.values import mig_of
from data.base.errors import SourceNotConfiguredError, scrub
from data.catalogue.gpu_catalogue import GpuCatalogue


def gpu_models_of(setting: str) -> dict[str, str]:
    """Return the map of `h100=H100-SXM5-80GB,a100=…`. Errors: SourceNotConfiguredError."""
    model_by_type = {}
    for pair in filter(None, (part.strip() for part in setting.split(","))):
        gpu_type, equals, model = (part.strip() for part in pair.partition("="))
        if not (gpu_type and equals and model):
            raise SourceNotConfiguredError(
                f"slurm.gpu_models holds {scrub(pair)!r}",
                "Write TYPE=MODEL, such as h100=H100-SXM5-80GB; separate by commas.",
            )
        model_by_type[gpu_type.casefold()] = model
    return model_by_type


def _gres(gpu_type: str) -> str:
    return f"gres/gpu:{scrub(gpu_type)}" if gpu_type else "gres/gpu of no type"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobModel:
    """A job's GPU model: catalogue name, or Slurm's own word; `assumed` says what was supplied."""

    name: str
    mig_profile: str
    memory_mib: float | None
    assumed: tuple[tuple[str, str], ...]


class ModelNames:
    """Names of GPU models for one collection."""

    def __init__(
        self,
        gpu_models: Mapping[str, str],
        catalogue: GpuCatalogue,
        nodes: Iterable[SlurmNode],
    ) -> None:
        self._map = gpu_models
        self.catalogue = catalogue
        self._types_on: dict[str, set[str]] = {}
        self._types_in: dict[str, set[str]] = {}
        for node in nodes:
            types = {gpu.gpu_type for gpu in node.gpus}
            self._types_on[node.name] = types
            for partition in node.partitions:
                self._types_in.setdefault(partition, set()).update(types)

    def of_type(self, gpu_type: str) -> tuple[str, str]:
        """Return (model, MIG profile) of a gres type; an unknown type is given back."""
        model = self._map.get(gpu_type.casefold())
        board, profile = mig_of(gpu_type)
        if model is not None:
            return model, profile
        return self._map.get(board.casefold()) or self.catalogue.recognise(board), profile

    def is_known(self, name: str) -> bool:
        """Return whether one of these names, parted by commas, is a model of the catalogue."""
        return any(self.catalogue.find(part) is not None for part in name.split(","))

    def lacking(self, nodes: Iterable[SlurmNode]) -> tuple[str, ...]:
        """Return a sentence on each gres type of nodes whose model is not known."""
        pairs = ((gpu.gpu_type, node.name) for node in nodes for gpu in node.gpus)
        return tuple(
            f"{held_by('node', names)} with {_gres(gpu_type)}: its model is not known, and nothing "
            f"is planned on it. {self._way_out(gpu_type)}"
            for gpu_type, names in sorted(grouped(pairs).items())
            if not self.is_known(self.of_type(gpu_type)[0])
        )

    def _way_out(self, gpu_type: str) -> str:
        if not gpu_type:
            return "Give its GPUs a Type in gres.conf and slurm.conf"
        board = mig_of(gpu_type)[0].casefold()
        names = [
            model.name for model in self.catalogue if model.name.casefold().split("-")[0] == board
        ]
        return f"Set slurm.gpu_models to {scrub(board)}={' or '.join(names) or 'MODEL'}"

    def of_job(self, job: SlurmJob) -> JobModel:
        """Return the model of a job: of what it holds, else of what it asked for.

        A job that names no type is on nodes of one type, or waits in a partition of one type, or
        its model stays unknown.
        """
        assumed: list[tuple[str, str]] = []
        types = {gpu.gpu_type for gpu in job.gpus if gpu.gpu_type}
        if not types:
            types = self._types_around(job)
            if len(types) == 1:
                where = "its nodes have" if job.nodes else f"partition {job.partition} has"
                assumed.append(("gpu_type", f"{next(iter(types))}: {where} no other"))
        if len(types) != 1:
            return JobModel(
                name=",".join(sorted(self.of_type(indices)[0] for indices in types))
                if job.nodes
                else "",
                mig_profile="",
                memory_mib=None,
                assumed=(),
            )
        gpu_type = types.pop()
        name, profile = self.of_type(gpu_type)
        if {gpu_type.casefold(), mig_of(gpu_type)[0].casefold()} & set(self._map):
            assumed.append(("gpu_model", f"{name}: slurm.gpu_models for {gpu_type}"))
        return JobModel(
            name=name,
            mig_profile=profile,
            memory_mib=self._memory(name, profile),
            assumed=tuple(assumed),
        )

    def _types_around(self, job: SlurmJob) -> set[str]:
        if job.nodes:
            around = [self._types_on.get(node, set()) for node in job.nodes]
        else:
            around = [self._types_in.get(part, set()) for part in job.partition.split(",")]
        return set().union(*around) - {""}

    def _memory(self, name: str, profile: str) -> float | None:
        model = self.catalogue.find(name)
        if model is None:
            return None
        if not profile:
            return float(model.memory_mib)
        instance = model.mig_profile(profile)
        return None if instance is None else float(instance.memory_mib)
