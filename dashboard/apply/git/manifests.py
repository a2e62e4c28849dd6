"""Finds an object in YAML and changes numbers of it; every other character stays as it is.

PyYAML tells where a scalar begins and ends, and only those characters are replaced: a file that is
loaded and written anew loses line ends, folds and indents that its owners chose. What could mean
something else than it says (an alias, a merge key, a tag, a template, a key that is there twice) is
refused. Pure; aliases are never expanded, so that no text grows in memory.
"""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from dashboard.apply.kubernetes.state.json_patch import names_of
from dashboard.apply.kubernetes.state.object_paths import GROUP_OF, Place
from data.base.errors import ChangeRefusedError, scrub

MAX_BYTES = 256 * 1024
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""That of libyaml where PyYAML has it: ten times as fast, and at the same places."""
_BYTE_ORDER_MARK = "\ufeff"
_MAX_EVENTS, _MAX_DEPTH = 100_000, 60
_NUMBER = re.compile(r"""(["']?)(0|[1-9][0-9]{0,8})\1""")
_ANCHOR = re.compile(r"&([^\s,\[\]{}]+)")
_ON_ONE_LINE = frozenset({"resources", "limits", "requests"})
"""Fields that may be in flow style, where they hold quantities alone."""
_QUANTITY = re.compile(r"[0-9.]{1,15}[A-Za-z]{0,2}", re.ASCII)
_BY_HAND = "Change it in the repository by hand."


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedElement:
    """The element of a list whose `field` has this value: files order their lists as they like."""

    field: str
    value: str


Parts = tuple[str | NamedElement, ...]
"""Where something is, from the top of a document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberEdit:
    """A number that changes, as text. `required` is False for what a server fills in by itself."""

    at: Parts
    before: str
    after: str
    required: bool = True

    @property
    def words(self) -> str:
        """The place as people read it."""
        names = (part if isinstance(part, str) else part.value for part in self.at)
        return scrub(".".join(names), limit=120)


def number_edits(
    document: Mapping[str, Any], edits: Mapping[str, tuple[Any, Any]]
) -> tuple[NumberEdit, ...]:
    """Return edits of a live object as edits of its manifest. Errors: ChangeRefusedError.

    A server fills in requests that equal the limits, which a manifest may leave out.
    """
    number_changes = []
    for pointer, (before, after) in edits.items():
        if not (_is_number(before) and _is_number(after)):
            raise ChangeRefusedError(
                f"{pointer} would go from {before} to {after}, and a file changes by numbers alone",
                _BY_HAND,
            )
        filled_in = "/resources/requests/" in pointer
        limits = pointer.replace("/resources/requests/", "/resources/limits/")
        number_changes.append(
            NumberEdit(
                at=tuple(_parts(document, names_of(pointer))),
                before=str(before),
                after=str(after),
                required=not (filled_in and limits in edits),
            )
        )
    return tuple(number_changes)


def _is_number(value: object) -> bool:
    text = value if isinstance(value, str) else str(value) if type(value) is int else ""
    return _NUMBER.fullmatch(text) is not None


def _parts(document: Any, names: Sequence[str]) -> Iterator[str | NamedElement]:
    for name in names:
        if isinstance(document, list):
            document = document[int(name)]
            field = next((key for key in ("name", "groupName") if key in document), "")
            if not field:
                raise ChangeRefusedError("a list of it has elements without a name", _BY_HAND)
            yield NamedElement(field=field, value=str(document[field]))
        else:
            document = document.get(name) if isinstance(document, Mapping) else None
            yield name


def edited(text: str, place: Place, edits: Sequence[NumberEdit]) -> str | None:
    """Return the text with the edits made, None where it holds none of their fields.

    Errors: ChangeRefusedError where it holds them in a way that cannot be changed safely.
    """
    manifest = ManifestText(text)
    matches = [spans for node in manifest.objects(place) if (spans := manifest.spans(node, edits))]
    if not matches:
        return None
    if len(matches) > 1:
        raise ChangeRefusedError(f"it appears {len(matches)} times in one file", _BY_HAND)
    return manifest.changed(matches[0])


def line_difference(path: str, before: str, after: str) -> str:
    """Return the changed lines as a unified difference, without the lines around them.

    A password may stand beside the number in a manifest, and who sees a finding need not see that.
    """
    label = path.encode("unicode_escape").decode("ascii")
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), f"a/{label}", f"b/{label}", n=0, lineterm=""
    )
    return "\n".join(lines) + "\n"


class ManifestText:
    """A parsed text, and where its scalars are."""

    def __init__(self, text: str) -> None:
        # libyaml does not count it.
        self._text = text.removeprefix(_BYTE_ORDER_MARK)
        self._before = text[: len(text) - len(self._text)]
        if len(text.encode()) > MAX_BYTES:
            raise ChangeRefusedError(f"the file is larger than {MAX_BYTES // 1024} kB", _BY_HAND)
        try:
            self._aliased = _aliased(self._text)
            self._documents = [*yaml.compose_all(self._text, Loader=_LOADER)]
        except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as error:
            # The words of the parser quote the line, where a password may stand.
            mark = getattr(error, "problem_mark", None)
            where = f"{type(error).__name__}{f', line {mark.line + 1}' if mark else ''}"
            raise ChangeRefusedError(
                f"the file is not valid YAML ({where})",
                f"A template is not changed; tabs do not indent. {_BY_HAND}",
            ) from error

    def changed(self, spans: Mapping[tuple[int, int], str]) -> str:
        """Return the text with the characters at these places changed."""
        text = self._text
        for (start, end), after in sorted(spans.items(), reverse=True):
            text = text[:start] + after + text[end:]
        return f"{self._before}{text}"

    def documents(self) -> Iterator[yaml.MappingNode]:
        """Yield the documents that are mappings."""
        for document in self._documents:
            if isinstance(document, yaml.MappingNode):
                yield document

    def objects(self, place: Place) -> Iterator[yaml.MappingNode]:
        """Yield the objects of the file that are, or patch, the one at a place."""
        for document in self.documents():
            for node in self._with_items(document):
                if isinstance(node, yaml.MappingNode) and self._is(node, place):
                    yield node

    def _with_items(self, document: yaml.MappingNode) -> Iterator[yaml.Node]:
        yield document
        items = self.child(document, "items")
        if isinstance(items, yaml.SequenceNode) and self.word(document, "kind").endswith("List"):
            yield from items.value

    def _is(self, node: yaml.MappingNode, place: Place) -> bool:
        group, slash, _version = self.word(node, "apiVersion").partition("/")
        about = self.child(node, "metadata")
        return (
            self.word(node, "kind") == place.kind
            and (group if slash else "") == GROUP_OF[place.kind]
            and self.word(about, "name") == place.name
            # Argo CD, Flux and kustomize fill in a namespace that is left out.
            and self.word(about, "namespace") in ("", place.namespace)
        )

    def word(self, node: yaml.Node | None, name: str) -> str:
        """Return the scalar below a key, '' without one. Errors: as `child`."""
        value = self.child(node, name)
        return str(value.value) if isinstance(value, yaml.ScalarNode) else ""

    def spans(
        self, node: yaml.Node, edits: Sequence[NumberEdit], above: Sequence[yaml.Node] = ()
    ) -> dict[tuple[int, int], str]:
        """Return the new text by span of characters, {} where the object has none of the fields.

        `above` are the nodes that the object is in.

        Errors: ChangeRefusedError where it has only some of them, or holds other values.
        """
        scalars = {edit: self._at(node, edit, above) for edit in edits}
        there = {edit: scalar for edit, scalar in scalars.items() if scalar is not None}
        missing = [edit.words for edit in edits if edit.required and edit not in there]
        if there and missing:
            raise ChangeRefusedError(f"it says {', '.join(missing)} in another place", _BY_HAND)
        return {} if missing else dict(self._span(*entry) for entry in there.items())

    def _span(self, edit: NumberEdit, scalar: yaml.Node) -> tuple[tuple[int, int], str]:
        start, end = scalar.start_mark.index, scalar.end_mark.index
        raw = self._text[start:end]
        number = _NUMBER.fullmatch(raw)
        if number is None:
            raise ChangeRefusedError(
                f"{edit.words} is {scrub(raw)!r}, not a plain number", _BY_HAND
            )
        if number[2] != edit.before:
            raise ChangeRefusedError(
                f"{edit.words} is {number[2]} in the file and {edit.before} in the cluster",
                "Something else sets it, or a change of the file is on its way: they must agree.",
            )
        return (start, end), f"{number[1]}{edit.after}{number[1]}"

    def _at(
        self, node: yaml.Node, edit: NumberEdit, above: Sequence[yaml.Node]
    ) -> yaml.Node | None:
        nodes = [node]
        for part in edit.at:
            below = self.below(nodes[-1], part)
            if below is None:
                return None
            nodes.append(below)
        parts = (*("" for _node in above), "", *edit.at)
        for passed, part in zip((*above, *nodes), parts, strict=True):
            self._refuse_what_hides(passed, edit)
            flows = passed is not nodes[-1] and getattr(passed, "flow_style", False)
            if flows and not (part in _ON_ONE_LINE and _is_of_quantities(passed)):
                raise ChangeRefusedError(
                    f"{edit.words} is on one line with other fields, which a preview would show",
                    "Write the object in block style instead of JSON or flow style.",
                )
        return nodes[-1]

    def _refuse_what_hides(self, node: yaml.Node, edit: NumberEdit) -> None:
        """Refuse a tag, and what an alias names: it is read as the node, which begins with &."""
        start = node.start_mark.index
        anchor = _ANCHOR.match(self._text, start)
        if anchor and anchor[1] in self._aliased:
            raise ChangeRefusedError(
                f"{edit.words} is shared by an anchor: other places would change with it", _BY_HAND
            )
        if self._text.startswith("!", start):
            raise ChangeRefusedError(f"{edit.words} has a tag", _BY_HAND)

    def below(self, node: yaml.Node | None, part: str | NamedElement) -> yaml.Node | None:
        """Return the node below a part of a place, None for a missing part.

        Errors: ChangeRefusedError where it is there twice or may come from a merge key.
        """
        if isinstance(part, str):
            return self.child(node, part, merged=True)
        if not isinstance(node, yaml.SequenceNode):
            return None
        matches = [entry for entry in node.value if self.word(entry, part.field) == part.value]
        if len(matches) > 1:
            raise ChangeRefusedError(f"{part.value} appears twice in a list", _BY_HAND)
        return matches[0] if matches else None

    def child(self, node: yaml.Node | None, name: str, *, merged: bool = False) -> yaml.Node | None:
        """Return the value of a key, None without it. Errors: ChangeRefusedError for two of it."""
        if not isinstance(node, yaml.MappingNode):
            return None
        keys = [(key.value, value) for key, value in node.value if isinstance(key, yaml.ScalarNode)]
        values = [value for key, value in keys if key == name]
        if len(values) > 1:
            raise ChangeRefusedError(f"the key {name} appears twice", _BY_HAND)
        if merged and not values and any(key == "<<" for key, _value in keys):
            raise ChangeRefusedError(f"{name} may come from a merge key (<<)", _BY_HAND)
        return values[0] if values else None


def _is_of_quantities(node: yaml.Node, depth: int = 2) -> bool:
    """Tell whether a node in flow style holds quantities alone, as limits and requests do."""
    if isinstance(node, yaml.ScalarNode):
        return _QUANTITY.fullmatch(str(node.value)) is not None
    inside = node.value if isinstance(node, yaml.MappingNode) else [(None, None)]
    return depth >= 0 and all(
        value is not None and _is_of_quantities(value, depth - 1) for _key, value in inside
    )


def _aliased(text: str) -> frozenset[str]:
    """Return the anchors that are used elsewhere. Errors: YAMLError, also for too much or deep."""
    anchors, depth = set(), 0
    for count, event in enumerate(yaml.parse(text, Loader=_LOADER)):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if count > _MAX_EVENTS or depth > _MAX_DEPTH:
            raise yaml.YAMLError("too large or too deep")
        if isinstance(event, yaml.AliasEvent):
            anchors.add(str(event.anchor))
    return frozenset(anchors)
