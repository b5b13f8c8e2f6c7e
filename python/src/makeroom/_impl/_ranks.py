"""The rank of this process in a job of many, and whether it is the first of them to run out of memory.

Rank and job come from PyTorch's process group or, before there is one, from the launcher's variables, which the native
module knows. Ranks have no channel to each other after a failure, so the first one leaves a file in a directory that all of
them see.
"""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from . import _native

# A claim that is older belongs to an earlier job: ranks of one job fail together, or when a collective times out.
_STALE_SECONDS = 600


class Rank(NamedTuple):
    """This process in its job. `size` is `None` if the launcher does not provide it."""

    number: int
    size: int | None
    fields: dict[str, str]

    @property
    def is_one_of_many(self) -> bool:
        """Return whether there are other ranks, as far as is known."""
        return self.size is None or self.size > 1

    def __str__(self) -> str:
        return f"rank {self.number}"


def current() -> Rank | None:
    """Return the rank of this process, or `None` if no launcher started it."""
    fields = _fields()
    group = _process_group()
    if group is not None:
        return Rank(*group, fields)
    number = fields.get("rank", fields.get("local_rank"))
    if number is None:
        return None
    size = fields.get("world_size")
    return Rank(int(number), None if size is None else int(size), fields)


def resolve(directory: str | os.PathLike[str]) -> Path:
    """Replace the placeholders of `makeroom env` that differ between jobs: `%j`, `%a` and `%h`."""
    fields = _fields()
    values = {"%j": fields.get("job_id", "0"), "%a": fields.get("attempt", "0"), "%h": socket.gethostname()}
    text = os.fspath(directory)
    for placeholder, value in values.items():
        text = text.replace(placeholder, value.replace("/", "_"))
    return Path(text)


def first_failure(rank: Rank, directory: Path | None) -> str | None:
    """Return `None` if this rank is the first of its job to fail, else the name of the first.

    Without a directory, only the ranks of this host know of each other. If in doubt, a rank is the first: two explanations
    are better than none.
    """
    try:
        claim = (_own_directory() if directory is None else directory) / f".first-{_key(rank)}"
        if claim.exists() and time.time() - claim.stat().st_mtime > _STALE_SECONDS:
            claim.unlink()
        descriptor = os.open(claim, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return _read(claim)
    except OSError:
        return None
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(f"{rank} on {socket.gethostname()}")
    return None


def _fields() -> dict[str, str]:
    """Return the fields in the launcher's current variables; some are set after the start. Values may be any bytes."""
    variables = {name: value.decode(errors="replace") for name, value in os.environb.items()}
    return _native.job_identity({name.decode(errors="replace"): value for name, value in variables.items()})


def _read(claim: Path) -> str:
    # The other rank may not have written its name yet, or be another user.
    try:
        return claim.read_text(encoding="utf-8")[:200] or "another rank"
    except (OSError, ValueError):
        return "another rank"


def _key(rank: Rank) -> str:
    """Return a name of the job, the same on all its ranks. Without a job ID, the ranks of a host share a process group."""
    job = rank.fields.get("job_id")
    parts = [str(os.getuid())]
    if job is None:
        parts += [socket.gethostname(), str(os.getpgrp()), os.environ.get("MASTER_PORT", "")]
    else:
        parts += [job, rank.fields.get("attempt", ""), os.environ.get("SLURM_STEP_ID", "")]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _own_directory() -> Path:
    """Return a directory in the temporary directory to which only this user can write."""
    directory = Path(tempfile.gettempdir()) / f"makeroom-ranks-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    status = directory.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o170022 != 0o040000:
        raise OSError(f"{directory} belongs to another user")
    return directory


def _process_group() -> tuple[int, int] | None:
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
    except (AttributeError, RuntimeError, ValueError):
        pass
    return None
