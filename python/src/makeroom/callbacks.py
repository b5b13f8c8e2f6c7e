"""Callbacks that watch the memory of training with the Hugging Face Trainer and Lightning.

    trainer = transformers.Trainer(..., callbacks=[makeroom.callbacks.HuggingFace()])
    trainer = lightning.Trainer(..., callbacks=[makeroom.callbacks.Lightning()])

A step is an optimizer step, or a batch in Lightning. At the end, the result of `makeroom.watch` is printed to stderr;
`callback.watch` contains the figures. Of several ranks, rank 0 prints the result and the others one line. Each framework is
imported on the first use of its callback.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from ._impl import _failure, _ranks
from ._impl._excepthook import install_excepthook, is_about_memory
from ._impl._sizes import Size, parse_optional, show
from ._impl._sources import NoSource, WatchError
from ._impl._watch import Watch, watch

if TYPE_CHECKING:
    HuggingFace: Any
    Lightning: Any

__all__ = ["HuggingFace", "Lightning"]


class Training:
    """Base of both callbacks. If memory cannot be measured, a note is printed once, training continues,
    and the figures are 0.

    Args:
        lines: Passed to `makeroom.watch`.
        limit: Raise `MemoryError` if the peak is higher: after the step, or at the end of training under `makeroom run`, where
            the recording is read only then.
        prints: Print the result to stderr.
        directory: Where each rank that runs out of memory writes its files; passed to `install_excepthook`.
    """

    def __init__(
        self,
        *,
        lines: bool | None = None,
        limit: Size | None = None,
        prints: bool = True,
        directory: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        self.watch: Watch | None = None
        self._lines, self._limit, self._prints = lines, parse_optional(limit), prints
        self._directory = directory
        self._is_on = False

    def begin(self) -> None:
        if self._directory is not None:
            install_excepthook(self._directory)
        try:
            self.watch = watch(lines=self._lines, required=True).__enter__()
            self._is_on = True
        except WatchError as error:
            self._print(f"makeroom: GPU memory cannot be measured: {error}")
            # Programs that read the figures find zeros, and the reason in the notes.
            with Watch(NoSource(str(error))) as self.watch:
                pass

    def step(self) -> None:
        if self._is_on and self.watch is not None:
            self.watch.step()
            peak = self.watch._source.peak_so_far()
            if self._limit is not None and peak is not None and peak > self._limit:
                self.end()

    def end(self, error: BaseException | None = None) -> None:
        """Print the result and check the limit, unless training failed with an error: nothing must replace that."""
        if not self._is_on or self.watch is None:
            return
        self._is_on = False
        try:
            self.watch.__exit__(None if error is None else type(error), error, None)
        except WatchError as failure:
            self._print(f"makeroom: GPU memory was not measured: {failure}")
            return
        rank = _ranks.current()
        if rank is None or rank.number == 0:
            # What was not watched says so itself.
            text = repr(self.watch)
            self._print(text if text.startswith("makeroom: ") else f"makeroom: {text}")
        else:
            self._print(f"makeroom: {rank}: peak {show(self.watch.peak_bytes)}")
        if error is None and self._limit is not None and self.watch.peak_bytes > self._limit:
            raise MemoryError(
                f"training peaked at {show(self.watch.peak_bytes)} of GPU memory; limit: {show(self._limit)}"
            )

    def fail(self, error: BaseException) -> None:
        """Report an out-of-memory error of the training. An error of this module must not replace it."""
        try:
            if self._directory is not None and is_about_memory(error):
                _failure.report(error, self._directory)
        except Exception:
            pass

    def _print(self, text: str) -> None:
        if self._prints:
            print(text, file=sys.stderr)


def _hugging_face() -> type:
    try:
        from transformers import TrainerCallback
    except ImportError as error:
        raise ImportError("cannot import transformers\n\nhint: pip install 'transformers[torch]'") from error
    base: Any = TrainerCallback

    class HuggingFace(Training, base):  # type: ignore[misc]
        """Callback for `transformers.Trainer`; `Training` lists the arguments.

        Examples:
            >>> transformers.Trainer(..., callbacks=[makeroom.callbacks.HuggingFace(limit="20GiB")])
        """

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.begin()

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.step()

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.end()

    return HuggingFace


def _lightning() -> type:
    from importlib import import_module

    # If both are installed, prefer the one that the program imported.
    names = sorted(("lightning.pytorch", "pytorch_lightning"), key=lambda name: sys.modules.get(name) is None)
    base: Any = None
    for name in names:
        try:
            base = import_module(name).Callback
            break
        except ImportError:
            continue
    if base is None:
        raise ImportError("cannot import lightning\n\nhint: pip install lightning")

    class Lightning(Training, base):  # type: ignore[misc]
        """Callback for `lightning.Trainer`; `Training` lists the arguments.

        Examples:
            >>> lightning.Trainer(..., callbacks=[makeroom.callbacks.Lightning(limit="20GiB")])
        """

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self.begin()

        def on_train_batch_end(self, trainer: Any, pl_module: Any, *others: Any) -> None:
            self.step()

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            self.end()

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            # Now, because the trainer then moves the model to the CPU.
            self.fail(exception)
            self.end(exception)

    return Lightning


_MAKERS = {"HuggingFace": _hugging_face, "Lightning": _lightning}


def __getattr__(name: str) -> Any:
    maker = _MAKERS.get(name)
    if maker is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = maker()
    return value
