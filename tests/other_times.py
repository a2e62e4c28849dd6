"""Run the tests with the clock at other times: `other_times.py [TIME ...] [-- OPTION ...]`.

libfaketime (Debian package `faketime`) tells pytest, its workers and the servers that they start
another time. Prometheus, Kubernetes and etcd are written in Go and ask the kernel itself, Chromium
keeps all cores busy under it, and the timeouts of PostgreSQL never end, so tests that need one of
them do not run here. Files keep the times that the kernel gives them, so that compiled code stays
valid, and the monotonic clock runs as it is.

Under it a lock of Python that is waited for with a timeout is at times told as taken when it is
not ("release unlocked lock"). So what fails runs once more, alone, and counts if it fails again.
"""

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[1]
WITHOUT_SERVERS = (
    "not slow_end and not prometheus and not slurm and not kubernetes and not postgres"
    " and not browser and not slow"
)
WITH_SERVERS = "not slow_end and not prometheus and not kubernetes and not postgres and not browser"
SOME_FAILED = 1
AGAIN = ("--last-failed", "--last-failed-no-failures=none", "-n0")
# While it leaves the monotonic clock alone, libfaketime 0.9.10 refuses (EINVAL) each sleep until a
# time on that clock, which is how Python sleeps. This function stands before its own.
SLEEP = """
#define _GNU_SOURCE
#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_nanosleep(clockid_t id, int flags, const struct timespec *end, struct timespec *rest) {
    return syscall(SYS_clock_nanosleep, id, flags, end, rest) ? errno : 0;
}
"""


@dataclass(frozen=True, slots=True)
class Time:
    """A time (ISO 8601) at which a run begins, and the time zone of the machine."""

    at: str
    zone: str = "UTC"
    tests: str = WITHOUT_SERVERS

    def seconds_ahead(self) -> float:
        """Return how far it is ahead of the clock of now, in s."""
        return (datetime.fromisoformat(self.at) - datetime.now(tz=UTC)).total_seconds()


TIMES = {
    "weekday-noon": Time("2027-01-13T12:00Z", tests=WITH_SERVERS),
    "saturday-evening": Time("2027-01-16T19:05Z"),
    "sunday-night": Time("2027-01-17T03:00Z"),
    "end-of-month": Time("2027-04-30T23:50Z"),
    "end-of-year": Time("2027-12-31T23:55Z", tests=WITH_SERVERS),
    "29-february": Time("2028-02-29T13:00Z"),
    "summer-time-begins": Time("2027-03-28T01:50+01:00", "Europe/Berlin"),
    "summer-time-ends": Time("2027-10-31T02:50+02:00", "Europe/Berlin"),
}


def sleep_library(folder: Path) -> Path:
    """Return the compiled `SLEEP`, made in a folder."""
    source, library = folder / "sleep.c", folder / "sleep.so"
    source.write_text(SLEEP, encoding="utf-8")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    return library


def faketime_library() -> Path:
    """Return the library of Debian's package; exit (1) with what to install where it is missing."""
    for path in Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"):
        return path
    sys.exit("other_times: libfaketime is missing. On Debian, as root: apt-get install faketime")


def run_at(time: Time, libraries: list[Path], options: list[str]) -> int:
    """Return the exit code of the tests at a time."""
    environ = os.environ | {
        "TZ": time.zone,
        "LD_PRELOAD": ":".join(map(str, libraries)),
        "FAKETIME": f"{time.seconds_ahead():+.0f}s",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }
    words = [sys.executable, "-m", "pytest", "-q", "--dist", "loadfile", "--no-loadscope-reorder"]
    words += ["-m", time.tests, *options]
    code = subprocess.run(words, cwd=ROOT, env=environ).returncode
    if code == SOME_FAILED:
        code = subprocess.run([*words, *AGAIN], cwd=ROOT, env=environ).returncode
    return code


def main(words: list[str]) -> int:
    """Run the tests at the times that are named, or at all; what follows `--` goes to pytest."""
    end = words.index("--") if "--" in words else len(words)
    names, options = words[:end] or list(TIMES), words[end + 1 :]
    if unknown := [name for name in names if name not in TIMES]:
        sys.exit(f"other_times: no time is named {', '.join(unknown)}. Use {', '.join(TIMES)}.")
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        libraries = [sleep_library(Path(folder)), faketime_library()]
        for name in names:
            say(f"tests with the clock at {name}: {TIMES[name].at}, {TIMES[name].zone}")
            if run_at(TIMES[name], libraries, options):
                failures.append(name)
    say(f"tests at {len(names)} times; failed at: {', '.join(failures) or 'none'}")
    return 1 if failures else 0


def say(text: str) -> None:
    """Write a line before what pytest writes next."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
