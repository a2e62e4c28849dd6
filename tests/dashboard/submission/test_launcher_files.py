"""Files of strangers: whatever they hold, the answer is an error that names them, and soon."""

import contextlib
import os
import time
from pathlib import Path

import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from dashboard.submission.launchers.command_line import SUFFIXES, read_document
from dashboard.submission.launchers.launched_job import LaunchOptions, launched_job
from data.base.errors import ChangeRefusedError, TrimtabError

BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 12)
)
MERGES = "m0: &m0 {k: 1}\n" + "".join(
    f"m{level}: &m{level}\n  <<: [*m{level - 1}, *m{level - 1}]\n" for level in range(1, 40)
)
HOSTILE = {
    "bomb.yaml": BOMB,
    "merges.yaml": MERGES,
    "deep.yaml": "base_model: " + "[" * 5000,
    "deeper.yaml": "".join(f"{' ' * level}a:\n" for level in range(300)),
    "deep.json": '{"a":' * 5000,
    "deep.toml": "a = " + "[" * 5000,
    "object.yaml": "base_model: !!python/object/apply:os.system [true]\n",
    "huge.yaml": f"base_model: Qwen/Qwen2.5-7B\nmicro_batch_size: {'9' * 5000}\n",
    "float.yaml": "base_model: Qwen/Qwen2.5-7B\nmicro_batch_size: 1.0e+300\n",
    "nan.yaml": "base_model: Qwen/Qwen2.5-7B\nsequence_len: .nan\n",
    "infinity.json": '{"base_model": "Qwen/Qwen2.5-7B", "sequence_len": Infinity}',
    "negative.yaml": "base_model: Qwen/Qwen2.5-7B\nmicro_batch_size: -4\n",
    "day.yaml": "base_model: 2001-99-99\n",
    "list.yaml": "[1, 2, 3]\n",
    "empty.yaml": "",
    "text.yaml": "just words\n",
    "keys.yaml": "".join(f"k{number}: {number}\n" for number in range(10_100)),
    "zero.yaml": "base_model: \x00\n",
    "other.yaml": "apiVersion: v1\nkind: Pod\n",
    "launcher.yaml": "distributed_type: FSDP\nnum_processes: 8\n",
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.usefixtures("no_garbage")
def test_hostile_files_are_refused_by_name_or_key(tmp_path: Path, name: str) -> None:
    """Bombs, depth, huge numbers, objects, other people's files: an error, within seconds."""
    path = tmp_path / name
    path.write_text(HOSTILE[name])
    begun = time.process_time()
    with pytest.raises(TrimtabError) as refused:
        launched_job([str(path)], LaunchOptions())
    assert name in str(refused.value)
    assert len(str(refused.value)) < 700
    assert time.process_time() - begun < 5


@pytest.mark.parametrize("kind", ["pipe", "device", "large", "folder", "missing", "bytes"])
def test_what_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    """A pipe without a writer is not waited for, and a device is not read."""
    path = tmp_path / "job.yaml"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "large":
        with path.open("wb") as sparse:
            sparse.truncate(1 << 40)
    elif kind == "folder":
        path.mkdir()
    elif kind == "bytes":
        path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ChangeRefusedError, match="cannot read"):
        read_document(path)


def test_a_few_aliases_are_read(tmp_path: Path) -> None:
    """People use anchors to say a thing once."""
    path = tmp_path / "job.yaml"
    path.write_text("a: &lr {x: 1}\nb: *lr\nc: [1, two, 3.5]\nnone: ~\n")
    assert read_document(path) == {"a.x": 1, "b.x": 1, "c": [1, "two", 3.5], "none": None}


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".yaml", "a: 1\nb: {x: 1, x: 2}\n"),
        (".yaml", "b: &few {y: 1}\na: {<<: *few, x: 1, x: 2}\n"),
        (".json", '{"b": {"x": 1, "x": 2}}'),
        (".toml", "x = 1\nx = 2\n"),
    ],
)
def test_a_key_that_stands_twice_is_refused(suffix: str, text: str, tmp_path: Path) -> None:
    """Nobody can tell which of two micro-batches is meant."""
    path = tmp_path / f"job{suffix}"
    path.write_text(text)
    with pytest.raises(ChangeRefusedError, match=r"cannot read .*(key x stands|overwrite)"):
        read_document(path)


def test_a_merged_key_may_be_said_anew(tmp_path: Path) -> None:
    """That is what merging is for."""
    path = tmp_path / "job.yaml"
    path.write_text("b: &few {x: 1}\na: {<<: *few, x: 2}\n")
    assert read_document(path)["a.x"] == 2


@settings(max_examples=examples(150), deadline=None)
@given(st.binary(max_size=200), st.sampled_from(SUFFIXES))
def test_any_bytes_are_keys_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, body: bytes, suffix: str
) -> None:
    """No content ends in another exception."""
    path = tmp_path_factory.mktemp("any") / f"file{suffix}"
    path.write_bytes(body)
    with contextlib.suppress(ChangeRefusedError):
        assert isinstance(read_document(path), dict)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.text(max_size=20), min_size=2, max_size=12))
def test_any_words_are_a_job_or_an_error(words: list[str]) -> None:
    """No command line ends in another exception."""
    start = ["torchrun", "--nproc_per_node", "2", "t.py", "--model_name_or_path", "llama3-8b"]
    for line in (words, [*start, *words], ["vllm", "serve", *words]):
        with contextlib.suppress(TrimtabError):
            launched_job(line, LaunchOptions())
