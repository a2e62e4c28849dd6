"""Give suspended jobs of a cluster the size that Trimtab answers, where their owners consent.

TRIMTAB_TOKEN=… KUBERNETES_TOKEN=… python3 size_jobs.py https://trimtab.example:8501 \
    https://kubernetes.default.svc --certificate /var/run/secrets/…/ca.crt

One pass over the suspended Jobs, JobSets and TrainJobs with the annotation `trimtab/size: apply`;
it needs the rights list and patch. A job is patched once, as it was read, and while it is
suspended: the patch tests both. Without an answer in time, or when the server refuses, it stays
as it is. It is resumed by whoever resumes jobs here, such as Kueue.
"""

import argparse
import json
import os
import ssl
import sys
import urllib.error
import urllib.request

LISTS = (
    "batch/v1/jobs",
    "jobset.x-k8s.io/v1alpha2/jobsets",
    "trainer.kubeflow.org/v1alpha1/trainjobs",
)
SECONDS = 2


def ask(method: str, url: str, token: str, *, body: object = None, **options: object) -> dict:
    """Return the answer. Errors: OSError, ValueError."""
    kind = "application/json-patch+json" if method == "PATCH" else "application/json"
    request = urllib.request.Request(  # noqa: S310 - the addresses are the caller's own
        url,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {token}", "Content-Type": kind},
        method=method,
    )
    with urllib.request.urlopen(request, timeout=SECONDS, **options) as answer:  # noqa: S310
        return json.load(answer)


def consents(job: dict) -> bool:
    """Return whether a job waits for its size, by its owner's word."""
    annotations = job["metadata"].get("annotations") or {}
    return annotations.get("trimtab/size") == "apply" and job["spec"].get("suspend") is True


def main() -> int:
    """Make one pass; 1 where a job stays as it is for an error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trimtab")
    parser.add_argument("kubernetes")
    parser.add_argument("--certificate")
    options = parser.parse_args()
    ours, theirs = os.environ["TRIMTAB_TOKEN"], os.environ["KUBERNETES_TOKEN"]
    context = ssl.create_default_context(cafile=options.certificate)
    status = 0
    for name in LISTS:
        group, plural = name.rsplit("/", 1)
        server = f"{options.kubernetes.rstrip('/')}/apis/{group}"
        try:
            document = ask("GET", f"{server}/{plural}", theirs, context=context)
        except urllib.error.HTTPError:  # a cluster without this kind
            continue
        kind = document["kind"].removesuffix("List")
        for job in filter(consents, document["items"]):
            place = f"{job['metadata']['namespace']}/{plural}/{job['metadata']['name']}"
            try:
                url = f"{options.trimtab.rstrip('/')}/api/v1/size"
                size = ask("POST", url, ours, body={**job, "kind": kind})
                if size["patch"]:
                    url = f"{server}/namespaces/{place}"
                    ask("PATCH", url, theirs, body=size["patch"], context=context)
                said = f"{size['gpus']} x {size['gpu']} {size['unchanged']}"
            except (OSError, ValueError, KeyError) as error:
                said, status = f"stays as it is: {error}", 1
            sys.stdout.write(f"{place}: {said}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
