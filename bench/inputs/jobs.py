"""Recordings of jobs with many ranks, from real recordings of one GPU: each rank gets its own header and place in the job.

The ranks have the first 8,800 events of a training run with varying lengths and are ended by the launcher; the ranks in
`failed` have the run that ran out of memory.
"""
import gzip
import os
import random
import struct

from harness import build
from inputs.hostile import fold, frame, record, text, varint

MAGIC = b"\x8dROOM\r\n\x1a"
HEAD = len(MAGIC) + 4
RANKS_PER_HOST = 8
HEADER, RECORDS = 1, 2
JOB, END = 11, 8
BY_SIGNAL, SIGTERM = 2, 15
# Length of a UUID: `GPU-` and 36 characters.
UUID = 40


def frames(data):
    """The frames of a recording: their kind and their bytes."""
    position = HEAD
    while position + 9 <= len(data):
        length, = struct.unpack_from("<I", data, position)
        end = position + 9 + length
        yield data[position + 8], data[position:end]
        position = end


def recording(name, share=1.0):
    """The header's payload and the frames after it, the first part of them."""
    with gzip.open(os.path.join(build.ROOT, "traces", "fit", f"{name}.room.gz")) as file:
        data = file.read()
    parts = list(frames(data))
    kept, limit = [], len(data) * share
    for _, part in parts[1:]:
        kept.append(part)
        limit -= len(part)
        if limit <= 0:
            break
    return parts[0][1][9:], kept


def split(parts):
    """The frames before the one that names the GPU, that frame's payload with its UUID, and the frames after it."""
    at = next(index for index, part in enumerate(parts) if b"GPU-" in part)
    payload = parts[at][9:]
    start = payload.index(b"GPU-")
    return b"".join(parts[:at]), payload, payload[start:start + UUID], b"".join(parts[at + 1:])


class Job:
    """Writes the recordings of one job."""

    def __init__(self, ranks, failed=(), skew=False, seed=0):
        self.ranks, self.failed = ranks, set(failed)
        self.header, usual = recording("varied_47", 0.4)
        self.usual, self.full = split(usual), split(recording("varied_57")[1])
        chance = random.Random(seed)
        hosts = range(ranks // RANKS_PER_HOST + 1)
        # Clocks of hosts that differ by up to a day, in nanoseconds.
        self.skews = [chance.randrange(86_400) * 1_000_000_000 if skew else 0 for _ in hosts]

    def bytes_of(self, rank):
        host, local = divmod(rank, RANKS_PER_HOST)
        run, (wall, monotonic, _, parent, word) = self.header[:16], struct.unpack_from("<QQIIB", self.header, 16)
        rest = self.header[16 + 25:]
        header = run + struct.pack("<QQIIB", wall - self.skews[host], monotonic, 1000 + rank, parent, word)
        # The recorder's version stays, the host changes.
        length = rest[0] + 1
        header += rest[:length] + text(f"node{host}".encode()) + rest[length + 1 + rest[length]:]
        place = {1: rank, 2: local, 3: self.ranks, 4: RANKS_PER_HOST, 5: host, 8: "4711"}
        fields = b"".join(varint(field) + text(str(value).encode()) for field, value in place.items())
        start = MAGIC + struct.pack("<I", 7) + frame(HEADER, header) + frame(RECORDS, b"\0" + record(JOB, fields))
        before, devices, uuid, after = self.full if rank in self.failed else self.usual
        own = f"GPU-{rank:0{UUID - 4}}".encode()
        contents = start + before + frame(RECORDS, devices.replace(uuid, own)) + after
        if rank in self.failed:
            return contents
        end = fold(monotonic + 60_000_000_000) + bytes([BY_SIGNAL]) + varint(SIGTERM)
        return contents + frame(RECORDS, b"\0" + record(END, end))

    def write(self, directory, name=lambda rank: f"rank{rank}.room"):
        os.makedirs(directory, exist_ok=True)
        for rank in range(self.ranks):
            with open(os.path.join(directory, name(rank)), "wb") as file:
                file.write(self.bytes_of(rank))
        return directory


def junk(directory, count, seed=0):
    """Files that are no recordings of this job: checkpoints, source code, empty logs, torn and hostile recordings."""
    chance = random.Random(seed)
    kinds = [("step{}.pt", b"PK\x03\x04"), ("file{}.py", b"import torch\n"), ("log{}.txt", b"epoch 1: loss 2.7\n"),
             ("torn{}.room", MAGIC[:5]), ("noise{}.pickle", b"\x80\x04\x95garbage"), ("tree{}/notes.log", b"")]
    for number in range(count):
        name, content = chance.choice(kinds)
        path = os.path.join(directory, f"part{number % 100}", name.format(number))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content)
