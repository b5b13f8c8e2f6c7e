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


def write_training(events, path, batch):
    """A snapshot of about `events` events of training steps with AdamW: the forward pass has stacks, the backward pass has none."""
    torch, layers = "site-packages/torch", 48
    call = {"name": "_call_impl", "filename": f"{torch}/nn/modules/module.py", "line": 1790}
    main = {"name": "<module>", "filename": "train.py", "line": 90}

    def stack(*frames):
        return [*({"name": name, "filename": file, "line": line} for name, file, line in frames), main]

    to = stack(("convert", f"{torch}/nn/modules/module.py", 1336), ("to", f"{torch}/nn/modules/module.py", 1369))
    forward = [[{"name": "linear", "filename": f"{torch}/nn/functional.py", "line": 50 + k}, call,
                {"name": "forward", "filename": "model.py", "line": 10 + k}, call, main] for k in range(12)]
    state = stack(("_init_group", f"{torch}/optim/adam.py", 180), ("step", f"{torch}/optim/adam.py", 220))
    entries, free, top, tick = [], {}, 139_000_000_000_000, 1_700_000_000_000_000

    def add(action, address, size, frames):
        nonlocal tick
        tick += 9
        entries.append({"action": action, "addr": address, "size": size, "stream": 0, "time_us": tick, "frames": frames})

    def allocate(size, frames):
        nonlocal top
        if not free.get(size):
            free[size] = [top]
            top += -(-size // 512) * 512
        address = free[size].pop()
        add("alloc", address, size, frames)
        return address, size

    def release(block, frames=()):
        add("free_requested", *block, list(frames))
        add("free_completed", *block, list(frames))
        free[block[1]].append(block[0])

    sizes = [4096 * (3 + layer % 7) for layer in range(layers)]
    parameters = [allocate(size, to) for size in sizes]
    is_first = True
    while len(entries) < events:
        inputs = allocate(1024 * batch, stack(("batches", "train.py", 20)))
        saved = []
        for layer in range(layers):
            for k in range(12):
                block = allocate(512 * batch * (1 + (layer + k) % 9), forward[k])
                saved.append(block) if k % 3 else release(block, forward[k])
        gradients = []
        for index, block in enumerate(reversed(saved)):
            temporary = allocate(512 * batch, [])
            release(block)
            release(temporary)
            if index % 8 == 0 and len(gradients) < layers:
                gradients.append(allocate(sizes[-1 - len(gradients)], []))
        if is_first:
            is_first = False
            for size in sizes * 2:
                allocate(size, state)
        for block in gradients:
            release(block, stack(("zero_grad", f"{torch}/optim/optimizer.py", 1000)))
        release(inputs, [main])
    with open(path, "wb") as file:
        pickle.dump({"segments": [], "device_traces": [entries], "allocator_settings": {}}, file)


def training(events, directory, batch=8):
    target = os.path.join(directory, f"training-{events}-{batch}.pickle")
    measure.in_own_process(write_training, events, target, batch)
    return target


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
