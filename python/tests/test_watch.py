"""`watch` with the recorder on the software GPU, with PyTorch's documented counters, and without a source."""

from __future__ import annotations

import json
import pickle
import sys
import types

import pytest

import makeroom

RECORDED = """
import ctypes, json, sys
import makeroom
from driver import Driver

MIB = 1 << 20
driver = Driver()
kept = [driver.take(64 * MIB)]

def train():
    buffer = driver.take(256 * MIB)
    keep()
    driver.give(buffer)

def keep():
    # Without a helper function, so that this is the line that allocates.
    kept.append(ctypes.c_uint64())
    driver.library.cuMemAlloc_v2(ctypes.byref(kept[-1]), ctypes.c_size_t(2 * MIB))

with makeroom.watch() as w:
    for _ in range(6):
        train()
        w.step()
    last = driver.take(8 * MIB)
json.dump(w.to_dict(), sys.stdout)
print(w, file=sys.stderr)
"""


@pytest.fixture(scope="module")
def recorded(command, software_gpu, tmp_path_factory):
    file = tmp_path_factory.mktemp("watch") / "run.room"
    done = software_gpu.python(RECORDED, command, "run", "-o", str(file), "--")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def test_the_recorder_knows_peak_and_leaks(recorded):
    figures, _ = recorded
    mib = 1 << 20
    (device,) = figures["devices"]
    assert figures["source"] == "recorder"
    assert device["before_bytes"] == 64 * mib
    assert device["peak_bytes"] == (64 + 5 * 2 + 256 + 2) * mib
    assert device["after_bytes"] == (64 + 6 * 2 + 8) * mib
    assert (device["left_bytes"], device["left_blocks"]) == ((6 * 2 + 8) * mib, 7)
    assert device["allocations"] == 13
    assert device["leak_per_step_bytes"] == 2 * mib
    assert len(device["steps"]) == 6


def test_the_recorder_knows_the_lines(recorded):
    figures, text = recorded
    (device,) = figures["devices"]
    assert "keep" in json.dumps(device["leaking"])
    assert "driver.py:20" in json.dumps(device["sites"])
    assert "6 steps: each leaks 2.00 MiB" in text
    assert "watched for " in text and "(source: recorder)" in text


def test_the_recording_of_the_run_is_not_disturbed(recorded):
    _, text = recorded
    assert "used up to 332.00 MiB of GPU memory" in text


def test_a_recorded_process_without_cuda_used_nothing(command, software_gpu, tmp_path):
    script = "import makeroom\nwith makeroom.watch() as w: pass\nprint(w.peak_bytes, w.devices); print(w)"
    done = software_gpu.python(script, command, "run", "-o", str(tmp_path / "run.room"), "--")
    assert done.stdout.startswith("0 []\nwatched for "), done.stderr
    assert "no GPU memory was used" in done.stdout


def test_an_exception_under_the_recorder_is_explained_from_the_recording(command, software_gpu, tmp_path):
    script = """
import makeroom
from driver import Driver
driver = Driver()
held = [driver.take(1 << 30) for _ in range(7)]
try:
    driver.take(1 << 30)
except RuntimeError as error:
    print(makeroom.explain(error))
"""
    done = software_gpu.python(script, command, "run", "-o", str(tmp_path / "run.room"), "--no-status", "--")
    assert done.returncode == 0, done.stderr
    assert "Live memory, by line of code" in done.stdout and "7.00 GiB" in done.stdout


def test_the_verdict_is_printed_once_under_the_recorder(command, software_gpu, tmp_path):
    script = """
import makeroom
from driver import Driver
makeroom.install_excepthook()
driver = Driver()
held = [driver.take(1 << 30) for _ in range(7)]
driver.take(1 << 30)
"""
    done = software_gpu.python(script, command, "run", "-o", str(tmp_path / "run.room"), "--no-status", "--")
    assert done.returncode == 1
    assert done.stderr.count("Live memory, by line of code") == done.stderr.count("Fixes, most effective first") == 1
    assert done.stderr.count("makeroom run prints the explanation") == 1


def test_a_block_that_cannot_be_watched_runs():
    with pytest.warns(makeroom.WatchWarning, match="PyTorch is not imported") as warned:
        watched = makeroom.watch()
    assert len(warned) == 1 and warned[0].filename == __file__
    with watched as w:
        ran = True
        w.step()
    assert ran and (w.source, w.peak_bytes, w.devices, w.leak_per_step_bytes, w.trace) == ("none", 0, [], None, None)
    assert repr(w).startswith("makeroom: GPU memory was not measured: this process is not recorded")
    assert w.to_dict()["devices"] == []


def test_a_framework_without_a_gpu_has_its_own_hint(monkeypatch):
    torch = types.SimpleNamespace(cuda=types.SimpleNamespace(is_available=lambda: False), version=types.SimpleNamespace(cuda="13.2"))
    monkeypatch.setitem(sys.modules, "torch", torch)
    with pytest.raises(makeroom.WatchError, match=r"PyTorch \(for CUDA 13.2\) found no GPU.*\n\nhint: run makeroom doctor"):
        makeroom.watch(required=True)


def test_nothing_to_watch_with_is_said():
    with pytest.raises(makeroom.WatchError, match=r"PyTorch is not imported and JAX is not imported\n\nhint: run it with makeroom run"):
        makeroom.watch(required=True)
    with pytest.raises(makeroom.WatchError, match="JAX is not imported"):
        makeroom.watch(source="jax")
    with pytest.raises(makeroom.WatchError, match="makeroom run"):
        makeroom.watch(source="recorder")
    with pytest.raises(makeroom.WatchError, match="use_pool"):
        makeroom.watch(source="pool")
    with pytest.raises(makeroom.WatchError, match="'recorder', 'pool', 'torch' or 'jax'"):
        makeroom.watch(source="nvidia-smi")


class Cuda(types.ModuleType):
    """The counters that `torch.cuda` documents."""

    def __init__(self):
        super().__init__("torch.cuda")
        self.live, self.most = 100, 100

    def take(self, bytes):
        self.live += bytes
        self.most = max(self.most, self.live)

    def is_available(self):
        return True

    def is_initialized(self):
        return True

    def device_count(self):
        return 1

    def memory_stats_as_nested_dict(self, device):
        return {"requested_bytes": {"all": {"current": self.live, "peak": self.most}}}

    def reset_peak_memory_stats(self, device):
        self.most = self.live


@pytest.fixture
def torch(monkeypatch):
    torch = types.ModuleType("torch")
    torch.cuda = Cuda()
    torch.version = types.SimpleNamespace(cuda="13.0")
    monkeypatch.setitem(sys.modules, "torch", torch)
    return torch


def test_pytorch_s_counters_are_watched(torch):
    with makeroom.watch() as w:
        torch.cuda.take(50)
        torch.cuda.take(-50)
        for _ in range(4):
            torch.cuda.take(1000)
            torch.cuda.take(-990)
            w.step()
    (device,) = w.devices
    assert w.source == "torch"
    assert (device.before_bytes, device.peak_bytes, device.after_bytes) == (100, 1130, 140)
    assert (w.peak_bytes, w.left_bytes, w.leak_per_step_bytes) == (1130, 40, 10)
    assert [step.peak_bytes for step in device.steps] == [1100, 1110, 1120, 1130]
    assert "4 steps: each leaks 10 B" in repr(w)
    assert "watch(lines=True)" in repr(w)


def test_a_watch_is_used_as_it_should_be(torch):
    w = makeroom.watch()
    with pytest.raises(makeroom.WatchError, match="outside the `with` block"):
        w.step()
    with w:
        with pytest.raises(makeroom.WatchError, match="still running"):
            w.peak_bytes
        assert "not finished" in repr(w)
    assert w.leak_per_step_bytes is None
    with pytest.raises(makeroom.WatchError, match="used only once"):
        w.__enter__()


@pytest.mark.parametrize(("cuda", "words"), [(None, "no CUDA support"), ("13.0", "found no GPU")])
def test_a_torch_without_a_gpu_is_told(torch, monkeypatch, cuda, words):
    torch.version.cuda = cuda
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(makeroom.WatchError, match=words):
        makeroom.watch(source="torch")


def test_pytorch_s_history_gives_lines(torch, traces):
    """A real snapshot stands for PyTorch's, with its original times."""
    import gzip
    import pickle

    with gzip.open(traces / "seed004.pickle.gz") as file:
        snapshot = pickle.load(file)
    calls = []
    torch._C = types.SimpleNamespace(_cuda_isHistoryEnabled=lambda: False)
    torch.cuda.memory = types.SimpleNamespace(
        _record_memory_history=lambda *words, **options: calls.append((words, options)), _snapshot=lambda: snapshot
    )
    with makeroom.watch(lines=True) as w:
        w._source._times[0] = 0
        w.step()
    assert calls == [(("all",), {"context": "all", "stacks": "python"}), ((None,), {})]
    assert w.peak_bytes == 233973620
    assert "seed004" in repr(w)


def test_a_finished_watch_can_be_pickled(torch):
    w = makeroom.watch()
    with w:
        torch.cuda.take(50)
        with pytest.raises(makeroom.WatchError, match="still running"):
            pickle.dumps(w)
    copy = pickle.loads(pickle.dumps(w))
    assert repr(copy) == repr(w) and copy.devices == w.devices and copy.to_dict() == w.to_dict()


def test_watches_are_compared_by_their_figures(torch):
    def watched(bytes):
        with makeroom.watch() as w:
            torch.cuda.take(bytes)
        return w

    one, other = watched(50), watched(60)
    assert one == pickle.loads(pickle.dumps(one)) and one != other and one != "watched"
    unfinished = makeroom.watch()
    assert unfinished == unfinished and unfinished != makeroom.watch() and unfinished != one


def test_figures_that_cannot_be_read_do_not_stop_the_program(torch, monkeypatch):
    def broken(device):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    def watched(**options):
        w = makeroom.watch(**options)
        w.__enter__()
        monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", broken)
        return w

    w = watched()
    with pytest.warns(makeroom.WatchWarning, match="cannot read the figures: CUDA error"):
        w.__exit__(None, None, None)
    assert (w.source, w.peak_bytes, w.devices) == ("none", 0, []) and "illegal memory access" in repr(w)
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "torch", torch)
    w = watched(required=True)
    with pytest.raises(makeroom.WatchError, match="cannot read the figures"):
        w.__exit__(None, None, None)
    # The exception of the block is the one that matters.
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "torch", torch)
    with pytest.raises(ZeroDivisionError) as caught:
        with makeroom.watch(required=True):
            monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", broken)
            1 / 0
    assert caught.value.__context__ is None


def test_a_recording_that_is_gone_is_not_taken_for_no_memory(command, software_gpu, tmp_path):
    script = """
import os, sys, warnings
import makeroom
from makeroom._impl import _recorder
from driver import Driver
driver = Driver()
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    with makeroom.watch() as w:
        driver.take(1 << 20)
        os.unlink(_recorder.path() or sys.exit("no recording"))
print(w.source, len(warned), w)
"""
    done = software_gpu.python(script, command, "run", "-o", str(tmp_path / "run.room"), "--no-status", "--")
    assert done.stdout.startswith("none 1 makeroom: GPU memory was not measured: cannot read the figures"), done.stdout + done.stderr


def test_the_example_shows_what_the_documents_show(command, software_gpu, examples, tmp_path):
    program = str(examples / "python/forgets.py")
    done = software_gpu.run(command, "run", "-o", str(tmp_path / "run.room"), "--", sys.executable, program)
    shown = done.stdout.splitlines()
    text = (examples / "../docs/python.md").read_text(encoding="utf-8")
    assert shown[0].startswith("watched for ") and shown[0].endswith(" s (source: recorder)"), done.stderr
    assert "\n".join(shown[1:]) in text
