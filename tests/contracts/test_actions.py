"""Every action has one row of facts, and few files that know it by name."""

import ast
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from factories import make_recommendation
from page_edits import follow

from dashboard.apply import APPLIERS
from dashboard.apply.contract.wording import change_words
from data.records.actions import ACTIONS, ADVICE, FOR_MEMORY, NOT_FOR_SAVING, Action

ROOT = Path(__file__).parents[2]
PACKAGES = ("data", "collectors", "forecasting", "planner", "dashboard")
NAMED_IN = {
    "data/records/actions.py": "the table",
    "planner/proposals/proposal.py": "makes them from a plan",
    "planner/advise.py": "makes time limits",
    "planner/proposals/job_advice.py": "the usual one of a proposal",
    "planner/proposals/fleet_advice.py": "makes those of boards",
    "planner/advisers/emptied_nodes.py": "makes those of nodes",
    "planner/advisers/mig_layouts.py": "makes those of nodes to cut",
    "planner/advisers/autoscaler_bounds.py": "makes those of autoscalers' bounds",
    "planner/advisers/slow_work_advice.py": "makes those of slow work",
    "planner/advisers/service_size.py": "makes that a model fits a smaller GPU",
    "planner/advisers/idle_gpus.py": "makes that a service at rest starts on demand",
    "planner/sharing/advice.py": "makes that jobs share boards",
    "planner/sharing/shared_nodes.py": "makes that nodes offer shares, and jobs take them",
    "planner/advisers/memory_relief.py": "makes those against running out of memory",
    "planner/proposals/relief.py": "tells a change from advice",
    "planner/proposals/wording.py": "why they are proposed",
    "planner/advisers/memory_advice.py": "why those for memory are proposed",
    "dashboard/apply/slurm/change/moves.py": "its own moves of a time limit",
}
"""Files of the product that name an action, and why. All others read `Action.spec`."""
MAX_FILES = 4


def named() -> dict[Action, set[str]]:
    """Every action with the product's files that name it."""
    found: dict[Action, set[str]] = defaultdict(set)
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "Action"
                and node.attr in Action.__members__
            ):
                found[Action[node.attr]].add(str(path.relative_to(ROOT)))
    return found


def test_few_files_know_an_action_by_name() -> None:
    """A new action is its row, where it is made, why, and a move of its own at most."""
    found = named()
    files = set().union(*found.values())
    assert files - set(NAMED_IN) == set(), "enter it in NAMED_IN with the reason, or read its spec"
    assert set(NAMED_IN) - files == set(), "it names no action any more: remove it from NAMED_IN"
    assert found.keys() == set(Action)
    assert {action: files for action, files in found.items() if len(files) > MAX_FILES} == {}


def test_every_action_has_a_row() -> None:
    """A page with an action that has none would break; two of one title could not be told apart."""
    assert ACTIONS.keys() == set(Action), "give it a row in ACTIONS (data/records/actions.py)"
    assert len({action.spec.title for action in Action}) == len(Action)
    assert {name for action in Action for name in action.spec.appliers} == set(APPLIERS)


def test_the_rows_say_what_a_person_does_and_what_serves() -> None:
    """What no applier makes is advice; more memory and more GPUs before a peak need not save."""
    by_hand = "add-gpus co-locate less-memory model-fits scale-to-zero speed-up"
    told = "add it to `by_hand` in this test, or name its appliers in its row"
    assert sorted(ADVICE) == by_hand.split(), told
    assert sorted(FOR_MEMORY) == ["larger-gpu", "less-memory", "spread"]
    serves = {Action.SCALE_OUT, Action.RAISE_MAXIMUM}
    assert FOR_MEMORY | serves == NOT_FOR_SAVING
    assert {action for action in Action if action.spec.caps_power} == {Action.POWER_CAP}
    assert {action for action in Action if action.spec.of_node} == {
        Action.CONSOLIDATE,
        Action.MIG_LAYOUT,
        Action.OFFER_SHARES,
    }
    cuts = {Action.MIG_LAYOUT, Action.OFFER_SHARES}
    assert {action for action in Action if action.spec.cuts} == cuts
    bounds = {action: action.spec.bound for action in Action if action.spec.bound}
    assert bounds == {Action.LOWER_MINIMUM: "minReplicas", Action.RAISE_MAXIMUM: "maxReplicas"}
    services = {Action.LOWER_MINIMUM, Action.RAISE_MAXIMUM, Action.MODEL_FITS,
                Action.SCALE_TO_ZERO}  # fmt: skip
    assert {action for action in Action if action.spec.of_service} == services
    assert {action for action in Action if action.spec.of_program} == {Action.SPEED_UP}
    shares = {Action.CO_LOCATE, Action.TAKE_SHARE}
    assert {action for action in Action if action.spec.shares} == shares
    assert {action for action in Action if action.spec.pauses} == {Action.SHIFT_IN_TIME}
    assert {action for action in Action if action.spec.takes_all} == {Action.RECLAIM}
    resized = {action for action in Action if action.spec.resizes}
    assert resized == {
        Action.FEWER_GPUS, Action.SMALLER_GPU, Action.MIG_SLICE, Action.SCALE_OUT,
        Action.LARGER_GPU, Action.SPREAD,
    }  # fmt: skip


def test_the_rows_say_how_risky_an_action_is() -> None:
    """A cap and a wait take nothing away; a job that loses all of its GPUs may lose its work."""
    risks = {str(action): str(action.spec.risk) for action in Action}
    low = ("power-cap", "shift-in-time", "scale-out", "time-limit", "add-gpus", "less-memory",
           "raise-maximum", "speed-up")  # fmt: skip
    expected = {str(action): "medium" for action in Action} | dict.fromkeys(low, "low")
    told = "add it to `low` in this test, or leave its risk medium"
    assert risks == expected | {"reclaim": "high"}, told


@pytest.mark.parametrize("action", list(Action))
def test_deeds_are_words_for_both_directions(action: Action) -> None:
    """Every placeholder of a row is one that a recommendation fills."""
    one = make_recommendation(action=action, change="time limit of 2 h")
    there, back = change_words(one, back=False), change_words(one, back=True)
    assert there != back
    assert "{" not in there + back


def test_a_new_action_is_its_file_its_row_and_a_call(tmp_path: Path) -> None:
    """A copy of the product in which only what the page names was done proposes it."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package)
    edited = set(follow("An action", tmp_path))
    own = "planner/advisers/unheld_nodes.py"
    assert edited == {own, "data/records/actions.py", "planner/advise.py"}
    run = """
from fleet_cases import fleet_case, plan_of
from planner.advise import advise
problem = fleet_case(1, busy=0.0)
print(*(f"{row.action} {row.target}" for row in advise(plan_of(problem), problem).recommendations))
"""
    done = subprocess.run(
        [sys.executable, "-c", run],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT / 'tests'}"},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert all(f"check-node node-{number}" in done.stdout for number in range(3)), done.stdout
