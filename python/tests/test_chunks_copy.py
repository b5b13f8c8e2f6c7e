"""Copies through a few buffers, with an array as a slow device."""

from __future__ import annotations

import time

import pytest

from makeroom._impl import _chunks_copy
from makeroom._impl._chunks_copy import Copier, Ticket

numpy = pytest.importorskip("numpy")


class Wire:
    """Copies happen in `wait`, as late as a device may do them."""

    def __init__(self):
        self.buffers, self.followed, self.fails_at = [], [], None

    def enter(self):
        pass

    def pinned(self, bytes):
        self.buffers.append(numpy.zeros(bytes, numpy.uint8))
        return self.buffers[-1], self.buffers[-1].ctypes.data

    def computed(self):
        return "computed"

    def follow(self, computed):
        self.followed.append(computed)

    def send(self, buffer, device, offset, bytes):
        return lambda: device.__setitem__(slice(offset, offset + bytes), buffer[:bytes])

    def fetch(self, buffer, device, offset, bytes):
        if offset == self.fails_at:
            raise RuntimeError("an illegal memory access was encountered")
        return lambda: buffer.__setitem__(slice(0, bytes), device[offset : offset + bytes])

    def wait(self, event):
        time.sleep(0.0001)
        event()


@pytest.fixture
def wire(monkeypatch):
    monkeypatch.setattr(_chunks_copy, "_BUFFER", 1000)
    monkeypatch.setattr(_chunks_copy, "_SMALLEST_PART", 100)
    return Wire()


def there_and_back(wire, copier, sizes):
    generator = numpy.random.default_rng(3)
    trips = []
    for size in sizes:
        data, device = generator.integers(0, 256, size, numpy.uint8), numpy.zeros(size, numpy.uint8)
        copier.send(data.ctypes.data, device, size)
        # The source may change as soon as `send` returns.
        expected, data[:] = data.copy(), 0
        trips.append((expected, device))
    for buffer in copier._up:
        copier._empty(buffer)
    tickets = []
    for expected, device in trips:
        ticket = Ticket(None, device)
        ticket.place = numpy.zeros(len(device), numpy.uint8)
        copier.fetch(ticket, device, len(device))
        tickets.append((expected, ticket))
    return tickets


def test_all_bytes_arrive_through_two_buffers_each_way(wire):
    copier = Copier(wire, 1 << 20)
    sizes = [0, 1, 99, 100, 999, 1000, 1001, 2000, 7777, 12345]
    for expected, ticket in there_and_back(wire, copier, sizes):
        assert (ticket.wait() == expected).all()
    assert len(wire.buffers) == 4 and {len(buffer) for buffer in wire.buffers} == {1000}
    assert wire.followed == ["computed"] * len(sizes)
    copier.close()


def test_little_data_pins_little(wire):
    copier = Copier(wire, 12)
    ((expected, ticket),) = there_and_back(wire, copier, [12])
    assert (ticket.wait() == expected).all()
    assert sum(len(buffer) for buffer in wire.buffers) == 48
    copier.close()


def test_what_fails_on_its_way_back_is_told_and_closing_still_ends(wire):
    copier = Copier(wire, 1 << 20)
    wire.fails_at = 2000
    (_, ticket), (expected, other) = there_and_back(wire, copier, [5000, 1500])
    with pytest.raises(RuntimeError, match="illegal memory access"):
        ticket.wait()
    assert (other.wait() == expected).all()
    copier.close()


def test_closing_waits_for_what_nobody_took_back(wire):
    copier = Copier(wire, 1 << 20)
    ((expected, ticket),) = there_and_back(wire, copier, [50_000])
    copier.close()
    assert ticket.is_back.done() and (ticket.place == expected).all()
