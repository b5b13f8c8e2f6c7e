"""Report an out-of-memory error: the explanation for a person, and this rank's files for `makeroom job`.

Of the ranks of a job, the first that fails prints the explanation and the others one line: the same block eight times hides
which rank was first. All of them write their files.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

from . import _ranks, _recorder, _show, _torch
from ._ranks import Rank

# Set on an exception that was reported, because a trainer's callback and the hook may both see it.
_REPORTED = "__makeroom_reported__"


def report(error: BaseException, directory: str | os.PathLike[str] | None = None) -> None:
    """Write the files of this rank to the directory, if there is one, and print the explanation to stderr."""
    if not is_first_report(error):
        return
    rank = _ranks.current()
    place = None if directory is None else _ranks.resolve(directory)
    if place is not None:
        _try_to_write(error, place, rank)
    hint = "" if place is None else f"explain all ranks: makeroom job {place}"
    is_one_of_many = rank is not None and rank.is_one_of_many
    first = _ranks.first_failure(rank, place) if rank is not None and is_one_of_many else None
    if first is not None:
        _print(f"makeroom: {rank} ran out of memory after {first}{hint and '; ' + hint}\n")
        return
    _print(_explained_by_run() or _explained(error))
    if is_one_of_many and hint:
        _print(f"makeroom: {hint}\n")


def is_first_report(error: BaseException) -> bool:
    """Return whether an exception has no report yet, and mark that it has one now."""
    is_first = not getattr(error, _REPORTED, False)
    try:
        setattr(error, _REPORTED, True)
    except AttributeError:
        pass  # An exception class with slots can only be reported twice.
    return is_first


def _explained(error: BaseException) -> str:
    from ._explanation import explain

    return explain(error).text(styled=_show.has_colours(sys.stderr))


def _explained_by_run() -> str | None:
    """Return one line if this process runs under `makeroom run`, which prints the explanation of each failure it records."""
    if not os.environ.get("MAKEROOM_SOCKET"):
        return None
    from ._explanation import from_recording

    recorded = from_recording()
    if recorded is None:
        return None
    return f"makeroom: {recorded.title} ({recorded.certainty}); makeroom run prints the explanation\n"


def _print(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


def _try_to_write(error: BaseException, directory: Path, rank: Rank | None) -> None:
    try:
        _write(error, directory, f"pid{os.getpid()}" if rank is None else f"rank{rank.number}")
    except Exception as failure:
        # Whatever PyTorch raises in this state, the explanation must follow.
        _print(f"makeroom: cannot write to {directory}: {failure}\n")


def _write(error: BaseException, directory: Path, name: str) -> None:
    """Write the traceback and, with PyTorch on CUDA, a snapshot. Under the recorder, the recording has more than that."""
    directory.mkdir(parents=True, exist_ok=True)
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    draft = directory / f".{name}.{os.getpid()}"
    # A reader must not see half a file.
    draft.write_text(text, encoding="utf-8", errors="replace")
    draft.replace(directory / f"{name}.log")
    torch = _torch.on_cuda()
    if torch is None or _recorder.is_there():
        return
    try:
        torch.cuda.memory._dump_snapshot(str(draft))
        draft.replace(directory / f"{name}.pickle")
    finally:
        draft.unlink(missing_ok=True)
