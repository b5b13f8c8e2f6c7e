"""The pool under frameworks: the library is the real one, on the software GPU; frameworks are what they document."""

from __future__ import annotations

import sys
import types

import pytest

import makeroom
from makeroom._impl import _pool_expandable
from makeroom._impl._pool_expandable import install

FAKES = """
import ctypes, sys, types
import makeroom

def module(name, **contents):
    made = types.ModuleType(name)
    made.__dict__.update(contents)
    sys.modules[name] = made
    return made

class Stream:
    def __init__(self, ptr=0): self.ptr = ptr
"""

CUPY = FAKES + """
class OutOfMemoryError(MemoryError):
    def __init__(self, size, total, limit=0):
        super().__init__(f"Out of memory allocating {size} bytes (allocated so far: {total} bytes).")

class PythonFunctionAllocator:
    def __init__(self, malloc_func, free_func): self.allocate, self.free = malloc_func, free_func
    def malloc(self, size): return self.allocate(size, 0)

chosen = []
cuda = types.SimpleNamespace(
    PythonFunctionAllocator=PythonFunctionAllocator, set_allocator=chosen.append,
    get_current_stream=lambda: Stream(), memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError))
module("cupy", cuda=cuda)
pool = makeroom.use_pool(limit="1GiB")
(malloc,) = chosen
allocator = malloc.__self__
one, two = malloc(100 << 20), malloc(1 << 20)
print(one % 512, two % 512, one != two, pool.stats().live >> 20, pool.stats().blocks)
allocator.free(one, 0)
print(pool.stats().live >> 20, pool.stats().peak_live >> 20)
print(repr(pool))
try:
    malloc(2 << 30)
except OutOfMemoryError as error:
    print(type(error).__name__, isinstance(error.__cause__, makeroom.PoolError), error.__cause__.shortage.requested >> 20)
try:
    allocator.free(one, 0)
except makeroom.PoolError as error:
    print(error)
try:
    pool.record_stream(one, 0)
except makeroom.PoolError as error:
    print(str(error).splitlines()[0])
with makeroom.watch() as w:
    three = malloc(7 << 20)
    allocator.free(malloc(9 << 20), 0)
print(w.source, w.peak_bytes >> 20, w.left_bytes >> 20)
pool.snapshot("pool.pickle")
print(makeroom.open("pool.pickle").kind, makeroom.use_pool() is pool, pool.trim() > 0)
pool.destroy()
"""

THREADS = """
import threading, time
from makeroom._impl._pool import Pool

pool = Pool()
call, made = pool.library.call, []

def slowly(name, *arguments):
    if name == "pool_create":
        made.append(name)
        time.sleep(0.1)
    return call(name, *arguments)

pool.library.call = slowly
threads = [threading.Thread(target=pool.allocate, args=(1 << 20,)) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(made), pool.stats().blocks)
"""

RMM = FAKES + """
class CallbackMemoryResource:
    def __init__(self, allocate_func, deallocate_func): self.allocate, self.deallocate = allocate_func, deallocate_func

class Opaque:
    waits = 0
    def synchronize(self): Opaque.waits += 1
    def is_default(self): return False

current = []
module("rmm", mr=types.SimpleNamespace(CallbackMemoryResource=CallbackMemoryResource, set_current_device_resource=current.append))
pool = makeroom.use_pool("rmm")
(resource,) = current
for stream in (0, None, Stream(0), types.SimpleNamespace(__cuda_stream__=lambda: (0, 0)), Opaque()):
    address = resource.allocate(3 << 20, stream)
    assert address % 512 == 0 and pool.stats().live == 3 << 20
    resource.deallocate(address, 3 << 20, stream)
    assert pool.stats().live == 0
print(Opaque.waits, pool.frameworks)
"""

TORCH = FAKES + """

class Inner:
    pass

for name in "set_init_fn set_reset_fn set_memory_fraction_fn set_base_alloc_fn set_record_stream_fn set_begin_allocate_to_pool " \\
        "set_end_allocate_to_pool_fn set_release_pool".split():
    setattr(Inner, name, lambda self, address, name=name: self.__dict__.__setitem__(name, address))

class CUDAPluggableAllocator:
    def __init__(self, path, alloc, free):
        library = ctypes.CDLL(path)
        self.alloc, self.free = getattr(library, alloc), getattr(library, free)
        self.alloc.restype = ctypes.c_void_p
        self.alloc.argtypes = [ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
        self.free.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
        self.inner = Inner()
    def allocator(self): return self.inner

current = []
def change_current_allocator(allocator):
    if current: raise RuntimeError("Can't swap an already initialized allocator")
    current.append(allocator)

def refuse(*arguments): raise RuntimeError("CUDAPluggableAllocator does not yet support this")
C = types.SimpleNamespace(_cuda_memoryStats=refuse, _cuda_resetPeakMemoryStats=refuse, _cuda_memorySnapshot=refuse,
                          _cuda_record_memory_history=refuse)
settings = []
memory = types.SimpleNamespace(CUDAPluggableAllocator=CUDAPluggableAllocator, change_current_allocator=change_current_allocator,
                               _set_allocator_settings=settings.append)
cuda = types.SimpleNamespace(memory=memory, is_initialized=lambda: True, current_device=lambda: 0, device_count=lambda: 1)
torch = module("torch", cuda=cuda, _C=C, version=types.SimpleNamespace(cuda="13.0"), __version__="2.11.0")

pool = makeroom.use_pool(history=1000, pluggable=True)
(allocator,) = current
print(len(vars(allocator.inner)))
tensor = allocator.alloc(64 << 20, 0, None)
stats = C._cuda_memoryStats(0)
print(stats["allocated_bytes"]["all"]["current"] >> 20, stats["reserved_bytes"]["all"]["current"] >= 64 << 20)
allocator.free(tensor, 64 << 20, 0, None)
stats = C._cuda_memoryStats(0)
print(stats["allocated_bytes"]["all"]["current"], stats["allocated_bytes"]["all"]["peak"] >> 20)
C._cuda_resetPeakMemoryStats(0)
print(C._cuda_memoryStats(0)["allocated_bytes"]["all"]["peak"])
snapshot = C._cuda_memorySnapshot(None)
print(sorted(snapshot)[:2], [event["action"] for event in snapshot["device_traces"][0] if event["action"] in ("alloc", "free_completed")])
C._cuda_record_memory_history("all")
print(pool.stats().peak_live, repr(pool).splitlines()[0])
"""


EXPANDABLE = FAKES + """
from makeroom._impl import _pool_expandable
_pool_expandable.may_copy_descriptors = lambda: True
settings, histories, resets, dumped = [], [], [], []
figures = {}
for name, current, peak in (("requested_bytes", 900, 5000), ("allocated_bytes", 1024, 6144), ("active_bytes", 1536, 6144),
                            ("reserved_bytes", 4096, 8192), ("active", 3, 7), ("allocation", 2, 7)):
    figures[f"{name}.all.current"], figures[f"{name}.all.peak"] = current, peak
figures["allocation.all.allocated"], figures["num_ooms"] = 40, 1
memory = types.SimpleNamespace(
    CUDAPluggableAllocator=None, _set_allocator_settings=settings.append, _dump_snapshot=dumped.append,
    _record_memory_history=lambda **options: histories.append(options))
cuda = types.SimpleNamespace(memory=memory, is_initialized=lambda: True, current_device=lambda: 0, device_count=lambda: 1,
                             memory_stats=lambda device: figures, reset_peak_memory_stats=resets.append)
module("torch", cuda=cuda, version=types.SimpleNamespace(cuda="13.0"), __version__="2.11.0")
pool = makeroom.use_pool(OPTIONS)
print(settings, histories)
stats = pool.stats()
print(stats.live, stats.pending, stats.rounding, stats.cached, stats.reserved == stats.live + stats.rounding + stats.cached)
print(stats.peak_live, stats.peak_reserved, stats.blocks, stats.allocations, stats.refusals)
pool.reset_peaks()
pool.snapshot("torch.pickle")
print(resets, dumped)
print(repr(pool).splitlines()[0])
"""


def test_pytorch_keeps_its_allocator_with_expandable_segments(software_gpu):
    done = software_gpu.python(EXPANDABLE.replace("OPTIONS", "history=1000"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "['expandable_segments:True'] [{'max_entries': 1000}]",
        "1412 512 124 2560 True",
        "5000 8192 3 40 1",
        "[0] ['torch.pickle']",
        "PyTorch's own allocator with expandable segments",
    ]


@pytest.mark.parametrize(
    ("theirs", "settings"),
    [
        ("", "expandable_segments:True"),
        (
            "roundup_power2_divisions:[256:1,512:2,>:4], max_split_size_mb:64,backend:native",
            "roundup_power2_divisions:[256:1,512:2,>:4],max_split_size_mb:64,expandable_segments:True",
        ),
        ("expandable_segments: True", "expandable_segments:True"),
        ("expandable_segments:False", None),
        ("backend:cudaMallocAsync", None),
    ],
)
def test_the_users_settings_of_pytorch_are_kept(theirs, settings, monkeypatch):
    given = []
    torch, pool = fake_torch(given, "2.11.0+cu130", monkeypatch), types.SimpleNamespace(history=0)
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", theirs)
    if settings is None:
        with pytest.warns(UserWarning, match=f"without expandable segments: PYTORCH_ALLOC_CONF has {theirs}"):
            assert not install(torch, pool)
        assert given == []
    else:
        assert install(torch, pool)
        assert given == [settings]
        monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:32")
        assert install(torch, pool)
        assert given[1] == "max_split_size_mb:32,expandable_segments:True", "PyTorch reads this one first"


def fake_torch(given, version, monkeypatch):
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    # The tests may run in a container that does not permit it.
    monkeypatch.setattr(_pool_expandable, "may_copy_descriptors", lambda: True)
    memory = types.SimpleNamespace(_set_allocator_settings=given.append)
    built = types.SimpleNamespace(cuda="13.0")
    return types.SimpleNamespace(__version__=version, version=built, cuda=types.SimpleNamespace(memory=memory))


def test_pytorch_2_0_takes_settings_and_has_no_expandable_segments(monkeypatch):
    assert not _pool_expandable.is_possible(fake_torch([], "2.0.1", monkeypatch))
    assert _pool_expandable.is_possible(fake_torch([], "2.1.0", monkeypatch))


def test_settings_that_pytorch_does_not_read_are_not_merged(monkeypatch):
    given = []
    torch, pool = fake_torch(given, "2.9.1", monkeypatch), types.SimpleNamespace(history=0)
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "per_process_memory_fraction:0.5")
    assert install(torch, pool)
    assert given == ["expandable_segments:True"], "2.9 rejects a setting of 2.10"
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:False")
    with pytest.warns(UserWarning, match="PYTORCH_ALLOC_CONF has expandable_segments:False"):
        assert not install(torch, pool)


def test_a_system_on_which_tensors_could_not_be_shared_keeps_the_default_allocator(monkeypatch):
    given = []
    torch, pool = fake_torch(given, "2.11.0", monkeypatch), types.SimpleNamespace(history=0)
    monkeypatch.setattr(_pool_expandable, "may_copy_descriptors", lambda: False)
    with pytest.warns(UserWarning, match="pidfd_getfd, which this system does not permit"):
        assert not install(torch, pool)
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    assert install(torch, pool), "the user asked for them"
    assert given == ["expandable_segments:True"]
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF")
    monkeypatch.setattr(_pool_expandable, "may_copy_descriptors", lambda: True)
    torch.__version__ = "2.4.1"
    with pytest.warns(UserWarning, match="PyTorch 2.4 cannot share"):
        assert not install(torch, pool)


def test_a_pool_that_left_pytorch_alone_does_not_claim_expandable_segments(software_gpu):
    code = EXPANDABLE.replace("OPTIONS", "").replace(
        "pool = makeroom", "import os; os.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'expandable_segments:False'\npool = makeroom"
    )
    done = software_gpu.python(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "[] []"
    assert done.stdout.splitlines()[-1] == "PyTorch's own allocator"
    assert "PYTORCH_CUDA_ALLOC_CONF has expandable_segments:False" in done.stderr


@pytest.mark.parametrize("options", ["limit='1GiB'", "spill='1GiB'", "pluggable=True"])
def test_a_limit_and_spilling_put_pytorch_on_the_pool(options, software_gpu):
    done = software_gpu.python(TORCH.replace("history=1000, pluggable=True", f"history=1000, {options}"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "0 makeroom's pool under torch"


def test_cupy_on_the_pool(software_gpu, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = software_gpu.python(CUPY)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["0 0 True 101 2", "1 101"]
    assert lines[2] == "makeroom's pool under cupy"
    assert lines[3].startswith("  GPU 0: 1.00 MiB live in 1 block, ") and "at the peak 101.00 MiB" in lines[3]
    assert lines[4] == "OutOfMemoryError True 2048"
    assert "is not in use here" in lines[5]
    assert sum("is not in use here" in line for line in lines) == 2, "a stream cannot be recorded for it either"
    assert lines[-2:] == ["pool 17 7", "torch-snapshot True True"]


def test_threads_that_come_at_once_share_one_pool(software_gpu):
    done = software_gpu.python(THREADS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "8"]


def test_rmm_on_the_pool(software_gpu):
    done = software_gpu.python(RMM)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1 ('rmm',)\n"


def test_pytorch_on_the_pool(software_gpu):
    done = software_gpu.python(TORCH)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "8",
        "64 True",
        "0 64",
        "0",
        "['allocator_settings', 'device_traces'] ['alloc', 'free_completed']",
        "0 makeroom's pool under torch",
    ]
    assert "UserWarning" not in done.stderr


def test_a_pytorch_that_has_begun_is_told(software_gpu):
    late = TORCH.replace("pool = makeroom", "current.append(1)\npool = makeroom")
    done = software_gpu.python(late)
    assert "PyTorch has used its own allocator already" in done.stderr and "makeroom run --pool" in done.stderr


def test_a_history_that_was_not_asked_for_is_told(software_gpu):
    done = software_gpu.python(TORCH.replace("history=1000, ", "").replace('[event["action"]', '["alloc"] and [event["action"]'))
    assert "use_pool(history=100_000)" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("tensorflow",), "does not support 'tensorflow'\n\nhint: it supports torch, cupy, rmm"),
        (("cupy",), "pip install cupy"),
        ((), "no framework is imported yet"),
    ],
)
def test_wrong_frameworks_are_answered(words, message, monkeypatch):
    for name in ("torch", "cupy", "rmm"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "cupy", None) if words else None
    with pytest.raises(makeroom.PoolError) as caught:
        makeroom.use_pool(*words)
    assert message in str(caught.value)


def missing(settings):
    raise AttributeError("module 'torch._C' has no attribute '_cuda_cudaCachingAllocator_set_allocator_settings'")


@pytest.mark.parametrize(
    ("torch", "message"),
    [
        (types.SimpleNamespace(__version__="1.13"), "PyTorch 1.13 does not support other allocators"),
        (
            types.SimpleNamespace(
                __version__="2.11+cpu",
                version=types.SimpleNamespace(cuda=None),
                cuda=types.SimpleNamespace(
                    memory=types.SimpleNamespace(CUDAPluggableAllocator=object, _set_allocator_settings=missing)
                ),
            ),
            "built without CUDA",
        ),
    ],
)
def test_a_pytorch_that_cannot_is_told(torch, message, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", torch)
    with pytest.raises(makeroom.PoolError, match=message):
        makeroom.use_pool("torch")


def test_no_driver_is_told(monkeypatch, tmp_path):
    from makeroom._impl._pool import Pool

    pytest.importorskip("ctypes")
    try:
        __import__("ctypes").CDLL("libcuda.so.1")
    except OSError:
        with pytest.raises(makeroom.PoolError, match="libcuda"):
            Pool().allocate(1)
