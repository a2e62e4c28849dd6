"""Documents that tell whoever adds something what to edit: their edits, made in a copy."""

import re
from pathlib import Path


def follow(page: Path, copy: Path) -> list[str]:
    """Do in a copy of the product what a page says; return the files that it names."""
    blocks = re.findall(
        r"^```(python|diff)\n# (\S+)\n(.*?)^```",
        page.read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    for kind, path, body in blocks:
        target = copy / path
        if kind == "python":
            assert not target.exists()
            target.write_text(body, encoding="utf-8")
            continue
        lines = body.splitlines()
        before = "\n".join(line[1:] for line in lines if not line.startswith("+"))
        after = "\n".join(line[1:] for line in lines)
        text = target.read_text(encoding="utf-8")
        assert text.count(before) == 1, before
        target.write_text(text.replace(before, after), encoding="utf-8")
    return [path for _kind, path, _body in blocks]
