"""A corpus of layouts as people keep them: one number changes, and not one character beside it."""

import time
from contextlib import suppress
from dataclasses import dataclass

import pytest

from dashboard.apply.git.manifests import (
    MAX_BYTES,
    NamedElement,
    NumberEdit,
    edited,
    line_difference,
    number_edits,
)
from dashboard.apply.kubernetes.state.object_paths import Place
from data.base.errors import ChangeRefusedError

PLACE = Place(kind="Deployment", namespace="ml", name="serve")
GPU = "nvidia.com/gpu"
REPLICAS = (NumberEdit(at=("spec", "replicas"), before="4", after="2"),)
CONTAINER = ("spec", "template", "spec", "containers", NamedElement(field="name", value="main"))
EACH = (
    NumberEdit(at=(*CONTAINER, "resources", "limits", GPU), before="4", after="2"),
    NumberEdit(at=(*CONTAINER, "resources", "requests", GPU), before="4", after="2",
               required=False),
)  # fmt: skip
HEAD = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: serve
  namespace: ml
spec:
"""
OTHER = HEAD.replace("name: serve", "name: other")
FLOW = (
    '{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "serve"}, '
    '"spec": {"minReadySeconds": 4, "replicas": 4}}'
)
DEEP = " " * 24 + "nvidia.com/gpu: "
POD = """\
  template:
    spec:
      containers:
      - name: proxy
        image: example/proxy:1
      - name: main   # the one with GPUs
        resources:
          limits:
            nvidia.com/gpu: 4
"""


@dataclass(frozen=True)
class Layout:
    """A file, the edits, and (old line, new line) of each line that has to change."""

    text: str
    lines: tuple[tuple[str, str], ...]
    edits: tuple[NumberEdit, ...] = REPLICAS


LAYOUTS = {
    "plain": Layout(f"{HEAD}  replicas: 4\n", (("  replicas: 4", "  replicas: 2"),)),
    "comment behind and odd blanks": Layout(
        f"# 4 of them\n\n{HEAD}  replicas:   4    # was 4, see 4\n  paused: false\n",
        (("  replicas:   4    # was 4, see 4", "  replicas:   2    # was 4, see 4"),),
    ),
    "a byte order mark, line ends of Windows and letters of four bytes": Layout(
        "\ufeff" + f"# \U0001f600\n{HEAD}  replicas: 4\n".replace("\n", "\r\n"),
        (("  replicas: 4", "  replicas: 2"),),
    ),
    "several documents": Layout(
        "---\n# first\napiVersion: v1\nkind: Service\nmetadata: {name: serve, namespace: ml}\n"
        f"---\n{HEAD}  replicas: 4\n---\n{OTHER}  replicas: 4\n...\n",
        (("  replicas: 4", "  replicas: 2"),),
    ),
    "limits alone": Layout(
        HEAD + POD, (("            nvidia.com/gpu: 4", "            nvidia.com/gpu: 2"),), EACH
    ),
    "limits and requests, quoted in two ways": Layout(
        HEAD
        + POD.replace("gpu: 4", 'gpu: "4"')
        + "          requests:\n            'nvidia.com/gpu': '4'\n            cpu: '4'\n",
        (
            ('            nvidia.com/gpu: "4"', '            nvidia.com/gpu: "2"'),
            ("            'nvidia.com/gpu': '4'", "            'nvidia.com/gpu': '2'"),
        ),
        EACH,
    ),
    "containers in another order, with an init container of the same number": Layout(
        HEAD
        + "  template:\n    spec:\n      initContainers:\n      - name: warm\n"
        "        resources: {limits: {nvidia.com/gpu: 4}}\n      containers:\n"
        "      - resources:\n          limits: {cpu: 4, nvidia.com/gpu: 4} # four\n"
        "        name: main\n      - name: proxy\n",
        (
            (
                "          limits: {cpu: 4, nvidia.com/gpu: 4} # four",
                "          limits: {cpu: 4, nvidia.com/gpu: 2} # four",
            ),
        ),
        EACH,
    ),
    "line ends of Windows": Layout(
        f"{HEAD}  replicas: 4\n  paused: false\n".replace("\n", "\r\n"),
        (("  replicas: 4", "  replicas: 2"),),
    ),
    "no line end at the end, and a mark at the start": Layout(
        f"\ufeff{HEAD}  replicas: 4", (("  replicas: 4", "  replicas: 2"),)
    ),
    "letters of two bytes and of four before the number": Layout(
        f"# größer: 🚀🚀 {{4}}\n{HEAD}  replicas: 4\n", (("  replicas: 4", "  replicas: 2"),)
    ),
    "kustomize patch without a namespace": Layout(
        "kind: Deployment\napiVersion: apps/v1\nmetadata:\n    name: serve\n"
        "spec:\n    replicas: 4\n",
        (("    replicas: 4", "    replicas: 2"),),
    ),
    "a list of objects": Layout(
        "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n"
        "  metadata: {name: serve, namespace: ml}\n- apiVersion: apps/v1\n  kind: Deployment\n"
        "  metadata: {name: serve, namespace: ml}\n  spec:\n    replicas: 4\n",
        (("    replicas: 4", "    replicas: 2"),),
    ),
    "an anchor elsewhere, a folded text and a literal with the same words": Layout(
        HEAD
        + "  replicas: 4\n  template:\n    metadata:\n      labels: &labels {app: serve}\n"
        "      annotations:\n        note: >-\n          replicas: 4\n          and more\n"
        "        literal: |\n          spec:\n            replicas: 4\n"
        "  selector: {matchLabels: *labels}\n",
        (("  replicas: 4", "  replicas: 2"),),
    ),
    "an anchor that nothing uses": Layout(
        f"{HEAD}  replicas: 4\n".replace("spec:", "spec: &unused"),
        (("  replicas: 4", "  replicas: 2"),),
    ),
    "keys with question marks": Layout(
        f"{HEAD}  ? replicas\n  : 4\n", (("  : 4", "  : 2"),)
    ),
    "a merge key beside the field itself": Layout(
        "x: &base {paused: true}\n---\n"
        "y: &other {paused: true}\n"
        + HEAD
        + "  <<: {paused: true}\n  replicas: 4\n",
        (("  replicas: 4", "  replicas: 2"),),
    ),
    "long indents and blank lines with blanks": Layout(
        HEAD + POD.replace("      - name", "          -   name").replace(
            "        resources", "              resources"
        ).replace("          limits", "                limits").replace(
            "            nvidia", "                        nvidia"
        ).replace("        image", "              image") + "   \n\n",
        ((f"{DEEP}4", f"{DEEP}2"),),
        EACH,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_only_the_meant_lines_change(name: str) -> None:
    """Every line but the named ones is the same, byte by byte, line ends included."""
    layout = LAYOUTS[name]
    changed = edited(layout.text, PLACE, layout.edits)
    assert changed is not None
    before, after = layout.text.splitlines(keepends=True), changed.splitlines(keepends=True)
    assert len(before) == len(after)
    different = [
        (old.rstrip("\r\n"), new.rstrip("\r\n"))
        for old, new in zip(before, after, strict=True)
        if old != new
    ]
    assert tuple(different) == layout.lines
    assert edited(changed, PLACE, [edit_back(edit) for edit in layout.edits]) == layout.text


def edit_back(edit: NumberEdit) -> NumberEdit:
    """The edit the other way round."""
    return NumberEdit(at=edit.at, before=edit.after, after=edit.before, required=edit.required)


REFUSED = {
    "tabs": (f"{HEAD}\treplicas: 4\n", "not valid YAML"),
    "a Helm template": (
        f"{HEAD}  replicas: {{{{ .Values.n }}}}\n", "not valid YAML|not a plain number"),
    "another value": (f"{HEAD}  replicas: 8\n", "is 8 in the file and 4 in the cluster"),
    "octal": (f"{HEAD}  replicas: 04\n", "not a plain number"),
    "an anchored number": (
        f"{HEAD}  replicas: &n 4\n  minReadySeconds: *n\n", "shared by an anchor"),
    "a long anchor": (
        f"{HEAD}  replicas: &{'n' * 999} 4\n  x: *{'n' * 999}\n", "shared by an anchor"),
    "an alias": (f"x: &n 4\n{HEAD}  replicas: *n\n", "shared by an anchor"),
    "an anchor above": (
        f"{HEAD}  replicas: 4\nother: *s\n".replace("spec:", "spec: &s"), "shared by an anchor"),
    "the object itself as the base of another": (
        ("apiVersion: v1\nkind: List\nitems:\n- &o\n  apiVersion: apps/v1\n  kind: Deployment\n"
        "  metadata: {name: serve}\n  spec:\n    replicas: 4\n- <<: *o\n"
        "  metadata: {name: other}\n"), "shared by an anchor"),
    "one line": (f"{FLOW}\n", "on one line with other fields"),
    "a spec on one line": (
        f"{HEAD}  replicas: 4\n".replace("spec:\n  replicas: 4", "spec: {replicas: 4}"),
        "on one line with other fields"),
    "a merge key": (f"x: &b {{replicas: 4}}\n{HEAD}  <<: *b\n", "merge key"),
    "a tag": (f"{HEAD}  replicas: !!int 4\n", "has a tag"),
    "a tag that runs code": (f"{HEAD}  replicas: !!python/name:os.system 4\n", "has a tag"),
    "the key twice": (f"{HEAD}  replicas: 4\n  replicas: 4\n", "appears twice"),
    "the object twice": (f"{HEAD}  replicas: 4\n---\n{HEAD}  replicas: 4\n", "2 times"),
    "a block scalar": (f"{HEAD}  replicas: |\n    4\n", "not a plain number"),
    "an unknown alias": (f"{HEAD}  replicas: *nothing\n", "not valid YAML"),
    "too deep": (f"{HEAD}  replicas: 4\nx: {'[' * 80}{']' * 80}\n", "not valid YAML"),
    "too large": (f"{HEAD}  replicas: 4\n# {'x' * 300_000}\n", "larger than"),
    "a control character": (f"{HEAD}  replicas: 4\n# \x07\n", "not valid YAML"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_could_mean_something_else_is_refused(name: str) -> None:
    """The message says why, and quotes nothing of the file but the field itself."""
    text, why = REFUSED[name]
    with pytest.raises(ChangeRefusedError, match=why):
        edited(text, PLACE, REPLICAS)


def test_a_bomb_of_aliases_is_not_expanded() -> None:
    """A billion laughs beside the object are read as the few nodes that they are."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    text = "\n".join(lines) + f"\n---\n{HEAD}  replicas: 4\n"
    changed = edited(text, PLACE, REPLICAS)
    assert changed == text.replace("replicas: 4", "replicas: 2")


def test_the_words_of_the_parser_do_not_carry_a_password() -> None:
    """PyYAML quotes the line that it stumbles over."""
    with pytest.raises(ChangeRefusedError) as caught:
        edited(f"{HEAD}  password: 'hunter2\n  replicas: 4\n", PLACE, REPLICAS)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        f"{HEAD}  paused: true\n",
        f"{HEAD}  replicas: 4\n".replace("Deployment", "StatefulSet"),
        f"{HEAD}  replicas: 4\n".replace("namespace: ml", "namespace: other"),
        f"{HEAD}  replicas: 4\n".replace("apps/v1", "example.org/v1"),
        "[1, 2]\n",
        "",
    ],
)
def test_another_object_is_none(text: str) -> None:
    """Group, kind, namespace and name have to fit, and the field has to be there."""
    assert edited(text, PLACE, REPLICAS) is None


def test_a_part_of_the_fields_is_refused() -> None:
    """Pods and the GPUs of each, of which the file says one."""
    with pytest.raises(ChangeRefusedError, match="in another place"):
        edited(f"{HEAD}  replicas: 4\n", PLACE, (*REPLICAS, EACH[0]))


def test_edits_of_a_live_object_name_containers_and_leave_out_what_a_server_fills_in() -> None:
    """Numbers alone, and requests only where the manifest says them."""
    live = {"spec": {"template": {"spec": {"containers": [{"name": "proxy"}, {"name": "main"}]}}}}
    above = "/spec/template/spec/containers/1/resources"
    found = number_edits(
        live,
        {
            f"{above}/limits/nvidia.com~1gpu": ("4", "2"),
            f"{above}/requests/nvidia.com~1gpu": ("4", "2"),
        },
    )
    assert found == EACH
    with pytest.raises(ChangeRefusedError, match="numbers alone"):
        number_edits(live, {"/spec/suspend": (None, True)})


def test_the_difference_shows_changed_lines_alone() -> None:
    """No line beside them, where a password may stand, and no name that forges a line."""
    before = "password: x\nreplicas: 4\npassword: y\n"
    found = line_difference("a\nb.yaml", before, before.replace("4", "2"))
    assert found == (
        "--- a/a\\nb.yaml\n+++ b/a\\nb.yaml\n@@ -2 +2 @@\n-replicas: 4\n+replicas: 2\n"
    )


@pytest.mark.parametrize(
    "hostile",
    ["[a," + "b," * 130_000, "".join(f"k{number}: v\n" for number in range(22_000)),
     "? a\n" * 60_000, "---\n" * 60_000],
)  # fmt: skip
def test_a_hostile_file_costs_little_time(hostile: str) -> None:
    """Some 0.3 s of a core, where PyYAML's own parser took 3 s to 7 s."""
    began = time.process_time()
    with suppress(ChangeRefusedError):
        edited(hostile[: MAX_BYTES - 1], PLACE, REPLICAS)
    assert time.process_time() - began < 2.0
