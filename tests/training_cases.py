"""Training jobs whose memory is predicted."""

from planner.memory.models.model_sizes import known_model
from planner.memory.step.training_job import Recompute, TrainingJob

GIB = 2**30
LLAMA = known_model("llama3-8b")
STATED = TrainingJob(
    shape=LLAMA, framework="torchtitan", micro_batch=2, sequence_length=4096, optimizer="adamw",
    recompute=Recompute.FULL, length_varies=False, gradient_accumulation=4,
)  # fmt: skip
