"""The form of the New job page: its fields become the table of a job file, read by one reader."""

import shlex
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard.submission.job.job_file import JobFile, read_job
from dashboard.submission.job.model_source import config_from_text
from data.base.errors import ChangeRefusedError
from planner.memory.models.model_config import ReadModel
from planner.memory.models.model_sizes import known_model, known_models
from planner.memory.step.framework_traits import known_frameworks

_OPTIMIZERS = ("", "adamw", "adamw8bit", "paged_adamw8bit", "sgd_momentum", "lion", "muon")
_PRECISIONS = ("", "amp", "bf16-true", "fp32", "megatron", "zero")
_OPEN = "not stated"
_USUAL_MODEL = "llama3-8b"


def asked_job() -> JobFile | None:
    """Show the form, and give the job that it describes once it was sent; the last one after it.

    Errors: ChangeRefusedError, ImpossibleProblemError for what cannot be.
    """
    with st.form("new-job"):
        first, middle, right = st.columns(3)
        names = sorted(known_models())
        usual = names.index(_USUAL_MODEL)
        model = first.selectbox("Known model", names, index=usual, key="job-model")
        config = first.text_area("or the text of its config.json", key="job-config", height=68)
        name = first.text_input("Name of the job", "my-job", key="job-name")
        batch = middle.number_input("Global batch (sequences)", 1, 10**7, 64, key="job-batch")
        length = middle.number_input("Sequence length (tokens)", 1, 10**8, 4096, key="job-length")
        method = middle.selectbox("Method", ("full", "adapter"), key="job-method")
        lengths = middle.selectbox("Sequence lengths", (_OPEN, "fixed", "vary"), key="job-lengths")
        framework = right.selectbox("Framework", ("", *known_frameworks()), key="job-framework")
        optimizer = right.selectbox("Optimiser", _OPTIMIZERS, key="job-optimizer")
        precision = right.selectbox("Precision", _PRECISIONS, key="job-precision")
        image = right.text_input("Image (Kubernetes)", key="job-image")
        tokens = first.number_input(
            "Training tokens (0: not stated)", 0, 10**15, 0, key="job-tokens"
        )
        hours = middle.number_input("Time limit, h (0: none)", 0.0, 8760.0, 0.0, key="job-hours")
        line = (
            "train.py --micro-batch {micro_batch} --accumulate {gradient_accumulation} "
            "--tensor-parallel {tensor_parallel} --pipeline-parallel {pipeline_parallel}"
        )
        command = st.text_input("Command", line, key="job-command")
        sent = st.form_submit_button("Show the plans", type="primary")
    if sent:
        training = {
            "global_batch": int(batch),
            "sequence_length": int(length),
            "method": method,
            "framework": framework or None,
            "optimizer": optimizer or None,
            "precision": precision or None,
            "length_varies": None if lengths == _OPEN else lengths == "vary",
        }
        table = {
            "name": name.strip(),
            "command": _words(command),
            "image": image.strip() or None,
            "time_limit_hours": float(hours) or None,
            "data": {"tokens": int(tokens)} if tokens else None,
            "training": _stated(training),
        }
        read = (
            config_from_text(config.encode(), name="the text of config.json")
            if config.strip()
            else ReadModel(shape=known_model(model), assumed=())
        )
        st.session_state["new-job-asked"] = read_job(_stated(table), folder=Path(), model=read)
        st.session_state.pop("new-job-proposal", None)
    job: JobFile | None = st.session_state.get("new-job-asked")
    return job


def _stated(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _words(command: str) -> list[str]:
    """Return the words of a command line as a shell would split them; no shell runs it."""
    try:
        return shlex.split(command)
    except ValueError as error:
        raise ChangeRefusedError(
            f"the command cannot be split into words: {error}", "Close its quotes."
        ) from error
