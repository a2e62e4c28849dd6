"""Print the score and each budget that is likely exceeded; exit with 1 where there is one.

TRIMTAB_TOKEN=… python3 bill.py https://trimtab.example:8501 --chance 0.5
"""

import argparse
import json
import os
import sys
import urllib.request


def ask(url: str, path: str) -> dict:
    """Return an object of the API. Errors: OSError, ValueError."""
    request = urllib.request.Request(  # noqa: S310 - the address is the caller's own
        f"{url.rstrip('/')}/api/v1/{path}",
        headers={"Authorization": f"Bearer {os.environ['TRIMTAB_TOKEN']}"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
        return json.load(answer)


def main() -> int:
    """Print both; null is unknown, and no reason to fail."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--chance", type=float, default=0.5)
    options = parser.parse_args()
    share = ask(options.url, "score")["share"]
    sys.stdout.write(f"at work: {'unknown' if share is None else round(share['central'])} %\n")
    rows = ask(options.url, "statement?budgets=true")["budgets"]
    likely = [row for row in rows if (row["over_chance"] or 0.0) >= options.chance]
    sys.stdout.writelines(
        f"{row['tenant']}: {row['over_chance']:.0%}, spent by {row['spent_at'] or 'nobody knows'}\n"
        for row in likely
    )
    return 1 if likely else 0


if __name__ == "__main__":
    sys.exit(main())
