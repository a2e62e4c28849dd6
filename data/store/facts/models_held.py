"""The GPU model of jobs whose scheduler names none that is known."""

from collections.abc import Iterable
from dataclasses import replace

from data.catalogue.gpu_catalogue import GpuCatalogue
from data.facts.fleet import Gpu
from data.facts.jobs import Job


def catalogued(job: Job, catalogue: GpuCatalogue) -> Job:
    """Return the job with the catalogue's name of its model, where that was kept as reported."""
    name = catalogue.recognise(job.gpu_model)
    return job if name == job.gpu_model else replace(job, gpu_model=name)


def with_models_held(
    jobs: Iterable[Job], gpus: Iterable[Gpu], catalogue: GpuCatalogue
) -> tuple[Job, ...]:
    """Return the jobs, those of an unknown model with model and memory of a board they held."""
    gpu_by_job = {
        job_id: gpu
        for gpu in gpus
        if catalogue.find(gpu.gpu_model) is not None
        for job_id in gpu.holders
    }
    return tuple(
        replace(
            job,
            gpu_model=catalogue.recognise(gpu.gpu_model),
            gpu_memory_mib=job.gpu_memory_mib or gpu.memory_total_mib,
        )
        if (gpu := gpu_by_job.get(job.job_id)) is not None and catalogue.find(job.gpu_model) is None
        else job
        for job in jobs
    )
