"""Builds what a release holds, and its notes.

    python deploy/release.py build [--tag v1.2.3] [--repository IMAGE]
    python deploy/release.py notes v1.2.3

`build` fills dist/release: source, a wheel made from that source, the Helm chart, the bill of
materials of what the image installs, and SHA256SUMS. It refuses (exit 1) versions that differ
between pyproject.toml, chart, changelog and tag. `notes` prints the tag's part of CHANGELOG.md.
"""

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "deploy/helm/trimtab"
OUTPUT = ROOT / "dist/release"
UNRELEASED = "(not released yet)"


def version(tag: str = "") -> str:
    """Return the version that all files state. Exits (1) where one differs, by its name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = str(project["version"])
    chart = (CHART / "Chart.yaml").read_text(encoding="utf-8")
    versions = {
        f"Chart.yaml, {key}": re.findall(rf"^{key}: (\S+)$", chart, re.MULTILINE)
        for key in ("version", "appVersion")
    }
    heads = re.findall(r"^## (\S+)", changelog(), re.MULTILINE)
    versions["CHANGELOG.md, first heading"] = heads[:1]
    if tag:
        versions["the tag"] = [tag.removeprefix("v") if tag.startswith("v") else f"{tag}, no v"]
    for place, values in versions.items():
        if values != [wanted]:
            sys.exit(
                f"release: pyproject.toml has {wanted}, {place} has {', '.join(values) or '-'}"
            )
    if tag and f"## {wanted} {UNRELEASED}" in changelog():
        sys.exit(f"release: CHANGELOG.md still says of {wanted}: {UNRELEASED}. Give it its date.")
    return wanted


def changelog() -> str:
    """Return the text of CHANGELOG.md."""
    return (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def notes(tag: str) -> str:
    """Return the part of the changelog that a tag is of. Exits (1) where there is none."""
    wanted = tag.removeprefix("v")
    for part in re.split(r"^## ", changelog(), flags=re.MULTILINE)[1:]:
        head, _, text = part.partition("\n")
        if head.split()[0] == wanted:
            return text.strip() + "\n"
    return sys.exit(f"release: CHANGELOG.md has no heading of {wanted}")


def build(tag: str, repository: str) -> None:
    """Fill dist/release. Errors: exit code 1 of the program that failed, after its own words."""
    number = version(tag)
    shutil.rmtree(OUTPUT, ignore_errors=True)
    OUTPUT.mkdir(parents=True)
    programs = Path(sys.executable).parent
    # The wheel is made from the source that is shipped, by a build backend checked by hash.
    run(programs / "uv", "build", "--quiet", "--require-hashes", "--build-constraints",
        ROOT / "requirements.lock", "--out-dir", OUTPUT)  # fmt: skip
    (OUTPUT / ".gitignore").unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        chart = shutil.copytree(CHART, Path(folder) / "trimtab")
        if repository:
            values = chart / "values.yaml"
            text = values.read_text(encoding="utf-8")
            values.write_text(
                text.replace("  repository: trimtab\n", f"  repository: {repository}\n", 1),
                encoding="utf-8",
            )
        run(programs / "helm", "package", chart, "--destination", folder)
        shutil.move(Path(folder) / f"trimtab-{number}.tgz", OUTPUT / f"trimtab-chart-{number}.tgz")
    bill = run(sys.executable, ROOT / "deploy/sbom.py", "deploy/requirements.lock")
    (OUTPUT / f"trimtab-{number}.cdx.json").write_bytes(bill)
    sums = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(OUTPUT.iterdir())
    ]
    (OUTPUT / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
    sys.stdout.write("".join(sums))


def run(*words: str | Path) -> bytes:
    """Return what a program writes. Exits (1) where it fails; its errors are on stderr."""
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE)  # noqa: S603 - fixed programs
    if done.returncode:
        sys.exit(f"release: {Path(words[0]).name} failed with exit code {done.returncode}")
    return done.stdout


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    builder = commands.add_parser("build", help="fill dist/release")
    builder.add_argument("--tag", default="", help="the tag that is released, such as v1.2.3")
    builder.add_argument("--repository", default="", help="the image that the chart runs")
    noter = commands.add_parser("notes", help="print the notes of a release")
    noter.add_argument("tag")
    arguments = parser.parse_args()
    if arguments.command == "build":
        build(arguments.tag, arguments.repository)
    else:
        sys.stdout.write(notes(arguments.tag))


if __name__ == "__main__":
    main()
