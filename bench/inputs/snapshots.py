"""Generated PyTorch snapshots of any size, and the project's own, decompressed."""
import gzip
import os
import pickle
import shutil

from harness import build, measure


def write(events, path):
    """A snapshot of about `events` events in the form that PyTorch writes: frames and lists of frames are shared."""
    frames = [{"name": f"f{i}", "filename": f"site-packages/torch/nn/m{i % 40}.py", "line": i} for i in range(2000)]
    own = [{"name": f"g{i}", "filename": "train.py", "line": i} for i in range(50)]
    entries, held, address = [], [], 139_000_000_000_000
    for i in range(events // 3):
        stack = [frames[(i * 7 + k * 13) % 2000] for k in range(8)] + [own[i % 50]]
        size, here = 512 * (1 + i * 37 % 4000), address + (i % 30_000) * 4_194_304
        entry = {"addr": here, "size": size, "stream": 0, "time_us": 1_700_000_000_000_000 + i * 9,
                 "compile_context": "N/A", "user_metadata": "", "frames": stack}
        entries.append(dict(entry, action="alloc"))
        held.append(entry)
        if len(held) > 5000:
            gone = held.pop(0)
            entries.append(dict(gone, action="free_requested"))
            entries.append(dict(gone, action="free_completed"))
    with open(path, "wb") as file:
        pickle.dump({"segments": [], "device_traces": [entries], "allocator_settings": {}}, file)


def decompress(path, plain):
    with gzip.open(path) as source, open(plain, "wb") as target:
        shutil.copyfileobj(source, target)


def plain(path, directory):
    """An uncompressed copy of a snapshot, if it is compressed."""
    if not str(path).endswith(".gz"):
        return str(path)
    target = os.path.join(directory, os.path.basename(path)[:-3])
    measure.in_own_process(decompress, path, target)
    return target


def generated(events, directory):
    target = os.path.join(directory, f"generated-{events}.pickle")
    measure.in_own_process(write, events, target)
    return target


def own(*names):
    """Snapshots of traces/."""
    return [build.TRACES / f"{name}.pickle.gz" for name in names]
