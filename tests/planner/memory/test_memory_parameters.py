"""Parameter counts are those of the public models."""

import pytest

from planner.memory.models.model_sizes import known_model
from planner.memory.models.parameters import count_parameters

PUBLISHED = {
    "llama2-7b": 6_738_415_616,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3.2-3b": 3_212_749_824,
    "mistral-7b": 7_241_732_096,
    "qwen-7b": 7_721_324_544,
    "gemma-2b": 2_506_172_416,
    "gemma2-9b": 9_241_705_984,
    "falcon-7b": 6_921_720_704,
}


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_parameters_are_those_of_the_published_checkpoint(name: str) -> None:
    """The count equals the published checkpoint's, to the last parameter."""
    assert count_parameters(known_model(name)).total == PUBLISHED[name]
