"""JSON pointers (RFC 6901) into objects, and patches (RFC 6902) of them.

An object is known by an excerpt: (pointer, JSON text) of every leaf that a change depends on. The
excerpt is what an approval is bound to, and objects that are read again are compared with it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

Operation = dict[str, Any]
"""One operation of a JSON patch: op, path, and value where it has one."""

ABSENT = "absent"
"""How people are told that a field is not there; the text JSON never gives, having no quotes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A field that changes; None is a field that is not there. `what` names it for people."""

    at: str
    before: Any
    after: Any
    what: str

    def reversed(self) -> "Edit":
        """Return the edit back."""
        return Edit(at=self.at, before=self.after, after=self.before, what=self.what)


def pointer(*names: str | int) -> str:
    """Return the pointer of names one inside the other."""
    return "".join("/" + str(name).replace("~", "~0").replace("/", "~1") for name in names)


def names_of(at: str) -> list[str]:
    """Return the names of a pointer."""
    return [entry.replace("~1", "/").replace("~0", "~") for entry in at.split("/")[1:]]


def value_at(document: Any, at: str) -> Any:
    """Return the value at a pointer, None where nothing is."""
    for name in names_of(at):
        if isinstance(document, Mapping):
            document = document.get(name)
        elif isinstance(document, list) and name.isdecimal() and int(name) < len(document):
            document = document[int(name)]
        else:
            return None
    return document


def as_text(value: Any) -> str:
    """Return a value as canonical JSON; `ABSENT` for None."""
    return ABSENT if value is None else json.dumps(value, sort_keys=True, separators=(",", ":"))


def leaves(document: Any, at: str = "") -> Iterator[tuple[str, str]]:
    """Yield (pointer, JSON text) of every leaf; an empty list or mapping is one."""
    if isinstance(document, Mapping) and document:
        for name in sorted(document):
            yield from leaves(document[name], at + pointer(name))
    elif isinstance(document, list) and document:
        for index, entry in enumerate(document):
            yield from leaves(entry, at + pointer(index))
    else:
        yield at, as_text(document)


def document_of(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return the object that has these leaves: what `leaves` gave, put together again."""
    tree: dict[str, Any] = {}
    for at, text in pairs:
        *above, last = names_of(at)
        inside = tree
        for name in above:
            inside = inside.setdefault(name, {})
        inside[last] = _Leaf(None if text == ABSENT else json.loads(text))
    document: dict[str, Any] = _with_lists(tree)
    return document


@dataclass(frozen=True, slots=True)
class _Leaf:
    value: Any


def _with_lists(tree: Any) -> Any:
    """Turn mappings whose names are 0, 1, 2 … into lists: no field of Kubernetes is a number."""
    if isinstance(tree, _Leaf):
        return tree.value
    if tree and all(name == str(index) for index, name in enumerate(tree)):
        return [_with_lists(entry) for entry in tree.values()]
    return {name: _with_lists(entry) for name, entry in tree.items()}


def operations_of(edits: Iterable[Edit]) -> list[Operation]:
    """Return the patch that makes the edits, each after a test that the field is as it was.

    That a field is absent no test can say; the resourceVersion that is sent with a patch does.
    """
    several = list(edits)
    tests = [
        {"op": "test", "path": edit.at, "value": edit.before}
        for edit in several
        if edit.before is not None
    ]
    return tests + [_change(edit) for edit in several]


def _change(edit: Edit) -> Operation:
    if edit.after is None:
        return {"op": "remove", "path": edit.at}
    op = "add" if edit.before is None else "replace"
    return {"op": op, "path": edit.at, "value": edit.after}


def edits_of(operations: Iterable[Operation]) -> dict[str, tuple[Any, Any]]:
    """Return (before, after) by pointer of what a patch of `operations_of` changes."""
    tested: dict[str, Any] = {}
    edits: dict[str, tuple[Any, Any]] = {}
    for operation in operations:
        if operation["op"] == "test":
            tested[operation["path"]] = operation["value"]
        else:
            edits[operation["path"]] = (tested.get(operation["path"]), operation.get("value"))
    return edits


def patched(document: Any, operations: Iterable[Operation]) -> Any:
    """Return the object after add, replace and remove of a patch; tests are not repeated here."""
    result = deepcopy(document)
    for operation in operations:
        *above, last = names_of(operation["path"])
        inside = value_at(result, pointer(*above)) if above else result
        if operation["op"] == "test" or inside is None:
            continue
        key: Any = int(last) if isinstance(inside, list) else last
        if operation["op"] == "remove":
            inside.pop(key, None) if isinstance(inside, dict) else inside.pop(key)
        else:
            inside[key] = operation["value"]
    return result
