"""Hostile recordings: each function writes one that grows with `n` in a single dimension.

`bench/growth` measures commands on them. SNAPSHOTS and ROOMS map names to functions of (n, path); sizes are chosen so
that `n` is the number of streams, segments, devices, stacks or events.
"""
import pickle
import random
import struct


def snapshot(path, traces, segments=(), **more):
    with open(path, "wb") as file:
        content = {"segments": list(segments), "device_traces": traces, "allocator_settings": {}, **more}
        pickle.dump(content, file, protocol=4)


def event(action, address, size, stream=0, frames=(), time=0):
    return {"action": action, "addr": address, "size": size, "stream": stream, "frames": list(frames), "time_us": time}


def freed(address, size, stream=0):
    return [event("free_requested", address, size, stream), event("free_completed", address, size, stream)]


PAGE = 2 << 20
BASE = 1 << 40


def streams(n, path):
    """Every allocation is on its own stream and stays."""
    rows = []
    for i in range(n):
        rows.append(event("segment_alloc", BASE + i * PAGE, PAGE, i))
        rows.append(event("alloc", BASE + i * PAGE, 512, i))
    snapshot(path, [rows])


def streams_large(n, path):
    """The same with blocks that pools map pages for."""
    rows = []
    for i in range(n):
        rows.append(event("segment_alloc", BASE + 20 * i * PAGE, 20 * PAGE, i))
        rows.append(event("alloc", BASE + 20 * i * PAGE, 3 * PAGE + 512 * i, i))
    snapshot(path, [rows])


def streams_freed(n, path):
    """Every stream frees what it allocated before the next one allocates."""
    rows = []
    for i in range(n):
        size = (3 + i % 5) * PAGE
        rows += [event("segment_alloc", BASE + i * 20 * PAGE, size, i), event("alloc", BASE + i * 20 * PAGE, size, i)]
        rows += freed(BASE + i * 20 * PAGE, size, i)
    snapshot(path, [rows])


def streams_pending(n, path):
    """Blocks are freed and never reused, because their streams never complete."""
    rows = []
    for i in range(n):
        rows += [event("segment_alloc", BASE + i * PAGE, PAGE, i), event("alloc", BASE + i * PAGE, PAGE // 2, i)]
    for i in range(n):
        rows.append(event("free_requested", BASE + i * PAGE, PAGE // 2, i))
    for i in range(n):
        rows.append(event("alloc", 2 * BASE + i * PAGE, PAGE // 2, n + i % 7))
    snapshot(path, [rows])


def segments(n, path):
    """As many segments of one block each, all live to the end."""
    rows, last = [], []
    for i in range(n):
        address = BASE + i * 16 * PAGE
        rows += [event("segment_alloc", address, 10 * PAGE), event("alloc", address, 10 * PAGE - 512)]
        last.append({"address": address, "total_size": 10 * PAGE, "stream": 0, "segment_type": "large", "device": 0,
                     "blocks": [{"address": address, "size": 10 * PAGE, "requested_size": 10 * PAGE - 512,
                                 "state": "active_allocated", "frames": []}]})
    snapshot(path, [rows], last)


def pools(n, path):
    """Every segment belongs to a private pool of its own."""
    rows, last = [], []
    for i in range(n):
        address = BASE + i * PAGE
        rows.append(dict(event("segment_alloc", address, PAGE), segment_pool_id=(i + 1, 0)))
        rows.append(dict(event("alloc", address, 4096), segment_pool_id=(i + 1, 0)))
        last.append({"address": address, "total_size": PAGE, "stream": 0, "segment_type": "small", "device": 0,
                     "segment_pool_id": (i + 1, 0),
                     "blocks": [{"address": address, "size": 4096, "requested_size": 4096, "state": "active_allocated",
                                 "frames": []},
                                {"address": address + 4096, "size": PAGE - 4096, "state": "inactive", "frames": []}]})
    snapshot(path, [rows], last)


def releases(n, path):
    """Many live blocks, and as many segments that the program releases one by one, each before a request."""
    # More was reserved before, so the releases are not for lack of memory.
    rows = [event("segment_alloc", 4 * BASE, 1 << 40), event("segment_free", 4 * BASE, 1 << 40)]
    for i in range(n):
        rows += [event("segment_alloc", BASE + i * PAGE, PAGE), event("alloc", BASE + i * PAGE, PAGE // 2)]
    for i in range(n):
        # Every second request is larger than the segment that was released before it.
        address, size = 2 * BASE + i * 16 * PAGE, (12 + 2 * (i % 2)) * PAGE
        rows += [event("segment_alloc", address, size), event("alloc", address, size)]
        rows += freed(address, size) + [event("segment_free", address, size)]
    snapshot(path, [rows])


def pools_released(n, path):
    """The same with a private pool for each live block."""
    pools(n, path)
    with open(path, "rb") as file:
        content = pickle.load(file)
    rows = content["device_traces"][0]
    rows += [dict(event(action, 4 * BASE, 1 << 40), segment_pool_id=(0, 0)) for action in ("segment_alloc", "segment_free")]
    for i in range(n):
        address = 2 * BASE + i * 16 * PAGE
        for row in [event("segment_alloc", address, 12 * PAGE), event("alloc", address, 12 * PAGE),
                    *freed(address, 12 * PAGE), event("segment_free", address, 12 * PAGE)]:
            rows.append(dict(row, segment_pool_id=(0, 0)))
    snapshot(path, [rows], content["segments"])


def expandable(n, path):
    """Pages of an expandable segment, every second one unmapped again."""
    rows = [event("segment_map", BASE + PAGE * i, PAGE) for i in range(n)]
    rows += [event("segment_unmap", BASE + PAGE * i, PAGE) for i in range(0, n, 2)]
    snapshot(path, [rows])


def devices(n, path):
    """One event per device."""
    snapshot(path, [[event("alloc", 512, 512)] for _ in range(n)])


def stacks(n, path):
    """A different stack of 20 frames for every allocation."""
    choose = random.Random(1)
    frames = [{"filename": f"f{i}.py", "line": i, "name": f"n{i}"} for i in range(2000)]
    rows = [event("segment_alloc", BASE, 1 << 40)]
    rows += [event("alloc", BASE + i * 512, 512, 0, choose.choices(frames, k=20)) for i in range(n)]
    snapshot(path, [rows])


def frames(n, path):
    """Every allocation has a function, a file and a line of its own."""
    rows = [event("alloc", BASE + i * 512, 512, 0, [{"filename": f"f{i}.py", "line": i, "name": f"n{i}"}])
            for i in range(n)]
    snapshot(path, [rows])


def comb(n, path):
    """Small blocks, every second one freed, then requests that fit into none of the holes."""
    rows = [event("segment_alloc", BASE, 512 * n)]
    rows += [event("alloc", BASE + i * 512, 512) for i in range(n)]
    for i in range(0, n, 2):
        rows += freed(BASE + i * 512, 512)
    rows += [event("alloc", 2 * BASE + i * (1 << 20), 1024 + 512 * (i % 977)) for i in range(n // 2)]
    snapshot(path, [rows])


def comb_large(n, path):
    """The same with blocks of many pages."""
    rows = [event("alloc", BASE + i * 8 * PAGE, 3 * PAGE) for i in range(n)]
    for i in range(0, n, 2):
        rows += freed(BASE + i * 8 * PAGE, 3 * PAGE)
    rows += [event("alloc", 2 * BASE + i * 64 * PAGE, (4 + i % 13) * PAGE) for i in range(n // 4)]
    snapshot(path, [rows])


def growing(n, path):
    """Large blocks of different sizes that are never freed."""
    snapshot(path, [[event("alloc", BASE + i * 64 * PAGE, (1 + i % 9) * PAGE + 512 * (i % 331)) for i in range(n)]])


def random_sizes(n, path):
    """Large blocks of random sizes, allocated and freed in random order."""
    choose, rows, live, address = random.Random(2), [], [], BASE
    for _ in range(n):
        if live and choose.random() < 0.5:
            place = choose.randrange(len(live))
            live[place], live[-1] = live[-1], live[place]
            rows += freed(*live.pop())
        else:
            size = 512 * choose.randrange(1, 200_000)
            rows += [event("segment_alloc", address, size), event("alloc", address, size)]
            live.append((address, size))
            address += size
    snapshot(path, [rows])


def failures(n, path):
    """Many blocks, and as many failed requests."""
    rows = []
    for i in range(n // 2):
        rows += [event("segment_alloc", BASE + i * PAGE, PAGE), event("alloc", BASE + i * PAGE, PAGE // 2)]
    rows += [event("oom", 0, (1 << 30) + i * 512) for i in range(n // 2)]
    snapshot(path, [rows])


def annotations(n, path):
    """Spans of time, nested and never ended."""
    rows = [event("segment_alloc", BASE, 1 << 30)]
    rows += [event("alloc", BASE + i * 512, 512, time=i + 1) for i in range(n)]
    spans = [{"name": f"x{i}", "stage": "START", "device": 0, "time_us": i} for i in range(n)]
    snapshot(path, [rows], external_annotations=spans)


def huge_sizes(n, path):
    """Sizes and addresses far beyond any device."""
    rows = [event("alloc", (i * (1 << 57)) % (1 << 63) + i * 512, (1 << 55) - 512 * (i % 7)) for i in range(n)]
    snapshot(path, [rows])


def overlapping(n, path):
    """Segments that lie on each other, with blocks larger than they are."""
    frame = [{"filename": "a.py", "line": i, "name": f"f{i}"} for i in range(100)]
    block = {"size": 512, "requested_size": 1 << 40, "address": 1 << 30, "state": "active_allocated", "frames": frame}
    last = [{"address": 1 << 30, "total_size": 1 << 50, "stream": i, "segment_type": "large", "device": 0,
             "allocated_size": 1 << 40, "active_size": 1 << 40, "blocks": [block] * 2} for i in range(n)]
    snapshot(path, [[]], last)


def repeated_entry(n, path):
    """One entry of the trace, referred to n times: two bytes each."""
    one = pickle.dumps(event("alloc", BASE, 512), protocol=2)[2:-1]
    with open(path, "wb") as file:
        file.write(b"\x80\x02}(X\x0d\0\0\0device_traces](](" + one + b"q\xc8")
        file.write(b"h\xc8" * n)
        file.write(b"eeX\x08\0\0\0segments]X\x12\0\0\0allocator_settings}u.")


def repeated_segment(n, path):
    """One segment with 50 blocks, referred to n times."""
    block = {"size": 512, "requested_size": 500, "address": BASE, "state": "active_allocated", "frames": []}
    segment = {"address": BASE, "total_size": 1 << 20, "stream": 0, "segment_type": "large", "device": 0,
               "blocks": [dict(block, address=BASE + 512 * i) for i in range(50)]}
    snapshot(path, [[]], [segment] * n)


# -- .room files

def checksum_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ 0x82F63B78 if value & 1 else value >> 1
        table.append(value)
    return table


TABLE = checksum_table()


def checksum(data):
    value = 0xFFFFFFFF
    for byte in data:
        value = TABLE[(value ^ byte) & 255] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def fold(value):
    return varint(value << 1 if value >= 0 else (-value << 1) - 1)


def text(value):
    return varint(len(value)) + value


def frame(kind, payload):
    return struct.pack("<II", len(payload), checksum(bytes([kind]) + payload)) + bytes([kind]) + payload


def room(path, batches):
    """A file of batches: each the records of one thread, and how often its frame is repeated."""
    header = bytes(range(16)) + struct.pack("<QQIIB", 1_731_600_000_000_000_000, 1_000_000_000, 4711, 4710, 8)
    header += text(b"makeroom 0.1.0") + text(b"node7") + text(b"/bin/solver") + b"\0\0"
    with open(path, "wb") as file:
        file.write(b"\x8dROOM\r\n\x1a" + struct.pack("<I", 5) + frame(1, header))
        for records, times in batches:
            packed = frame(2, b"\x01" + records)
            for _ in range(times):
                file.write(packed)


def room_event(kind, address=None, size=None, time=1, stack=None, stream=None, device=None, context=None, result=None,
               extra=None):
    """An event; `address` is the difference from the one before, and absent fields are as before."""
    fields, body = 0, fold(time)
    for bit, value in ((1, address), (2, size), (4, stack), (8, stream)):
        if value is not None:
            fields |= bit
            body += fold(value) if bit == 1 else varint(value)
    if device is not None:
        fields |= 16
        body += varint(device) + varint(context or 0)
    for bit, value in ((64, result), (128, extra)):
        if value is not None:
            fields |= bit
            body += varint(value)
    return bytes([128 | kind, fields]) + body


def record(kind, body):
    return bytes([kind]) + varint(len(body)) + body


def in_batches(records, per_batch=50_000):
    return [(b"".join(records[i:i + per_batch]), 1) for i in range(0, len(records), per_batch)]


TINY = 1 << 17


def room_tiny(kind):
    """Events of three bytes: nothing changes but the number of calls."""
    def write(n, path):
        records = bytes([128 | kind, 0, 0]) * TINY
        first = room_event(0, 4096, 512, device=0)
        room(path, [(first + records, n // TINY)] if n >= TINY else [(first + records[:3 * n], 1)])
    write.__doc__ = room_tiny.__doc__
    return write


def room_pairs(n, path):
    """An allocation and a free of the same block, three bytes each."""
    first = room_event(0, 4096, 512, device=0)
    room(path, [(first + b"\x81\0\0\x80\0\0" * (TINY // 2), max(n // TINY, 1))])


def room_blocks(n, path):
    """Allocations at different addresses, never freed: five bytes each."""
    room(path, in_batches([room_event(0, 512, 512 if i == 0 else None, device=0 if i == 0 else None)
                           for i in range(n)], n))


def room_apart(*kinds):
    """Events of these kinds at addresses that differ: five bytes each."""
    def write(n, path):
        batch = b"".join(room_event(kinds[i % len(kinds)], 512 if i % len(kinds) == 0 else None) for i in range(TINY))
        first = room_event(0, 4096, 512, device=0)
        # Addresses are differences within a batch, so each batch begins where the one before ended.
        room(path, [(first + room_event(0, 512 * TINY * i) + batch, 1) for i in range(max(n // TINY, 1))])
    write.__doc__ = room_apart.__doc__
    return write


def room_streams(n, path):
    """Stream-ordered allocations and frees, each on a stream of its own, and a wait for each."""
    records = []
    for i in range(n):
        records.append(room_event(8, PAGE, PAGE, stream=i + 1, device=0, context=1))
        records.append(room_event(9, stream=i + 1))
    records += [room_event(54, stream=i + 1, extra=1) for i in range(n)]
    room(path, in_batches(records, 3 * n))


def room_waits(n, path):
    """As many pending frees as waits for streams that have none."""
    records = [room_event(8, PAGE, PAGE, stream=i + 1, device=0, context=1) for i in range(n)]
    records += [room_event(9, -PAGE if i else 0, stream=n - i) for i in range(n)]
    records += [room_event(54, stream=n + 1 + i, extra=1) for i in range(n)]
    room(path, in_batches(records, 3 * n))


def room_contexts(n, path):
    """Contexts with a block each, destroyed one after another."""
    records = []
    for i in range(n):
        records.append(room_event(32, device=0, context=i + 1))
        records.append(room_event(0, 4096, 512, device=0, context=i + 1))
    records += [room_event(33, device=0, context=i + 1) for i in range(n)]
    room(path, in_batches(records, 3 * n))


def room_devices(n, path):
    """1000 devices, and waits that concern all of them."""
    records = [room_event(0, 4096, 512, device=i, context=1) for i in range(1000)]
    records += [room_event(55, device=0, context=1, extra=1) for _ in range(n)]
    room(path, in_batches(records, n + 1000))


def room_maps(n, path):
    """Pages that are mapped one by one and unmapped two by two."""
    records = []
    for i in range(n):
        records.append(room_event(17, 1, PAGE, device=0, extra=0))
    records += [room_event(19, PAGE, PAGE, extra=i + 1) for i in range(n)]
    records += [room_event(20, -2 * PAGE if i else 0, 2 * PAGE) for i in range(n // 2)]
    room(path, in_batches(records, 3 * n))


def room_tensors(n, path):
    """Segments with a tensor in each."""
    records = []
    for i in range(n):
        records.append(room_event(0, PAGE, PAGE, device=0))
        records.append(room_event(43, 0, 4096))
    room(path, in_batches(records, 2 * n))


def room_stacks(n, path):
    """A name, a frame and a stack for every allocation."""
    records = []
    for i in range(n):
        records.append(record(1, varint(i + 1) + b"f%d" % i))
        records.append(record(2, varint(i + 1) + b"\1" + varint(i + 1) + varint(i + 1) + varint(i) + b"\0\0"))
        records.append(record(3, varint(i + 1) + fold(i + 1)))
        records.append(room_event(0, 4096, 512, stack=i + 1, device=0))
    room(path, in_batches(records, 4 * n))


def room_deep(n, path):
    """A stack of n frames in two bytes each, and allocations of it."""
    records = [record(1, b"\1f"), record(2, b"\1\1\1\1\1\0\0"), record(3, b"\1\2" + b"\0" * n)]
    records += [room_event(0, 4096, 512, stack=1, device=0)]
    room(path, in_batches(records, n))


def room_small_stacks(n, path):
    """Stacks in five bytes each, of one frame, never used."""
    records = [record(1, b"\1f"), record(2, b"\1\1\1\1\1\0\0")]
    records += [record(3, varint(i + 1) + b"\2") for i in range(n)]
    records += [room_event(0, 4096, 512, stack=1, device=0)]
    room(path, in_batches(records, n + 3))


def room_samples(n, path):
    """Measurements of the process, two bytes each and a length."""
    records = [room_event(0, 4096, 512, device=0)] + [record(5, b"\0\0")] * n
    room(path, in_batches(records, n + 1))


def room_notes(n, path):
    """Empty notes."""
    records = [room_event(0, 4096, 512, device=0)] + [record(7, b"\0\0")] * n
    room(path, in_batches(records, n + 1))


def room_definitions(n, path):
    """Device definitions, over and over."""
    records = [room_event(0, 4096, 512, device=0)] + [record(4, b"\0\0\0\0")] * n
    room(path, in_batches(records, n + 1))


def room_failures(n, path):
    """Many blocks, and as many requests that fail."""
    records = [room_event(0, 4096, 512, device=0) for _ in range(n)]
    records += [record(5, b"\0\1\0\1\2"), *[room_event(0, size=512 + i, result=2) for i in range(n)]]
    room(path, in_batches(records, 2 * n))


SNAPSHOTS = {
    "streams": streams, "streams-large": streams_large, "streams-freed": streams_freed,
    "streams-pending": streams_pending, "segments": segments, "pools": pools, "expandable": expandable,
    "devices": devices, "stacks": stacks, "frames": frames, "comb": comb, "comb-large": comb_large,
    "growing": growing, "random": random_sizes, "failures": failures, "annotations": annotations,
    "releases": releases, "pools-released": pools_released, "huge-sizes": huge_sizes, "overlapping": overlapping, "repeated-segment": repeated_segment,
}
ROOMS = {
    "room-blocks": room_blocks, "room-streams": room_streams, "room-waits": room_waits,
    "room-contexts": room_contexts, "room-devices": room_devices, "room-maps": room_maps,
    "room-tensors": room_tensors, "room-stacks": room_stacks, "room-failures": room_failures,
}
# Dense files: a few bytes each, so they are about memory.
DENSE = {
    "repeated-entry": repeated_entry, "room-pairs": room_pairs, "room-allocs": room_tiny(0), "room-frees": room_tiny(1),
    "room-stream-frees": room_tiny(9), "room-completes": room_tiny(10), "room-unmaps": room_tiny(20),
    "room-pinned": room_tiny(22), "room-contexts": room_tiny(32), "room-modules": room_tiny(37),
    "room-waits": room_tiny(54), "room-launches": room_tiny(42), "room-tensors": room_tiny(43),
    "room-maps": room_tiny(19), "room-pool-memory": room_tiny(53), "room-deep": room_deep,
    "room-small-stacks": room_small_stacks, "room-samples": room_samples, "room-notes": room_notes,
    "room-definitions": room_definitions, "room-graph-memory": room_tiny(51), "room-destroys": room_tiny(56),
    "room-apart-allocs": room_apart(0), "room-apart-frees": room_apart(1), "room-apart-pairs": room_apart(0, 1),
    "room-apart-stream-frees": room_apart(9), "room-apart-tensors": room_apart(43), "room-apart-unmaps": room_apart(20),
    "room-apart-maps": room_apart(19), "room-apart-completes": room_apart(10),
}
