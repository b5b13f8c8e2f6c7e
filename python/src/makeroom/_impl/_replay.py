"""`replay` and `tune`: the results of the commands of the same name, as objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, NamedTuple

from ._answer import Answer
from ._sizes import Size

if TYPE_CHECKING:
    from ._trace import TraceOrPath


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
    """Recommended setting of PyTorch's allocator.

    `fits` is whether the run completes with it. `saves_bytes` is how much less it reserves than the recorded run did; `None` if
    it does not reserve less, as after a run that failed early.
    """

    settings: str
    command: str
    fits: bool
    reserved_bytes: int
    saves_bytes: int | None

    @property
    def python(self) -> str | None:
        """The command as Python, for a program or a notebook. It must run before PyTorch is imported."""
        from ._settings import as_python

        return as_python(self.command)


class Replay(Answer):
    """Results of replaying a recording under several allocators. Iterating yields the runs; `replay["pytorch"]` is one."""

    @property
    def runs(self) -> list[Run]:
        """One run for each allocator."""
        return [_run(run) for run in self._json["runs"]]

    @property
    def check(self) -> Check | None:
        """Result of `check=True`, else `None`."""
        check = self._json.get("check")
        return Check(check["matched"], check["mismatched"]) if check else None

    def __iter__(self) -> Iterator[Run]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self._json["runs"])

    def __getitem__(self, allocator: str | int) -> Run:
        runs = self.runs
        if isinstance(allocator, int):
            return runs[allocator]
        return _named({run.allocator: run for run in runs}, allocator, "replayed")

    def _repr_html_(self) -> str:
        from ._html import runs

        return runs([(run["allocator"], run) for run in self._json["runs"]])


class Tuning(Answer):
    """Results of replaying a recording under every setting of PyTorch's allocator that could make a difference.

    Iterating yields the runs, best first; `tuning["expandable_segments:True"]` is one.
    """

    @property
    def best(self) -> Best | None:
        """Recommended setting; `None` if no setting is better than the recorded one."""
        best = self._json["best"]
        if not best:
            return None
        run = self.trials[best["settings"]]
        saves = best["saves_bytes"]
        return Best(
            settings=best["settings"],
            command=best["command"],
            fits=not run.out_of_memory,
            reserved_bytes=run.peak_reserved_bytes,
            saves_bytes=saves if saves > 0 else None,
        )

    @property
    def recorded(self) -> Run:
        """Run with the recorded setting."""
        return _run(self._json["recorded"])

    @property
    def trials(self) -> dict[str, Run]:
        """Run for each setting that was tried, best first. The key `""` is PyTorch's defaults."""
        return {trial["settings"]: _run(trial) for trial in self._json["trials"]}

    def __iter__(self) -> Iterator[Run]:
        return iter(self.trials.values())

    def __len__(self) -> int:
        return len(self._json["trials"])

    def __getitem__(self, settings: str | int) -> Run:
        trials = self.trials
        return list(trials.values())[settings] if isinstance(settings, int) else _named(trials, settings, "tried")

    def _repr_html_(self) -> str:
        from ._html import runs

        rows = [("as recorded", self._json["recorded"])]
        rows += [(trial["settings"] or "PyTorch's defaults", trial) for trial in self._json["trials"][:8]]
        return runs(rows, self.best.command if self.best else None)


def _named(runs: dict[str, Run], name: str, done: str) -> Run:
    """Return the run of this name."""
    run = runs.get(name)
    if run is None:
        raise KeyError(f"{name!r} was not {done}; use one of {', '.join(map(repr, runs))}")
    return run


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
    source: TraceOrPath,
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
            `"bfc"`, `"cupy"`, `"rmm-pool"`, `"planned"`, `"ideal"`, `"makeroom"` or `"makeroom-paged"` [default: the common ones].
        memory: Memory available to the allocator, in bytes or as a string such as `"24GiB"`.
        card: Size of the GPU; memory for the driver and the CUDA context is subtracted. Use this or `memory`.
        device: GPU to analyze [default: the one that failed, else the fullest].
        check: Compare the simulation of the recorded allocator with the recording.
        smallest: Search for the least memory with which each run completes.

    Returns:
        One run for each allocator; `print` it for the text of `makeroom replay`.

    Raises:
        OSError: The file cannot be opened.
        InputError: The file is not a recording.
        UsageError: An argument is invalid.

    Examples:
        >>> replay = makeroom.replay("run.pickle", "pytorch", "makeroom", memory="24GiB")
        >>> replay["makeroom"].peak_reserved_bytes
    """
    from ._trace import as_trace

    return as_trace(source).replay(
        *allocators, memory=memory, card=card, device=device, check=check, smallest=smallest
    )


def tune(
    source: TraceOrPath,
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
        device: GPU to analyze [default: the one that failed, else the fullest].

    Returns:
        One run for each setting; `print` it for the text of `makeroom tune`.

    Raises:
        OSError: The file cannot be opened.
        InputError: The file is not a recording.
        UsageError: An argument is invalid, or the recording does not contain PyTorch's allocations.

    Examples:
        >>> makeroom.tune("run.pickle", memory="24GiB").best.command
        'export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True'
    """
    from ._trace import as_trace

    return as_trace(source).tune(memory=memory, card=card, device=device)
