"""`replay` and `tune`: what the commands of these names find out, as objects."""

from __future__ import annotations

from typing import Any, NamedTuple

from ._answer import Answer
from ._explanation import Path
from ._sizes import Size


class Run(NamedTuple):
    """A recording under one allocator."""

    allocator: str
    peak_live_bytes: int
    peak_reserved_bytes: int
    reserved_over_live: float | None
    driver_calls: int
    driver_time_us: int
    out_of_memory: bool
    smallest_memory_bytes: int | None
    is_estimate: bool


class Check(NamedTuple):
    """How many predictions about the recorded allocator came true."""

    matched: int
    mismatched: int


class Best(NamedTuple):
    """The setting to change to."""

    settings: str
    command: str
    saves_bytes: int


class Replay(Answer):
    """A recording under several allocators."""

    @property
    def runs(self) -> list[Run]:
        """One run per allocator."""
        return [_run(run) for run in self._json["runs"]]

    @property
    def check(self) -> Check | None:
        """Whether the model of the recorded allocator is right, if that was asked for."""
        check = self._json.get("check")
        return Check(check["matched"], check["mismatched"]) if check else None

    def __getitem__(self, allocator: str) -> Run:
        for run in self.runs:
            if run.allocator == allocator:
                return run
        raise KeyError(allocator)

    def _repr_html_(self) -> str:
        from ._html import runs

        return runs([(run["allocator"], run) for run in self._json["runs"]])


class Tuning(Answer):
    """A recording under every setting of PyTorch's allocator that can matter for it."""

    @property
    def best(self) -> Best | None:
        """The setting to change to; `None` where the recorded one is as good as any."""
        best = self._json["best"]
        return Best(best["settings"], best["command"], best["saves_bytes"]) if best else None

    @property
    def recorded(self) -> Run:
        """The recorded setting."""
        return _run(self._json["recorded"])

    @property
    def trials(self) -> dict[str, Run]:
        """All settings that were tried, the best first; the empty one is PyTorch's defaults."""
        return {trial["settings"]: _run(trial) for trial in self._json["trials"]}

    def _repr_html_(self) -> str:
        from ._html import runs

        rows = [("as recorded", self._json["recorded"])]
        rows += [(trial["settings"] or "PyTorch's defaults", trial) for trial in self._json["trials"][:8]]
        return runs(rows, self._json["best"]["command"] if self._json["best"] else None)


def _run(run: dict[str, Any]) -> Run:
    return Run(
        allocator=run["allocator"],
        peak_live_bytes=run["peak_live_bytes"],
        peak_reserved_bytes=run["peak_reserved_bytes"],
        reserved_over_live=run["reserved_over_live"],
        driver_calls=run["driver_calls"],
        driver_time_us=run["driver_time_us"],
        out_of_memory=run["oom"] is not None,
        smallest_memory_bytes=run["smallest_memory_bytes"],
        is_estimate=run["estimate"],
    )


def replay(
    source: Path | Any,
    *allocators: str,
    memory: Size | None = None,
    card: Size | None = None,
    device: int | None = None,
    check: bool = False,
    smallest: bool = True,
) -> Replay:
    """Runs a recording under allocators, the usual ones without any named; `makeroom replay --help` lists them.

    `check` also proves the model of the recorded allocator against the recording. `smallest` searches the smallest
    memory in which each run completes.
    """
    from ._trace import as_trace

    return as_trace(source).replay(
        *allocators, memory=memory, card=card, device=device, check=check, smallest=smallest
    )


def tune(
    source: Path | Any,
    *,
    memory: Size | None = None,
    card: Size | None = None,
    device: int | None = None,
) -> Tuning:
    """Finds the setting of PyTorch's allocator that serves a recording best."""
    from ._trace import as_trace

    return as_trace(source).tune(memory=memory, card=card, device=device)
