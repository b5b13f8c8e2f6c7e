"""`chunks` on the software GPU, through the driver; its piece sizes with a backend that counts bytes."""

from __future__ import annotations

import types

import pytest

import makeroom
from makeroom._impl import _chunks

numpy = pytest.importorskip("numpy")

DRIVER = """
import ctypes
import numpy
import makeroom

driver = ctypes.CDLL("libcuda.so.1")
sizes = []

def twice(piece):
    # The software GPU runs no kernels, so copies stand for one.
    sizes.append(piece.shape[0])
    scratch, result = piece.empty(), piece.empty()
    for to, source in ((scratch, piece), (result, scratch)):
        status = driver.cuMemcpyDtoDAsync_v2(ctypes.c_uint64(to.address), ctypes.c_uint64(source.address),
                                             ctypes.c_size_t(piece.nbytes), ctypes.c_void_p(piece.stream))
        assert status == 0, status
    assert piece.__cuda_array_interface__["shape"] == piece.shape
    return result

data = numpy.arange(24 << 20, dtype=numpy.float32).reshape(-1, 1024)
result = makeroom.chunks(data, twice, backend="driver")
assert (result == data).all() and result.dtype == data.dtype
print(len(sizes) > 2, sum(sizes) == len(data), max(sizes) * 4096 >> 20)
"""


def test_data_larger_than_the_device_goes_through_it(software_gpu):
    pytest.importorskip("numpy")
    done = software_gpu.python(DRIVER, MAKEROOM_SIMGPU="devices=1,memory=96MiB,context=16MiB")
    assert done.returncode == 0, done.stderr
    is_cut, is_whole, largest = done.stdout.split()
    # 96 MiB of data through 80 MiB of memory, with five arrays of each piece at once.
    assert (is_cut, is_whole) == ("True", "True")
    assert 4 <= int(largest) <= 16


def test_everything_is_given_back(software_gpu):
    script = DRIVER.replace(
        "print(", 'free = ctypes.c_size_t(); total = ctypes.c_size_t(); driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))\nprint(free.value >> 20, '
    )
    done = software_gpu.python(script, MAKEROOM_SIMGPU="devices=1,memory=96MiB,context=16MiB")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == "80"


PLACES = DRIVER[: DRIVER.index("data =")] + """
class File:
    # A data set in a file: reading makes a copy.
    def __init__(self, shape):
        self.array, self.shape = numpy.zeros(shape, numpy.float32), shape
    def __getitem__(self, rows):
        return self.array[rows].copy()
    def __setitem__(self, rows, values):
        self.array[rows] = values

data = numpy.random.default_rng(1).random((3 << 20, 4), dtype=numpy.float32)
whole, wide, apart = numpy.empty_like(data), numpy.empty(data.shape), numpy.empty((*data.shape, 2), numpy.float32)[:, :, 0]
for out in (whole, wide, apart):
    assert makeroom.chunks(data, twice, backend="driver", out=out, rows=700_000) is out
    assert (out == data).all()
file = File(data.shape)
makeroom.chunks(data, twice, backend="driver", out=file, rows=700_000)
assert (file.array == data).all()
assert (makeroom.chunks(data.T[:, ::2], twice, backend="driver", rows=3) == data.T[:, ::2]).all()
one = makeroom.chunks(data, twice, backend="driver", reduce=lambda one, two: one + two, rows=1 << 20)
assert (one == data[: 1 << 20] + data[1 << 20 : 2 << 20] + data[2 << 20 :]).all()
try:
    makeroom.chunks(data, lambda piece: piece.empty((3,)), backend="driver", rows=700_000)
except makeroom.UsageError as error:
    print(str(error).splitlines()[0])
"""


def test_results_come_to_any_place(software_gpu):
    done = software_gpu.python(PLACES, MAKEROOM_SIMGPU="devices=1,memory=96MiB,context=16MiB")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the function returned a result of shape (3,) for 700000 rows\n"


def test_no_driver_is_told():
    try:
        __import__("ctypes").CDLL("libcuda.so.1")
    except OSError:
        with pytest.raises(makeroom.UsageError, match="CUDA driver not found"):
            makeroom.chunks(numpy.zeros(3), lambda piece: piece, backend="driver")


class Counting:
    """A backend that only counts bytes: a piece needs three times its size while it is computed."""

    def __init__(self, bytes: int) -> None:
        self.bytes, self.held, self.most, self.pieces = bytes, 0, 0, []

    def room(self):
        return self.bytes - self.held

    def submit(self, rows, function):
        if self.held + 3 * rows.nbytes > self.bytes:
            raise MemoryError
        self.held += 2 * rows.nbytes
        self.most = max(self.most, self.held + rows.nbytes)
        self.pieces.append(len(rows))
        return rows.nbytes, function(rows)

    def fetch(self, ticket, place):
        pass

    def finish(self, ticket):
        self.held -= 2 * ticket[0]
        return ticket[1]

    def drain(self):
        assert self.held == 0

    def measure(self, work):
        self.most = 0
        return work(), self.most

    def is_out_of_memory(self, error):
        return isinstance(error, MemoryError)

    def close(self):
        self.is_closed = True


@pytest.fixture
def device(monkeypatch):
    device = Counting(1 << 20)
    monkeypatch.setattr(_chunks, "_backend", lambda *arguments: device)
    return device


DATA = numpy.arange(1 << 20, dtype=numpy.uint8).reshape(-1, 64)


def test_pieces_fill_the_room(device):
    assert (makeroom.chunks(DATA, lambda piece: piece + 1) == DATA + 1).all()
    # A piece, its result and its scratch memory, and one in flight in each direction: five times its size, plus a margin.
    assert device.pieces[0] == 235 and len(device.pieces) <= 8
    assert device.most <= 1 << 20 and device.held == 0 and device.is_closed


def test_pieces_that_do_not_fit_after_all_are_halved(device):
    assert (makeroom.chunks(DATA, lambda piece: piece + 1, rows=16000) == DATA + 1).all()
    assert max(device.pieces) < 16000 and sum(device.pieces) == len(DATA)


def test_a_host_without_room_is_not_a_device_without_room(device):
    calls = []

    def reduce(one, two):
        calls.append(None)
        if len(calls) == 2:
            raise MemoryError("the host has none")
        return one + two

    with pytest.raises(MemoryError, match="the host has none"):
        makeroom.chunks(DATA, lambda piece: piece.sum(dtype=int), reduce=reduce, rows=1000)
    # With a lost result, the sum of the others would be wrong.
    assert len(calls) == 2 and device.is_closed


def test_results_are_combined(device):
    total = makeroom.chunks(DATA, lambda piece: piece.sum(dtype=int), reduce=lambda one, two: one + two, room="256KiB")
    assert total == DATA.sum(dtype=int)


def test_results_may_be_of_another_shape_and_have_a_place(device):
    out = numpy.zeros(len(DATA), dtype=int)
    assert makeroom.chunks(DATA, lambda piece: piece.sum(axis=1, dtype=int), out=out) is out
    assert (out == DATA.sum(axis=1, dtype=int)).all()


def test_errors_of_the_function_are_its_own(device):
    with pytest.raises(ZeroDivisionError):
        makeroom.chunks(DATA, lambda piece: 1 // 0)
    assert device.is_closed


def test_a_row_that_never_fits_is_told(device):
    device.bytes = 100
    with pytest.raises(MemoryError, match="one row does not fit"):
        makeroom.chunks(DATA, lambda piece: piece)


def test_wrong_arguments_are_answered(device):
    with pytest.raises(makeroom.UsageError, match=r"shape \(1,\) for 235 rows"):
        makeroom.chunks(DATA, lambda piece: piece.sum(keepdims=True)[0])
    with pytest.raises(makeroom.UsageError, match="has no rows"):
        makeroom.chunks(17, abs)
    with pytest.raises(makeroom.UsageError, match="it has 3 rows"):
        makeroom.chunks(DATA, abs, out=numpy.zeros(3))
    with pytest.raises(makeroom.UsageError, match="at least one row"):
        makeroom.chunks(DATA, abs, rows=0)
    assert len(makeroom.chunks(DATA[:0], abs)) == 0


def test_no_framework_is_told(monkeypatch):
    with pytest.raises(makeroom.UsageError, match="neither PyTorch nor CuPy"):
        makeroom.chunks(DATA, abs)
    with pytest.raises(makeroom.UsageError, match="'torch', 'cupy' or 'driver'"):
        makeroom.chunks(DATA, abs, backend="numpy")
    tensor = types.SimpleNamespace(shape=(1,), is_cuda=True, __class__=None)
    tensor = type("Tensor", (), {"shape": (1,), "is_cuda": True, "__module__": "torch"})()
    with pytest.raises(makeroom.UsageError, match="already on the GPU"):
        makeroom.chunks(tensor, abs)
