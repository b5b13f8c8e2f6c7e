"""Explain a job of many ranks from the recordings, snapshots and logs of all of them."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from . import _native
from ._answer import Fix, Verdict
from ._types import Fate, JobCause, Path


class Line(NamedTuple):
    """A line of code that holds more memory on one rank than on comparable ranks."""

    place: str
    bytes: int
    typical_bytes: int


class Culprit(NamedTuple):
    """A rank to blame, with the lines in which it differs from comparable ranks."""

    label: str
    rank: int | None
    host: str | None
    recording: str
    device: int | None
    requested_bytes: int | None
    held_bytes: int | None
    typical_bytes: int | None
    place: str | None
    lines: list[Line]


class Rank(NamedTuple):
    """One rank: its outcome (`ran_out`, `terminated`, …) and its memory."""

    label: str
    rank: int | None
    host: str | None
    recording: str
    fate: Fate
    is_culprit: bool
    group: str | None
    peak_bytes: int


class Job(Verdict):
    """The answer for a job: one cause, the ranks to blame, and the outcome of every rank."""

    @property
    def cause(self) -> JobCause:
        """Name of the cause, such as `rank_holds_more`; `none` if nothing failed."""
        cause: JobCause = self._json["verdict"]["cause"]
        return cause

    @property
    def fixes(self) -> list[Fix]:
        """Fixes, most effective first."""
        return [Fix(fix["action"], fix["command"], None) for fix in self._json["fixes"]]

    @property
    def culprits(self) -> list[Culprit]:
        """The ranks to blame, the most important first."""
        return [_culprit(entry) for entry in self._json["culprits"]]

    @property
    def ranks(self) -> list[Rank]:
        """All ranks, sorted by rank."""
        return [Rank(**{name: entry[name] for name in Rank._fields}) for entry in self._json["ranks"]]

    @property
    def missing_ranks(self) -> list[int]:
        """Ranks without a recording."""
        return list(self._json["used"]["missing_ranks"])

    def _repr_html_(self) -> str:
        from ._html import job

        return job(self._json)


def job(*paths: Path) -> Job:
    """Explain a job from the files of all its ranks.

    Args:
        paths: Directories, files, patterns and archives (tar, zip) with recordings, snapshots and logs.

    Returns:
        The answer; `print` it for the text of `makeroom job`.

    Raises:
        OSError: A path cannot be opened.
        InputError: No file is a recording, a snapshot or a log.

    Examples:
        >>> answer = makeroom.job("recordings/")
        >>> answer.cause, [culprit.rank for culprit in answer.culprits]
    """
    return Job(_native.job([os.fspath(path) for path in paths]))


def _culprit(entry: dict[str, Any]) -> Culprit:
    fields = {name: entry[name] for name in Culprit._fields if name != "lines"}
    return Culprit(**fields, lines=[Line(**line) for line in entry["lines"]])
