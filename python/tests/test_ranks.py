"""In a job of many ranks, each writes its files to one directory, and the first that fails prints the explanation."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

import makeroom
from makeroom._impl import _failure, _ranks
from test_callbacks import callbacks  # noqa: F401 (a fixture)
from test_explain import TEXT
from test_watch import torch  # noqa: F401 (a fixture)

RANK = f"""
import sys
import makeroom
makeroom.install_excepthook(*sys.argv[1:])
class OutOfMemoryError(RuntimeError): pass
def forward(): raise OutOfMemoryError({TEXT!r})
forward()
"""


class OutOfMemoryError(RuntimeError):
    """Stands in for PyTorch's."""


def start(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    program = folder / "train.py"
    program.write_text(RANK)
    environment = {**os.environ, "TMPDIR": str(folder), **variables}
    words = [sys.executable, str(program), *arguments]
    return subprocess.run(words, env=environment, stderr=subprocess.PIPE, text=True, timeout=60)


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch, tmp_path):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SLURM_STEP_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    yield
    makeroom.uninstall_excepthook()


def as_rank(monkeypatch, number: int, **more: str) -> None:
    for name, value in {"RANK": str(number), "WORLD_SIZE": "4", **more}.items():
        monkeypatch.setenv(name, value)


def test_the_first_rank_explains_and_all_write(tmp_path):
    oom = tmp_path / "oom"
    runs = [start(tmp_path, str(oom), RANK=str(rank), WORLD_SIZE="4") for rank in (2, 0, 3)]
    assert [run.stderr.count("FRAGMENTATION") for run in runs] == [1, 0, 0]
    assert runs[0].stderr.endswith(f"makeroom: explain all ranks: makeroom job {oom}\n")
    for run, rank in zip(runs[1:], (0, 3)):
        last = run.stderr.splitlines()[-1]
        assert last.startswith(f"makeroom: rank {rank} ran out of memory after rank 2 on "), run.stderr
        assert last.endswith(f"; explain all ranks: makeroom job {oom}")
    assert sorted(file.name for file in oom.glob("*")) == sorted(["rank0.log", "rank2.log", "rank3.log", *hidden(oom)])
    job = makeroom.job(oom)
    assert [rank.rank for rank in job.ranks] == [0, 2, 3]
    assert {rank.fate for rank in job.ranks} == {"ran_out"}


def hidden(folder: Path) -> list[str]:
    return [file.name for file in folder.glob(".first-*")]


def test_without_a_directory_the_ranks_of_a_host_know_of_each_other(tmp_path):
    runs = [start(tmp_path, RANK=str(rank), WORLD_SIZE="2") for rank in (1, 0)]
    assert [run.stderr.count("FRAGMENTATION") for run in runs] == [1, 0]
    assert runs[1].stderr.splitlines()[-1].startswith("makeroom: rank 0 ran out of memory after rank 1 on ")


@pytest.mark.parametrize(
    "variables", [{}, {"RANK": "0", "WORLD_SIZE": "1"}], ids=["no launcher", "a job of one"]
)
def test_a_program_of_one_process_is_explained_each_time(tmp_path, variables):
    for _ in range(2):
        assert "FRAGMENTATION" in start(tmp_path, **variables).stderr


def test_another_job_and_another_attempt_are_explained_again(tmp_path, monkeypatch):
    def first(**more: str) -> str | None:
        as_rank(monkeypatch, 1, **more)
        rank = _ranks.current()
        assert rank is not None
        return _ranks.first_failure(rank, tmp_path)

    assert first(TORCHELASTIC_RUN_ID="a") is None
    assert first(TORCHELASTIC_RUN_ID="a").startswith("rank 1 on ")
    assert first(TORCHELASTIC_RUN_ID="b") is None
    assert first(TORCHELASTIC_RUN_ID="b", TORCHELASTIC_RESTART_COUNT="1") is None
    # The same IDs, hours later: the claim is of an earlier job.
    for claim in tmp_path.glob(".first-*"):
        os.utime(claim, (0, 0))
    assert first(TORCHELASTIC_RUN_ID="a", TORCHELASTIC_RESTART_COUNT="0") is None


def test_a_directory_that_cannot_be_written_costs_no_explanation(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = start(tmp_path, str(blocked / "oom"), RANK="0", WORLD_SIZE="2")
    assert f"makeroom: cannot write to {blocked / 'oom'}: " in done.stderr
    assert "FRAGMENTATION" in done.stderr


def test_the_rank_comes_from_the_process_group_if_there_is_one(monkeypatch):
    assert _ranks.current() is None
    as_rank(monkeypatch, 3)
    assert (_ranks.current().number, _ranks.current().size) == (3, 4)
    monkeypatch.setenv("JUNK", os.fsdecode(b"\xff"))
    group = types.SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: 9, get_world_size=lambda: 16
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", group)
    assert (str(_ranks.current()), _ranks.current().size) == ("rank 9", 16)


def test_directories_are_named_by_job_and_attempt(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "47/11")
    assert _ranks.resolve("/shared/%j/%a") == Path("/shared/47_11/0")
    monkeypatch.delenv("SLURM_JOB_ID")
    assert _ranks.resolve("oom/%j") == Path("oom/0"), "as the recorder names it"


def snapshots(torch, traces):  # noqa: F811
    """PyTorch's function, which writes a snapshot of this repository."""

    def dump(path: str) -> None:
        Path(path).write_bytes(gzip.decompress((traces / "oom_fragmented.pickle.gz").read_bytes()))

    torch.cuda.memory = types.SimpleNamespace(_dump_snapshot=dump)


def test_lightning_writes_a_snapshot_before_it_frees_the_model(
    callbacks, torch, traces, monkeypatch, tmp_path, capsys  # noqa: F811
):
    snapshots(torch, traces)
    as_rank(monkeypatch, 1)
    monkeypatch.setitem(sys.modules, "lightning.pytorch", types.SimpleNamespace(Callback=object))
    callback = callbacks.Lightning(directory=tmp_path / "oom")
    callback.on_train_start(None, None)
    error = OutOfMemoryError(TEXT)
    callback.on_exception(None, None, error)
    assert {file.name for file in (tmp_path / "oom").glob("rank*")} == {"rank1.log", "rank1.pickle"}
    shown = capsys.readouterr().err
    assert shown.count("FRAGMENTATION") == 1
    assert "makeroom: rank 1: peak " in shown, "the figures of the other ranks take one line"
    # The trainer raises it again, and the hook sees it too.
    sys.excepthook(type(error), error, None)
    assert "FRAGMENTATION" not in capsys.readouterr().err
    (rank,) = makeroom.job(tmp_path / "oom").ranks
    assert (rank.rank, rank.fate) == (1, "ran_out")


def test_other_errors_of_a_trainer_write_nothing(callbacks, torch, monkeypatch, tmp_path):  # noqa: F811
    monkeypatch.setitem(sys.modules, "lightning.pytorch", types.SimpleNamespace(Callback=object))
    callback = callbacks.Lightning(directory=tmp_path / "oom", prints=False)
    callback.on_train_start(None, None)
    callback.on_exception(None, None, ValueError("shapes do not match"))
    assert not (tmp_path / "oom").exists()


def test_hugging_face_writes_through_the_hook(
    callbacks, torch, traces, monkeypatch, tmp_path, capsys  # noqa: F811
):
    snapshots(torch, traces)
    as_rank(monkeypatch, 2)
    monkeypatch.setitem(sys.modules, "transformers", types.SimpleNamespace(TrainerCallback=object))
    callbacks.HuggingFace(directory=tmp_path).on_train_begin(None, None, None)
    error = OutOfMemoryError(TEXT)
    sys.excepthook(type(error), error, None)
    assert {file.name for file in tmp_path.glob("rank*")} == {"rank2.log", "rank2.pickle"}
    assert "FRAGMENTATION" in capsys.readouterr().err


def test_a_snapshot_that_fails_costs_nothing_else(torch, tmp_path, capsys):  # noqa: F811
    def dump(path: str) -> None:
        Path(path).write_bytes(b"half")
        raise RuntimeError("CUDA error: out of memory")

    torch.cuda.memory = types.SimpleNamespace(_dump_snapshot=dump)
    _failure.report(OutOfMemoryError(TEXT), tmp_path)
    shown = capsys.readouterr().err
    assert "cannot write to" in shown and "FRAGMENTATION" in shown
    assert [file.name for file in tmp_path.iterdir()] == [f"pid{os.getpid()}.log"]
