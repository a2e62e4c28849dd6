"""A drawn Slurm job, a change to it, and what happens in between."""

import random
from dataclasses import dataclass

FORMS = (
    "gpus-per-node", "gpus-per-node", "gpus", "gpus", "gpus-per-task", "gpus-per-socket",
    "two-ways",
)  # fmt: skip
STARTS = ("waits", "held", "runs", "suspended", "over", "depends", "later")
MEANWHILE = (
    "gres", "nodes", "limit", "partition", "comment", "hold", "release", "requeue", "cancel",
    "start",
)  # fmt: skip


@dataclass(frozen=True)
class SlurmScenario:
    """The plainest case: a waiting job of one node with four GPUs is halved and rolled back.

    `meanwhile` happens, and `dies` or `outage` strikes, before step `at` is sent, -1 before the
    change is worked out; 0 is the first step.
    """

    form: str = "gres"
    typed: bool = True
    gpus: int = 4
    nodes: str = ""
    tasks: int = 0
    cpus: int = 0
    memory: str = ""
    constraint: str = ""
    reservation: bool = False
    qos: bool = False
    exclusive: bool = False
    array: str = ""
    het: bool = False
    start: str = "waits"
    requeue: bool = True
    minutes: int = 60
    action: str = "gpus"
    wanted: int = 2
    consent: bool = True
    mode: str = "commands"
    at: int = 0
    meanwhile: str = ""
    dies: str = ""
    outage: str = ""
    back: bool = True

    def options(self) -> list[str]:
        """Return the options of sbatch."""
        of_type = "h100:" if self.typed else ""
        asked = f"{of_type}{self.gpus}"
        found = {
            "gres": [f"--gres=gpu:{asked}"],
            "two-ways": [f"--gres=gpu:{asked}", f"--gpus={asked}"],
            "gpus-per-socket": [f"--gpus-per-socket={asked}", "--sockets-per-node=1"],
        }.get(self.form, [f"--{self.form}={asked}"])
        found += [f"-N{self.nodes}"] if self.nodes else []
        found += [f"-n{self.tasks}"] if self.tasks else []
        found += [f"-c{self.cpus}"] if self.cpus else []
        found += [self.memory] if self.memory else []
        found += [f"-C{self.constraint}"] if self.constraint else []
        found += ["--reservation=trial"] if self.reservation else []
        found += ["--qos=small"] if self.qos else []
        found += ["--exclusive"] if self.exclusive else []
        found += [f"--array={self.array}"] if self.array else []
        found += ["-H"] if self.start == "held" else []
        found += ["--begin=now+1hour"] if self.start == "later" else []
        found += ["--requeue" if self.requeue else "--no-requeue", f"-t{self.minutes}"]
        return found


def draw(source: random.Random) -> SlurmScenario:
    """Return a job of the whole option space; plain values come up more often."""

    def one(plain: float, *others: object, otherwise: object = "") -> object:
        return otherwise if source.random() < plain else source.choice(others)

    running = source.random() < 0.45
    drawn = {
        "form": one(0.45, *FORMS, otherwise="gres"),
        "typed": source.random() < 0.7,
        "gpus": source.choice([1, 2, 2, 3, 4, 4, 6, 8]),
        "nodes": one(0.35, "1", "2", "2", "3", "3", "1-2"),
        "tasks": one(0.7, 1, 2, 4, 6, otherwise=0),
        "cpus": one(0.8, 1, 3, otherwise=0),
        "memory": one(0.6, "--mem=500", "--mem-per-cpu=50", "--mem-per-gpu=70"),
        "constraint": one(0.8, "nvlink", "nvlink&h100", "[nvlink*1]"),
        "reservation": source.random() < 0.1,
        "qos": source.random() < 0.15,
        "exclusive": source.random() < 0.06,
        "array": one(0.9, "0-3", "0-5%2", "7"),
        "het": source.random() < 0.04,
        "start": "runs" if running else source.choice(STARTS),
        "requeue": source.random() < 0.9,
        "minutes": source.choice([10, 60, 240]),
        "action": one(0.75, "limit", "limit", "later", "reclaim", "type", otherwise="gpus"),
        "wanted": source.choice([1, 1, 1, 2, 2, 3, 3, 4, 5, 6, 9]),
        "consent": source.random() < 0.9,
        "mode": one(0.85, "rest", otherwise="commands"),
        "at": source.choice([-1, 0, 0, 1, 1, 2, 2, 3]),
        "meanwhile": one(0.65, *MEANWHILE),
        "dies": one(0.7, "before", "after", "told"),
        "outage": one(0.88, "stop", "kill"),
        "back": source.random() < 0.85,
    }
    return SlurmScenario(**drawn)  # type: ignore[arg-type]
