"""Types: the examples pass pyright's strict mode, and wrong uses of the module are found."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# Each line is an error, and the word is in the message.
MISUSES = [
    ("makeroom.explains('x.txt')", "explains"),
    ("makeroom.explain(123)", "123"),
    ("makeroom.watch(source='pytorch')", "pytorch"),
    ("makeroom.use_pool('jax')", "jax"),
    ("makeroom.open(7)", "7"),
    ("makeroom.explain('x.txt').cause == 'fragmented'", "fragmented"),
    ("makeroom.explain('x.txt').fixes[0].frees_bytes + 1", "None"),
    ("makeroom.nothing", "nothing"),
    ("makeroom.job('x').cause == 'fragmentation'", "fragmentation"),
    ("makeroom.job('x').ranks[0].fate == 'died'", "died"),
    ("makeroom.chunks([1], abs, backend='jax')", "jax"),
    ("makeroom.open('x.room')['size']", "size"),
]

USES = """
def cause(explanation: makeroom.Explanation) -> makeroom.Cause:
    return explanation.cause

def best(tuning: makeroom.Tuning) -> "makeroom.Best | None":
    return tuning.best

def lines(ledger: makeroom.Ledger) -> "list[makeroom.LedgerLine]":
    return ledger.lines

def sites(device: makeroom.WatchedDevice) -> "list[makeroom.Site]":
    return device.sites

def runs(replay: makeroom.Replay) -> "list[makeroom.Run]":
    return list(replay)

def trials(tuning: makeroom.Tuning) -> "list[makeroom.Run]":
    return [run for run in tuning if not run.out_of_memory]

def holders(explanation: makeroom.Explanation) -> "list[makeroom.Site]":
    return explanation.sites

def fates(job: makeroom.Job) -> "dict[str, makeroom.Fate]":
    return {rank.label: rank.fate for rank in job.ranks}

def taken(device: makeroom.WatchedDevice) -> "dict[str, int]":
    return {site.place: site.bytes for site in device.taken_sites}

def largest(trace: makeroom.Trace) -> "makeroom.Group | None":
    groups = trace.by("kind")
    return max(groups, key=lambda group: group.bytes, default=None)

def shape(table: makeroom.Table) -> "tuple[int, int]":
    return table.shape

def sizes(table: makeroom.Table) -> "list[int]":
    return table["size"]
"""


def check(folder: Path) -> list[dict]:
    """Return the errors that pyright's strict mode finds in a folder."""
    pytest.importorskip("pyright")
    # Packages that are not installed are not the examples' fault.
    config = {"include": ["."], "typeCheckingMode": "strict", "pythonVersion": "3.9", "reportMissingImports": False}
    config["reportUnusedExpression"] = False
    (folder / "pyrightconfig.json").write_text(json.dumps(config))
    words = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == len(list(folder.glob("*.py"))), done.stdout
    return [each for each in report["generalDiagnostics"] if each["severity"] == "error"]


def test_the_examples_are_strictly_typed(examples: Path, tmp_path: Path):
    (tmp_path / "uses.py").write_text("import makeroom\n" + USES)
    for path in (examples / "python").glob("*.py"):
        shutil.copy(path, tmp_path)
    # JAX's own functions are not all typed.
    is_of_jax = re.compile(r'"(ones|block_until_ready|tanh)"|jax').search
    found = [f"{Path(each['file']).name}: {each['message']}" for each in check(tmp_path)]
    assert [text for text in found if not (text.startswith("jax_step.py") and is_of_jax(text))] == []


def test_wrong_uses_are_found(tmp_path: Path):
    file = tmp_path / "misuse.py"
    file.write_text("import makeroom\n" + "".join(f"{line}\n" for line, _ in MISUSES))
    found = {each["range"]["start"]["line"]: each["message"] for each in check(tmp_path)}
    for number, (line, word) in enumerate(MISUSES, 1):
        assert word in found.get(number, "no error"), (line, found.get(number))
