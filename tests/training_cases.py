"""Training jobs whose memory is predicted."""

from planner.memory.known_models import known_model
from planner.memory.training_job import Recompute, TrainingJob

GIB = 2**30
LLAMA = known_model("llama3-8b")
STATED = TrainingJob(
    shape=LLAMA, framework="torchtitan", micro_batch=2, sequence_length=4096, optimizer="adamw",
    recompute=Recompute.FULL, length_varies=False, gradient_accumulation=4,
)  # fmt: skip
