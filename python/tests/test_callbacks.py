"""The callbacks, called as the Hugging Face Trainer and Lightning document it."""

from __future__ import annotations

import sys
import types

import pytest

import makeroom
from test_watch import torch  # noqa: F401 (a fixture)


@pytest.fixture
def callbacks(monkeypatch):
    from makeroom import callbacks

    for name in ("HuggingFace", "Lightning"):
        callbacks.__dict__.pop(name, None)
    yield callbacks
    for name in ("HuggingFace", "Lightning"):
        callbacks.__dict__.pop(name, None)


def test_the_trainer_of_hugging_face_is_watched(callbacks, torch, monkeypatch, capsys):  # noqa: F811
    class TrainerCallback:
        def on_epoch_end(self, args, state, control, **kwargs):
            """The Trainer calls every event of the base class."""

    monkeypatch.setitem(sys.modules, "transformers", types.SimpleNamespace(TrainerCallback=TrainerCallback))
    callback = callbacks.HuggingFace()
    assert isinstance(callback, TrainerCallback)
    callback.on_train_begin(None, None, None, model=None)
    for _ in range(3):
        torch.cuda.take(500)
        torch.cuda.take(-450)
        callback.on_step_end(None, None, None, model=None)
    callback.on_epoch_end(None, None, None)
    callback.on_train_end(None, None, None, model=None)
    assert callback.watch.leak_per_step_bytes == 50
    assert "3 steps: each leaks 50 B" in capsys.readouterr().err


def test_lightning_s_trainer_is_watched(callbacks, torch, monkeypatch):  # noqa: F811
    class Callback:
        pass

    monkeypatch.setitem(sys.modules, "lightning.pytorch", types.SimpleNamespace(Callback=Callback))
    callback = callbacks.Lightning(limit=300, prints=False)
    assert isinstance(callback, Callback)
    callback.on_train_start(None, None)
    torch.cuda.take(150)
    callback.on_train_batch_end(None, None, None, None, 0)
    torch.cuda.take(100)
    # After the step that exceeds it, not at the end of training.
    with pytest.raises(MemoryError, match="training peaked at 350 B of GPU memory; limit: 300 B"):
        callback.on_train_batch_end(None, None, None, None, 0)
    callback.on_exception(None, None, MemoryError())


def test_the_limit_does_not_replace_the_error_of_the_training(callbacks, torch, monkeypatch, capsys):  # noqa: F811
    monkeypatch.setitem(sys.modules, "lightning.pytorch", types.SimpleNamespace(Callback=object))
    callback = callbacks.Lightning(limit=300)
    callback.on_train_start(None, None)
    torch.cuda.take(500)
    callback.on_exception(None, None, RuntimeError("CUDA out of memory"))
    assert callback.watch.peak_bytes == 600 and "peak 600 B" in capsys.readouterr().err


def test_training_goes_on_where_nothing_can_be_watched(callbacks, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "lightning.pytorch", types.SimpleNamespace(Callback=object))
    callback = callbacks.Lightning()
    callback.on_train_start(None, None)
    callback.on_train_batch_end(None, None, None, None, 0)
    callback.on_train_end(None, None)
    assert capsys.readouterr().err.startswith("makeroom: GPU memory cannot be measured: this process is not recorded")
    assert (callback.watch.source, callback.watch.peak_bytes) == ("none", 0)


def test_missing_packages_are_named(callbacks, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ImportError, match="pip install 'transformers"):
        callbacks.HuggingFace
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match="pip install lightning"):
        callbacks.Lightning
    with pytest.raises(AttributeError):
        callbacks.Keras
    assert makeroom.__version__
