"""Options of a submission that forbid another size of its job, and that no record of it tells.

sbatch keeps `--gpus`, `--gpus-per-node` and `--gpus-per-task` as SLURM_GPUS, SLURM_GPUS_PER_NODE
and SLURM_GPUS_PER_TASK in the environment of the batch script, and `scontrol update` leaves it as
it is: `srun` in the script then asks for the old number and fails (measured, 22.05). They come from
the environment of sbatch just as well (SBATCH_GPUS_PER_NODE), and nothing tells of that but that
neither script nor submit line asks for GPUs. `--gres` is in no variable. Records of jobs do not
tell these apart; the script and the submit line do. They also tell a range of nodes: a running job
shows those that it got, and may get others when it is requeued. And what a script itself starts may
name more GPUs than the job would have then.
"""

import ast
import operator
import re
from collections.abc import Iterable

from dashboard.apply.slurm.change.moves import BY_OWNER, KEPT_OPTION, Move
from dashboard.apply.slurm.client.gres_text import gpu_request
from data.facts.device_numbers import named_gpus, named_nodes, named_processes

# Long options may be cut as long as they are one option's.
_OPTION = re.compile(
    r"(?:^|\s)(--gpus(?:-per-(?:n(?:o(?:de?)?)?|t(?:a(?:sk?)?)?))?|-G)(?=[\s=\d:]|$)"
)
_GRES = re.compile(r"(?:^|\s)--gre?s?[=\s]+[\"']?\S*gpu")
_RANGE = re.compile(r"(?:^|\s)(?:--nodes[=\s]|-N\s*)(\d+-\d+)(?=\s|$)")
_SET = re.compile(r"(?:^\s*|\s)([A-Za-z_]\w*)=(?:[\"']?(\d+)[\"']?(?=\s|$)|\S*)")
_USED = re.compile(
    r"[\"']?\$(?:(?P<plain>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)(?::?-(?P<default>\d+))?\})[\"']?"
)
_SUM = re.compile(r"\$\(\((?P<sum>[\w\s+*/()-]{1,60})\)\)")
_NAME = re.compile(r"\b[A-Za-z_]\w*")
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
}
_APPEND_MODE = re.compile(r"--open-mode[=\s][\"']?a")
_TASKS = re.compile(
    r"\s(?:--ntasks-per-node[=\s](?P<each>\d+)|(?:--ntasks[=\s]|-n\s*)(?P<all>\d+))(?![\w.])"
)
_SIZES = ("Gres", "NumNodes")
_SCRIPT_CONFLICT = (
    "its script says {text!r}, more than it would have: it would fail. Ask its owner to submit the "
    "next run with the proposed size"
)
_BY_ENVIRONMENT = (
    "neither its submit line nor its script asks for GPUs: SBATCH_GPUS_PER_NODE or the like did, "
    f"which srun in the script may repeat, or a plugin of the site. {BY_OWNER}"
)
_OUTPUT_LOSS = (
    "the requeued run begins its output files anew: what this run wrote into them is lost. "
    "--open-mode=append of sbatch or JobFileAppend=1 in slurm.conf would keep it"
)
_SRUN = re.compile(r"(?:^|[\s;&|(])srun(?=\s|$)")
_SRUN_FAILS = "{what} would ask for the nodes that the job had (SLURM_JOB_NUM_NODES) and fail"
_UNSEEN = (
    "its script or its submit line cannot be read: submitted with --gpus-per-node, srun in the "
    "script would ask for the old number of GPUs and fail"
)


def _option_lines(texts: Iterable[str]) -> list[str]:
    """Return the lines of a submit line and a batch script that may hold options of sbatch."""
    return [
        line.partition(" #")[0]
        for text in texts
        for line in text.splitlines()
        if not text.startswith("#!") or line.startswith("#SBATCH")
    ]


def submitted_with(texts: Iterable[str]) -> str:
    """Return the option of sbatch that stands against another size, '' for none.

    `texts` are the submit line and the batch script, of which the lines of #SBATCH count.
    """
    lines = _option_lines(texts)
    ranges = (f"-N{match[1]}" for line in lines if (match := _RANGE.search(line)))
    return next(ranges, "") or next(
        (match[1] for line in lines if (match := _OPTION.search(line))), ""
    )


def named_beyond(
    script: str,
    *,
    gpus: int | None,
    nodes: int | None,
    tasks: tuple[int, int] = (1, 1),
    total: tuple[int, int] = (0, 0),
) -> str:
    """Return what a script starts beyond these GPUs a node or these nodes, '' for nothing.

    None: not changed. `tasks` are those of the job and its nodes, `total` its GPUs in all now and
    after: processes of the whole job take a GPU each where it has as many now. A variable that the
    script sets to a whole number, or whose default one is, and a sum of such, count as that number;
    what Slurm or the submitter sets follows the job.
    """
    numbers: dict[str, str] = {}
    lines = re.sub(r"(?:[ \t]|\\\n)+", " ", script).splitlines()
    code = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    for raw in re.split(r"[;\n]|&&|\|\|", code):
        line = _USED.sub(lambda used: _number_of(used, numbers), raw)
        line = _SUM.sub(lambda match: _sum_of(match, numbers), line)
        numbers.update(_SET.findall(line))
        of_node = _tasks_a_node(line, *tasks)
        for counts, limit in ((named_gpus(line, tasks=of_node), gpus), (named_nodes(line), nodes)):
            beyond = (text for count, text in counts if limit is not None and count > limit)
            if text := next(beyond, ""):
                return text
        for count, text in named_processes(line):
            if total[1] < count <= total[0]:
                return text
    return ""


def _tasks_a_node(line: str, tasks: int, nodes: int) -> int:
    """Return the tasks that a line starts on a node, of a job of so many tasks and nodes."""
    match = _TASKS.search(line)
    if match is None:
        return -(-tasks // max(1, nodes))
    return int(match["each"] or 0) or -(-int(match["all"]) // max(1, nodes))


def _number_of(used: re.Match[str], numbers: dict[str, str]) -> str:
    """Return the number that a variable holds, the variable itself where nothing tells."""
    name = used["plain"] or used["braced"]
    default = "" if name.startswith("SLURM_") else used["default"]
    return numbers.get(name) or default or used[0]


def _sum_of(match: re.Match[str], numbers: dict[str, str]) -> str:
    """Return the number that `$((…))` comes to, itself where its variables are not known."""
    text = _NAME.sub(lambda name: numbers.get(name[0]) or name[0], match["sum"])
    try:
        value = _number(ast.parse(text.strip(), mode="eval").body)
    except (ValueError, SyntaxError, ZeroDivisionError):
        return match[0]
    return str(value) if value >= 0 else match[0]


def _number(node: ast.expr) -> int:
    """Return the whole number of a sum of numbers. Errors: ValueError for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.BinOp) and (operate := _OPERATORS.get(type(node.op))):
        return int(operate(_number(node.left), _number(node.right)))
    raise ValueError(ast.dump(node))


def lost_output(script: str | None, submit_line: str | None) -> tuple[str, ...]:
    """Return the warning that a requeue empties the output files of a job, or ().

    Records of jobs do not tell how files are opened; None where Slurm does not give the text.
    """
    texts = (submitted for submitted in (script, submit_line) if submitted)
    return () if any(_APPEND_MODE.search(text) for text in texts) else (_OUTPUT_LOSS,)


def _stale_nodes(
    moves: tuple[Move, ...], script: str | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (refusals, warnings) about `srun` in the script of a job that loses nodes as it runs.

    SLURM_JOB_NUM_NODES keeps the old number in the script, and `srun` fails on it (measured,
    22.05). What Slurm writes for the script to read lands where `scontrol` runs, not at the job.
    """
    if [move.field for move in moves] != ["NumNodes"]:
        return (), ()
    if script is None:
        reason = "its script cannot be read: if it calls srun later, that"
        return (), (_SRUN_FAILS.format(what=reason),)
    code = (line.partition("#")[0] for line in script.splitlines())
    calls = any(_SRUN.search(line) for line in code)
    return (_SRUN_FAILS.format(what="its script calls srun, which"),) if calls else (), ()


def sets_size(moves: Iterable[Move]) -> bool:
    """Return whether moves change the GPUs that a job asks for."""
    return any(move.verb == "update" and move.field in _SIZES for move in moves)


def environment_refusals(
    moves: tuple[Move, ...],
    script: str | None,
    submit_line: str | None,
    *,
    tasks: tuple[int, int] = (1, 1),
    gpus_now: int = 0,
    in_place: bool = False,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (refusals, warnings) about GPUs that a job's script and environment would ask for.

    `script` and `submit_line` are None where Slurm does not give them; `tasks` are those of the job
    and its nodes, `gpus_now` its GPUs in all; `in_place`: it runs on.
    """
    if not sets_size(moves):
        return (), ()
    after = {move.field: move.after for move in moves if move.verb == "update"}
    gpus = gpu_request(after["Gres"]).count if "Gres" in after else None
    nodes = int(after["NumNodes"].partition("-")[0]) if "NumNodes" in after else None
    total = (gpus_now, _gpus_after(moves, gpus_now))
    if text := named_beyond(script or "", gpus=gpus, nodes=nodes, tasks=tasks, total=total):
        return (_SCRIPT_CONFLICT.format(text=text),), ()
    if gpus is None:
        # The GPUs of a node stay as they are.
        return _stale_nodes(moves, script) if in_place else ((), ())
    option = submitted_with(text for text in (submit_line, script) if text)
    if option.startswith("-N"):
        return (f"it was submitted with {option}: its GPU count is not one number",), ()
    if option:
        return (f"{KEPT_OPTION.format(option=option)}. {BY_OWNER}",), ()
    crowded = _crowded(moves, gpus, _tasks_a_node("", *tasks))
    if script is None or submit_line is None:
        return (), (*crowded, _UNSEEN)
    asks = any(_GRES.search(line) for line in _option_lines((submit_line, script)))
    return () if asks else (_BY_ENVIRONMENT,), crowded


def _gpus_after(moves: Iterable[Move], gpus_now: int) -> int:
    """Return the GPUs in all of a job of so many after moves of its GPUs a node and its nodes."""
    gpus = gpus_now
    for move in moves:
        if move.verb == "update" and move.field in _SIZES:
            before, after = (
                gpu_request(text).count if move.field == "Gres" else int(text.partition("-")[0])
                for text in (move.before, move.after)
            )
            gpus = gpus * after // max(1, before)
    return gpus


def _crowded(moves: tuple[Move, ...], gpus: int, of_node: int) -> tuple[str, ...]:
    """Return the warning that tasks which had a GPU each would share them, or ()."""
    before = max(gpu_request(move.before).count for move in moves if move.field == "Gres")
    if of_node < 2 or not gpus < of_node <= before:
        return ()
    reason = f"the job has {of_node} tasks on a node and would have {gpus} GPU(s) there"
    return (f"{reason}: a program that takes a GPU for each task fails",)
