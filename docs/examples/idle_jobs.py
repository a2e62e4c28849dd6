"""Print the jobs that Trimtab attests to be idle, a line each; none where anything is in doubt.

TRIMTAB_TOKEN=… python3 idle_jobs.py https://trimtab.example:8501 --minutes 240

The answer must carry the signature that only a holder of the token can make, and be about now. On
any other answer nothing is printed on stdout, the reason stands on stderr, and the status is 1.
"""

import argparse
import hashlib
import hmac
import json
import os
import sys
import urllib.request
from datetime import UTC, datetime, timedelta

MAX_AGE = timedelta(minutes=45)
MAX_BYTES = 64 * 2**20


def rows(url: str, token: str) -> list[dict]:
    """Return every row of /api/v1/idle-jobs. Errors: OSError, ValueError."""
    path, matches = "/api/v1/idle-jobs?limit=1000", []
    for _page in range(1000):
        request = urllib.request.Request(  # noqa: S310 - the address is the caller's own
            url.rstrip("/") + path, headers={"Authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            body, stated = answer.read(MAX_BYTES), answer.headers.get("Trimtab-Signature", "")
        code = hmac.new(token.encode(), f"{path}\n".encode() + body, hashlib.sha256)
        if not hmac.compare_digest(stated, f"sha256={code.hexdigest()}"):
            raise ValueError("the answer is not signed with this token")
        page = json.loads(body)
        matches += page["items"]
        if not page.get("next"):
            return matches
        path = f"/api/v1/idle-jobs?limit=1000&cursor={page['next']}"
    raise ValueError("the answer never ends")


def main() -> int:
    """Print the ids of jobs that are idle for long enough."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--minutes", type=float, default=240.0)
    options = parser.parse_args()
    now = datetime.now(UTC)
    try:
        told = rows(options.url, os.environ["TRIMTAB_TOKEN"])
        names = [
            row["job_id"]
            for row in told
            if row["state"] == "idle"
            and row["idle_minutes"] >= options.minutes
            and now - datetime.fromisoformat(row["read_until"]) < MAX_AGE
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.stderr.write(f"idle_jobs: {error}\n")
        return 1
    sys.stdout.writelines(f"{name}\n" for name in names)
    return 0


if __name__ == "__main__":
    sys.exit(main())
