"""Messages of errors are sentences."""

import pytest

from data.base.errors import CollectorError, SourceNotConfiguredError, StoreError, sentence


@pytest.mark.parametrize("end", [".", "!", "?", "…"])
def test_a_sentence_has_one_stop(end: str) -> None:
    """A reason that ends in a stop of its own gets no second one."""
    assert sentence(f"no{end}") == f"no{end}"
    assert sentence("no") == "no."


def test_a_reason_inside_a_message_does_not_double_its_stop() -> None:
    """The reason of a failed source is a whole error, hint and all."""
    reason = str(SourceNotConfiguredError("no such file", "Correct gpu_csv.path."))
    told = str(StoreError(f"nothing to plan; gpu_csv: {reason}", "Import a trace."))
    assert told == "nothing to plan; gpu_csv: no such file. Correct gpu_csv.path. Import a trace."
    assert str(CollectorError("no answer.")) == "no answer."
