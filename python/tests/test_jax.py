"""JAX: its profile of live buffers with the real package on the CPU, and its counters with the documented interface."""

from __future__ import annotations

import subprocess
import sys
import types
from importlib.util import find_spec
from pathlib import Path

import pytest

import makeroom
from makeroom._impl import _jax

MIB = 1 << 20


def run(script: str) -> str:
    # Importing it here would change what `watch` finds in other tests.
    if find_spec("jax") is None:
        pytest.skip("no JAX")
    environment = {"PATH": "/usr/bin:/bin", "JAX_PLATFORMS": "cpu", "COLUMNS": "110", "HOME": "/tmp"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_profile_is_a_recording(traces: Path):
    trace = makeroom.open(traces / "jax_memory.prof.gz")
    assert (trace.kind, trace.devices, len(trace)) == ("jax-profile", [0], 0)
    sizes = {}
    for row in trace.allocations:
        sizes[row["site"]] = sizes.get(row["site"], 0) + row["size"]
    # Two arrays of 256 rows and two of 512, one of a million numbers, and a product.
    expected = {"user/train.py:3 layer": 6 * MIB, "user/train.py:6 train": 4_000_000, "user/train.py:9 <module>": 256 << 10}
    assert sizes == expected
    explanation = trace.explain()
    assert explanation.cause == "undetermined" and "10.06 MiB in 6 buffers" in explanation.summary
    with pytest.raises(makeroom.UsageError, match="profile of live buffers"):
        trace.tune()
    assert len(trace.view().html) > 100_000


def test_a_failure_is_explained_with_the_lines_of_live_buffers(tmp_path: Path):
    program = tmp_path / "program.py"
    program.write_text(
        """
import jax, jax.numpy as jnp, jaxlib
import makeroom

def layer():
    return jnp.ones((4, 1024, 1024), jnp.float32)

kept = [layer() for _ in range(3)]
text = ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes.")
try:
    raise jax.errors.JaxRuntimeError(text)
except RuntimeError as error:
    explanation = makeroom.explain(error)
print(explanation)
print(makeroom.explain(MemoryError(text)).to_dict()["sites"])
"""
    )
    shown = run(f"exec(compile(open({str(program)!r}).read(), {str(program)!r}, 'exec'))")
    assert "Live memory, by line of code" in shown
    assert "48.00 MiB" in shown and "program.py:6 layer" in shown
    assert "largest live arrays: 3 × float32[4,1024,1024] (48.00 MiB)" in shown
    assert "8.00 GiB" in shown
    # An error of something else says nothing about JAX's buffers.
    assert shown.rstrip().endswith("[]")


def test_the_example_shows_what_the_documents_show(examples: Path):
    if find_spec("jax") is None:
        pytest.skip("no JAX")
    root = examples.parent
    environment = {"PATH": "/usr/bin:/bin", "JAX_PLATFORMS": "cpu", "COLUMNS": "100", "HOME": "/tmp"}
    words = [sys.executable, "-W", "ignore", "examples/python/jax_step.py"]
    done = subprocess.run(words, cwd=root, env=environment, stdout=subprocess.PIPE, text=True, timeout=300)
    shown = done.stdout.split("; makeroom doctor\n\n")[1].split("\n\n  Fixes")[0]
    document = (root / "docs/python.md").read_text(encoding="utf-8")
    # Lines inside of JAX differ between its versions.
    own = [line.replace(f"{root}/", "") for line in shown.splitlines() if "jax/_src" not in line]
    assert "\n  Live memory, by line of code\n    144.00 MiB  python/jax_step.py:28 main\n" in shown
    assert [line for line in own if line not in document] == []


def test_nothing_starts_jax():
    shown = run(
        "import warnings; warnings.simplefilter('ignore')\n"
        "import jax, makeroom\nfrom makeroom._impl import _jax\n"
        "with makeroom.watch() as w: pass\n"
        "print(_jax.is_started(), w.source, w.notes)\n"
        "print(makeroom.explain(jax.errors.JaxRuntimeError('RESOURCE_EXHAUSTED: Out of memory')).cause, _jax.is_started())\n"
        "jax.numpy.ones(3).block_until_ready()\n"
        "print(_jax.is_started(), _jax.why_not().splitlines()[0])\n"
    ).splitlines()
    assert shown[0].startswith("False jax") and "JAX used no GPU" in shown[0]
    assert shown[1].endswith("False")
    assert shown[2] == "True JAX found no GPU"


class Device:
    """A GPU with the statistics that JAX documents."""

    platform, id, local_hardware_id = "gpu", 0, 0

    def __init__(self):
        self.live = self.most = 100

    def take(self, bytes):
        self.live += bytes
        self.most = max(self.most, self.live)

    def memory_stats(self):
        return {"bytes_in_use": self.live, "peak_bytes_in_use": self.most, "bytes_limit": 1 << 40}


@pytest.fixture
def device(monkeypatch):
    device = Device()
    jax = types.ModuleType("jax")
    jax.local_devices = lambda: [device]
    bridge = types.ModuleType("jax._src.xla_bridge")
    bridge.backends_are_initialized = lambda: True
    monkeypatch.setitem(sys.modules, "jax", jax)
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", bridge)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    return device


def test_jax_s_counters_are_watched(device):
    with makeroom.watch() as w:
        for _ in range(4):
            device.take(1000)
            device.take(-990)
            w.step()
    (figures,) = w.devices
    assert w.source == "jax"
    assert (figures.before_bytes, figures.peak_bytes, figures.after_bytes, w.left_bytes) == (100, 1130, 140, 40)
    assert [step.peak_bytes for step in figures.steps] == [1100, 1110, 1120, 1130]
    assert w.leak_per_step_bytes == 10
    assert "lower bound" not in repr(w)


def test_a_peak_that_jax_had_before_is_said_to_be_unknown(device):
    device.take(5000)
    device.take(-5000)
    with makeroom.watch() as w:
        device.take(1000)
        device.take(-900)
    assert (w.peak_bytes, w.left_bytes) == (200, 100)
    assert "the peak here is a lower bound" in repr(w)


def test_a_device_that_starts_later_was_empty_before(device, monkeypatch):
    bridge = sys.modules["jax._src.xla_bridge"]
    started = []
    bridge.backends_are_initialized = lambda: bool(started)
    device.live = device.most = 0
    with makeroom.watch(source=None) as w:
        w.step()
        started.append(True)
        device.take(300)
        w.step()
        device.take(300)
        w.step()
    (figures,) = w.devices
    assert figures.before_bytes == 0 and figures.after_bytes == 600
    assert [step.after_bytes for step in figures.steps] == [0, 300, 600]


def test_lines_come_from_profiles(device, monkeypatch, traces: Path):
    """A real profile stands for JAX's, before and after."""
    profile = (traces / "jax_memory.prof.gz").read_bytes()
    jax = sys.modules["jax"]
    profiles = [profile]
    jax.profiler = types.SimpleNamespace(device_memory_profile=lambda: profiles[-1])
    jax.live_arrays = lambda: []
    monkeypatch.setattr(_jax, "_by_line", _counting(_jax._by_line))
    device.take(64 * MIB)
    with makeroom.watch(lines=True) as w:
        device.take(6 * MIB)
        w.step()
    (figures,) = w.devices
    assert [site.place for site in figures.sites][:2] == ["user/train.py:3 layer", "user/train.py:6 train"]
    # The second and the third profile have twice as much of everything.
    assert [(site.bytes, site.blocks) for site in figures.left_sites][:1] == [(6 * MIB, 4)]
    assert [(site.place, site.bytes) for site in figures.taken_sites][:1] == [("user/train.py:3 layer", 6 * MIB)]


def _counting(by_line):
    count = [0]

    def doubled(recording):
        count[0] += 1
        factor = 1 if count[0] == 1 else 2
        found = by_line(recording)
        return {
            device: {site: (bytes * factor, blocks * factor) for site, (bytes, blocks) in lines.items()}
            for device, lines in found.items()
        }

    return doubled


def failed(
    device: Device, limit: int, pool: int, request: int, largest: int = 0, peak: int = 0, text: str = ""
) -> makeroom.Explanation:
    stats = {"bytes_in_use": device.live, "bytes_limit": limit, "pool_bytes": pool, "largest_free_block_bytes": largest}
    device.memory_stats = lambda: {**stats, **({"peak_bytes_in_use": peak} if peak else {})}
    error = type("JaxRuntimeError", (RuntimeError,), {})
    return makeroom.explain(error(f"RESOURCE_EXHAUSTED: Out of memory while trying to allocate {request} bytes.{text}"))


def test_the_allocator_s_figures_decide(device):
    gib = 1 << 30
    device.live = 70 * gib
    full = failed(device, 72 * gib, 72 * gib, 4 * gib)
    assert (full.cause, full.request_bytes) == ("live_data_fills_device", 4 * gib)
    assert [(line.what, line.bytes) for line in full.ledger.lines] == [("live tensors", 70 * gib), ("cached", 2 * gib)]
    assert "donate_argnums" in repr(full)
    device.live = 60 * gib
    assert failed(device, 72 * gib, 72 * gib, 4 * gib, largest=gib).cause == "fragmentation"
    # The pool may grow, and could not.
    assert failed(device, 72 * gib, 61 * gib, 4 * gib, largest=gib).cause == "other_processes"


def test_the_peak_decides_after_the_failed_computation_has_freed_its_buffers(device):
    """Figures of an H200 that was full, on which the request would succeed when the error is explained."""
    gib = 1 << 30
    device.live = 100 * gib
    full = failed(device, 105 * gib, 104 * gib, 4 * gib, largest=4 * gib, peak=104 * gib)
    assert (full.cause, full.certainty) == ("live_data_fills_device", "likely")
    assert "was in use, so 4.00 GiB more did not fit. 100.00 GiB is still in use" in full.summary
    # Free blocks of now are not those that the request met.
    assert [(line.what, line.bytes) for line in full.ledger.lines] == [("live tensors", 100 * gib)]
    # Much was freed since: the peak may be older than the failure.
    device.live = 30 * gib
    possible = failed(device, 72 * gib, 72 * gib, 4 * gib, largest=40 * gib, peak=70 * gib)
    assert (possible.cause, possible.certainty) == ("live_data_fills_device", "possible")
    # The request would have fit at any time, in one piece.
    pieces = failed(device, 72 * gib, 72 * gib, 4 * gib, largest=40 * gib, peak=60 * gib)
    assert (pieces.cause, pieces.certainty) == ("fragmentation", "likely")
    assert failed(device, 72 * gib, 61 * gib, 4 * gib, largest=31 * gib, peak=60 * gib).cause == "other_processes"
    assert failed(device, 72 * gib, 72 * gib, 80 * gib, largest=42 * gib, peak=60 * gib).cause == "request_exceeds_device"


def test_the_figures_in_the_error_come_first(device):
    gib = 1 << 30
    device.live = 1 * gib
    report = (
        "\nAllocator (GPU_0_bfc) ran out of memory trying to allocate 4.00GiB (rounded to 4294967296)\n"
        f"Stats:\nLimit: {72 * gib}\nInUse: {70 * gib}\nMaxInUse: {71 * gib}\n"
    )
    explanation = failed(device, 72 * gib, 72 * gib, 4 * gib, largest=71 * gib, peak=60 * gib, text=report)
    assert explanation.cause == "live_data_fills_device" and "70.00 GiB" in explanation.summary


def test_the_device_in_the_error_decides(device):
    gib = 1 << 30
    other = Device()
    other.id = other.local_hardware_id = 1
    other.memory_stats = lambda: {"bytes_in_use": 71 * gib, "bytes_limit": 72 * gib, "pool_bytes": 72 * gib}
    sys.modules["jax"].local_devices = lambda: [device, other]
    device.live = 60 * gib
    text = " with allocator GPU_0_bfc on device 0."
    assert failed(device, 72 * gib, 72 * gib, 4 * gib, largest=gib, text=text).ledger.lines[0].bytes == 60 * gib
    assert failed(device, 72 * gib, 72 * gib, 4 * gib, largest=gib).ledger.lines[0].bytes == 71 * gib


def test_figures_that_do_not_show_the_failure_are_left_out(device):
    gib = 1 << 30
    device.live = 30 * gib
    # The memory that the failed program held is free again.
    explanation = failed(device, 72 * gib, 72 * gib, 40 * gib, largest=42 * gib)
    assert explanation.cause == "undetermined" and explanation.ledger is None
    device.memory_stats = lambda: {"bytes_in_use": 1, "bytes_limit": 0}
    assert makeroom.explain(RuntimeError("CUDA error: out of memory")).ledger is None


FAILING = """
import sys, threading, time
import jax, jax.numpy as jnp, numpy
import makeroom
from makeroom._impl import _jax

may_go_on = threading.Event()

def run_out(x):
    may_go_on.wait(100)
    raise MemoryError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4294967296 bytes.")

def wait(x):
    may_end.wait(100)
    return numpy.ones((3, 5), numpy.float32)

def compute(function, shape):
    result = jax.ShapeDtypeStruct(shape, jnp.float32)
    return jax.jit(lambda x: jax.pure_callback(function, result, x))(busy(large))

large = jnp.ones((2000, 2000))
busy = jax.jit(lambda x: x @ x @ x @ x @ x @ x)
busy(large).block_until_ready()

def keep():
    return jnp.ones((1 << 20,), jnp.float32)

def fail():
    return compute(run_out, (1 << 20, 7))

kept = [keep() for _ in range(3)]
failed = fail()
may_go_on.set()
while not failed.is_ready():
    time.sleep(0.01)
may_end = threading.Event()
pending = compute(wait, (3, 5))
try:
    failed.block_until_ready()
except Exception as error:
    explanation = makeroom.explain(error)
assert not pending.is_ready(), "explaining does not wait"
may_end.set()
pending.block_until_ready()
print(explanation.notes)
for site in explanation.sites:
    print(site.bytes, site.place)
sys.stdout.flush()
# JAX would report the failed computation at exit.
import os; os._exit(0)
"""


def test_an_array_whose_computation_failed_is_not_live(tmp_path: Path):
    program = tmp_path / "program.py"
    program.write_text(FAILING)
    notes, *lines = run(f"exec(compile(open({str(program)!r}).read(), {str(program)!r}, 'exec'))").splitlines()
    assert "float32[1048576] (12.00 MiB)" in notes and "float32[3,5]" in notes and "1048576,7" not in notes
    assert any(line.startswith(f"{12 * MIB} ") and line.endswith(" keep") for line in lines), lines
    assert not [line for line in lines if "fail" in line]


def test_no_more_is_listed_than_is_in_use(device, traces: Path):
    jax = sys.modules["jax"]
    jax.profiler = types.SimpleNamespace(device_memory_profile=lambda: (traces / "jax_memory.prof.gz").read_bytes())
    jax.live_arrays = lambda: []
    # The profile has 10.06 MiB.
    device.live = 11 * MIB
    assert len(failed(device, 1 << 40, 0, 1 << 50).sites) == 3
    device.live = 10 * MIB
    explanation = failed(device, 1 << 40, 0, 1 << 50)
    assert explanation.sites == []
    note = "JAX's profile lists 10.06 MiB on GPU 0, but JAX's allocator has only 10.00 MiB in use there, so the profile's lines for this GPU are omitted"
    assert note in explanation.notes


def test_the_pool_says_what_serves_jax():
    with pytest.raises(makeroom.PoolError, match="makeroom run --pool"):
        makeroom.use_pool("jax")
