"""docs/examples/cli_filter.lua in a real sbatch: sizes what consents, and never stops a job."""

import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from beds.api_clients import LOCAL, guarded_api
from beds.slurm import SlurmBed, running_slurm
from beds.slurm_files import BedNode
from beds.slurm_submission import settings_of
from factories import make_collected

from collectors.shared.collector import Window
from collectors.slurm.jobs import slurm_collector
from data.base.clock import utc_now
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.store import open_store

pytestmark = [pytest.mark.slurm, pytest.mark.slow]
NODES = (
    BedNode(name="h1", gpu_type="h100", gpus=4, features="h100"),
    BedNode(name="a1", gpu_type="a100", gpus=2, features="a100"),
    BedNode(name="c1", features="cpu"),
)
EXAMPLE = Path(__file__).parents[4] / "docs/examples/cli_filter.lua"
READS = "GPUS NODES GPUS_PER_NODE MICRO_BATCH GRADIENT_ACCUMULATION SHARDING RECOMPUTE"
SCRIPT = f"""#!/bin/bash
#SBATCH --gres=gpu:h100:1
#SBATCH --time=00:05:00
#SBATCH --output=/dev/null
#TRIMTAB size = "apply"
#TRIMTAB [model]
#TRIMTAB name = "tinyllama-1.1b"
#TRIMTAB [training]
#TRIMTAB global_batch = 64
#TRIMTAB sequence_length = 2048
#TRIMTAB [data]
#TRIMTAB tokens = 1e9
env | grep ^TRIMTAB_ > told.txt
true srun torchrun train.py {" ".join(f"$TRIMTAB_{name}" for name in READS.split())}
"""
SECONDS = 1
"""What the filter waits for an answer; sbatch itself takes less than as long again."""


@pytest.fixture(scope="module")
def bed() -> Iterator[SlurmBed]:
    """A cluster whose sbatch runs the filter."""
    with running_slurm(nodes=NODES, further="CliFilterPlugins=cli_filter/lua") as running:
        yield running


@contextmanager
def serving(bed: SlurmBed, folder: Path) -> Iterator[str]:
    """A Trimtab that has read the cluster; its address."""
    settings = settings_of(bed)
    with open_store(f"duckdb:///{folder}/t.duckdb") as store, listening() as door:
        now = utc_now()
        collector = slurm_collector(settings.slurm, load_gpu_catalogue())
        collected = collector.collect(Window(start=now, end=now))
        store.keep(make_collected(jobs=collected.jobs, nodes=collected.nodes))
        app = guarded_api(store, LOCAL, settings=settings)
        config = uvicorn.Config(app, lifespan="off", log_config=None, access_log=False)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [door]})
        thread.start()
        try:
            yield address_of(door)
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def listening() -> Iterator[socket.socket]:
    """A socket that takes connections, and of itself answers none."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen()
        yield door


def address_of(door: socket.socket) -> str:
    """The address of the resource there."""
    return f"http://127.0.0.1:{door.getsockname()[1]}/api/v1/size"


def submitted(
    bed: SlurmBed, url: str, script: str, *, patience: int = 60
) -> tuple[str, str, float]:
    """Submit with the filter of this address: (scontrol's words, the filter's, seconds)."""
    header = bed.folder / "trimtab.header"
    header.write_text("X-Trimtab-By: someone\n")
    text = EXAMPLE.read_text().replace("http://127.0.0.1:8501/api/v1/size", url)
    text = text.replace("/etc/slurm/trimtab.header", str(header))
    assert (url in text, f"SECONDS = {SECONDS}\n" in text) == (True, True)
    text = text.replace(f"SECONDS = {SECONDS}\n", f"SECONDS = {patience}\n")
    (bed.folder / "etc" / "cli_filter.lua").write_text(text)
    (bed.folder / "run" / "job.sh").write_text(script)
    started = time.monotonic()
    said = bed.words("sbatch", "--hold", "job.sh")
    took = time.monotonic() - started
    match = re.search(r"Submitted batch job (\d+)", said)
    assert match, said
    return bed.run("scontrol", "show", "job", "-o", match[1]), said, took


def asks(job: str) -> dict[str, str]:
    """What a job asks of Slurm."""
    facts = dict(pair.partition("=")[::2] for pair in job.split() if "=" in pair)
    return {name: facts.get(name, "") for name in ("TresPerNode", "NumNodes", "TimeLimit")}


def test_a_job_gets_its_size_where_its_owner_consents(bed: SlurmBed, tmp_path: Path) -> None:
    """Its type, nodes and limit; without the line it goes as it is, with the size told."""
    with serving(bed, tmp_path) as url:
        job, said, _took = submitted(bed, url, SCRIPT)
        sized = asks(job)
        told = dict(re.findall(r"Trimtab: --([\w-]+)=(\S+)", said))
        assert sized["TresPerNode"] == f"gres:{told['gres']}"
        assert sized["NumNodes"].partition("-")[0] == told["nodes"]
        assert sized["TimeLimit"] == told["time"] != "00:05:00"
        number = re.search(r"JobId=(\d+)", job)
        assert number
        bed.run("scontrol", "release", number[1])
        path = bed.folder / "run" / "told.txt"
        bed.until("it has run", lambda: path.exists() and "MICRO_BATCH" in path.read_text())
        assert set(path.read_text().split()) == set(told["export"].split(",")[1:])
        shown, said, _took = submitted(bed, url, SCRIPT.replace('"apply"', '"show"'))
        assert asks(shown) == {
            "TresPerNode": "gres:gpu:h100:1", "NumNodes": "1", "TimeLimit": "00:05:00",
        }  # fmt: skip
        assert "Trimtab: " in said
        assert "--gres" not in said


def test_what_is_not_read_goes_as_it_is(bed: SlurmBed, tmp_path: Path) -> None:
    """A job that trains nothing, one with a fault in its lines, and one given as --wrap."""
    with serving(bed, tmp_path) as url:
        for script in ("#!/bin/bash\n#SBATCH --gres=gpu:1\ntrue\n", SCRIPT.replace("[model]", "[")):
            job, said, _took = submitted(bed, url, script)
            assert asks(job)["TresPerNode"].startswith("gres:gpu")
            assert "Trimtab" not in said
        assert "Submitted" in bed.words("sbatch", "--hold", "--gres=gpu:1", "--wrap=true")


def test_a_job_is_submitted_when_trimtab_is_down_or_hangs(bed: SlurmBed) -> None:
    """The filter waits for its own time and no longer; the job is what its owner wrote."""
    with listening() as door:
        down = address_of(door)
    for url, waits in ((down, False), ("", True)):
        with listening() as silent:
            job, said, took = submitted(bed, url or address_of(silent), SCRIPT, patience=SECONDS)
            assert asks(job)["TresPerNode"] == "gres:gpu:h100:1"
            assert "Trimtab" not in said
            assert took >= SECONDS * waits


def test_a_broken_answer_changes_nothing(bed: SlurmBed) -> None:
    """Half of an answer, an answer of another program, and no curl at all."""
    for body in ('{"gpu":"H100","gpus":4,"memory":{"fit_probability":0.9', "<html></html>", ""):
        with listening() as door:
            reply = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
            thread = threading.Thread(target=answer_once, args=(door, reply))
            thread.start()
            job, _said, _took = submitted(bed, address_of(door), SCRIPT)
            thread.join()
            assert asks(job)["TresPerNode"] == "gres:gpu:h100:1"
    with listening() as door:
        bed.environment["PATH"], path = "/nowhere", bed.environment.get("PATH", "")
        try:
            job, _said, _took = submitted(bed, address_of(door), SCRIPT)
        finally:
            bed.environment["PATH"] = path
        assert asks(job)["TresPerNode"] == "gres:gpu:h100:1"


def answer_once(door: socket.socket, reply: bytes) -> None:
    """Answer one request with these bytes."""
    client, _address = door.accept()
    with client:
        client.recv(1 << 16)
        client.sendall(reply)
