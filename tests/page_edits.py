"""The edits that docs/extending.md tells whoever adds something, made in a copy."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "extending.md"


def follow(section: str, copy: Path) -> list[str]:
    """Do in a copy of the product what a section of the page says; return the files it names."""
    text = PAGE.read_text(encoding="utf-8").split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    blocks = re.findall(r"^```(python|diff)\n# (\S+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
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
