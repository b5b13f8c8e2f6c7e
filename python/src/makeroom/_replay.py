"""`replay` and `tune`: the results of the commands of the same name, as objects."""

from __future__ import annotations

from typing import Any, NamedTuple

from ._answer import Answer
from ._explanation import Path
from ._sizes import Size


class Run(NamedTuple):
    """Result of replaying a recording under one allocator."""

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
    """Comparison of the simulated allocator with the recording: addresses and driver calls that match or differ."""

    matched: int
    mismatched: int


class Best(NamedTuple):
    """Recommended setting. `saves_bytes` is negative if it reserves more than the recorded run did before it failed."""

    settings: str
    command: str
    saves_bytes: int


class Replay(Answer):
    """Results of replaying a recording under several allocators. `replay["pytorch"]` is one run."""

    @property
    def runs(self) -> list[Run]:
        """One run for each allocator."""
        return [_run(run) for run in self._json["runs"]]

    @property
    def check(self) -> Check | None:
        """Result of `check=True`, else `None`."""
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
    """Results of replaying a recording under every setting of PyTorch's allocator that could make a difference."""

    @property
    def best(self) -> Best | None:
        """Recommended setting; `None` if no setting is better than the recorded one."""
        best = self._json["best"]
        return Best(best["settings"], best["command"], best["saves_bytes"]) if best else None

    @property
    def recorded(self) -> Run:
        """Run with the recorded setting."""
        return _run(self._json["recorded"])

    @property
    def trials(self) -> dict[str, Run]:
        """Run for each setting that was tried, best first. The key `""` is PyTorch's defaults."""
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
    """Replay a recording under other allocators. No GPU is needed.

    Args:
        source: A `Trace`, or the path of a recording, a PyTorch snapshot or an RMM log.
        *allocators: Allocators to simulate, such as `"pytorch"`, `"pytorch:expandable_segments:True"`, `"cuda-async"`,
            `"bfc"` or `"makeroom"`; `makeroom replay --help` lists all [default: the common ones].
        memory: Memory available to the allocator, in bytes or as a string such as `"24GiB"`.
        card: Size of the GPU; memory for the driver and the CUDA context is subtracted. Use this or `memory`.
        device: GPU to analyze [default: the one with the most events].
        check: Compare the simulation of the recorded allocator with the recording.
        smallest: Search for the least memory with which each run completes.

    Raises:
        OSError: The file cannot be opened.
        InputError: The file is not a recording.
        UsageError: An argument is invalid.

    Example:
        >>> replay = makeroom.replay("run.pickle", "pytorch", "makeroom", memory="24GiB")
        >>> replay["makeroom"].peak_reserved_bytes
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
    """Find the best settings of PyTorch's allocator for a recording. No GPU is needed.

    Args:
        source: A `Trace`, or the path of a recording or a PyTorch snapshot.
        memory: Memory available to the allocator, in bytes or as a string such as `"24GiB"`.
        card: Size of the GPU; memory for the driver and the CUDA context is subtracted. Use this or `memory`.
        device: GPU to analyze [default: the one with the most events].

    Raises:
        OSError: The file cannot be opened.
        InputError: The file is not a recording.
        UsageError: An argument is invalid, or the recording does not contain PyTorch's allocations.

    Example:
        >>> makeroom.tune("run.pickle", memory="24GiB").best.command
        'export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True'
    """
    from ._trace import as_trace

    return as_trace(source).tune(memory=memory, card=card, device=device)
