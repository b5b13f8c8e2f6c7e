"""Training loops that others write: a callback for the Hugging Face Trainer, one for Lightning.

    trainer = transformers.Trainer(..., callbacks=[makeroom.callbacks.HuggingFace()])
    trainer = lightning.Trainer(..., callbacks=[makeroom.callbacks.Lightning()])

Training is watched (`makeroom.watch`), each optimizer step is a step, and at the end the peak and what steps leave behind is
printed to stderr; `callback.watch` has the figures. `limit` ends training when its end shows that more was taken: in a
test of a training script. Neither framework is imported before its callback is asked for.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ._sizes import Size, parse_optional, show
from ._sources import WatchError
from ._watch import Watch, watch

if TYPE_CHECKING:
    HuggingFace: Any
    Lightning: Any

__all__ = ["HuggingFace", "Lightning"]


class Training:
    """What both callbacks do. A training that cannot be watched goes on, and it is said once."""

    def __init__(self, *, lines: bool | None = None, limit: Size | None = None, prints: bool = True) -> None:
        super().__init__()
        self.watch: Watch | None = None
        self._lines, self._limit, self._prints = lines, parse_optional(limit), prints
        self._is_on = False

    def begin(self) -> None:
        try:
            self.watch = watch(lines=self._lines).__enter__()
            self._is_on = True
        except WatchError as error:
            self._say(f"makeroom: training is not watched: {error}")

    def step(self) -> None:
        if self._is_on and self.watch is not None:
            self.watch.step()

    def end(self) -> None:
        if not self._is_on or self.watch is None:
            return
        self._is_on = False
        self.watch.__exit__(None, None, None)
        self._say(f"makeroom: {self.watch!r}")
        if self._limit is not None and self.watch.peak_bytes > self._limit:
            raise MemoryError(
                f"training took {show(self.watch.peak_bytes)} of GPU memory; its limit is {show(self._limit)}"
            )

    def _say(self, text: str) -> None:
        if self._prints:
            print(text, file=sys.stderr)


def _hugging_face() -> type:
    try:
        from transformers import TrainerCallback
    except ImportError as error:
        raise ImportError("transformers is needed for this\n\nhint: pip install 'transformers[torch]'") from error

    class HuggingFace(Training, TrainerCallback):
        """A callback for `transformers.Trainer`."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.begin()

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.step()

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.end()

    return HuggingFace


def _lightning() -> type:
    from importlib import import_module

    # The one that the program uses first, where both are installed.
    names = sorted(("lightning.pytorch", "pytorch_lightning"), key=lambda name: sys.modules.get(name) is None)
    base: Any = None
    for name in names:
        try:
            base = import_module(name).Callback
            break
        except ImportError:
            continue
    if base is None:
        raise ImportError("lightning is needed for this\n\nhint: pip install lightning")

    class Lightning(Training, base):  # type: ignore[misc, valid-type]
        """A callback for `lightning.Trainer`."""

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self.begin()

        def on_train_batch_end(self, trainer: Any, pl_module: Any, *others: Any) -> None:
            self.step()

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            self.end()

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            self.end()

    return Lightning


_MAKERS = {"HuggingFace": _hugging_face, "Lightning": _lightning}


def __getattr__(name: str) -> Any:
    maker = _MAKERS.get(name)
    if maker is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = maker()
    return value
