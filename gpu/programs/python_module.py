"""The Python package on a real GPU, one part for each run:

    python python_module.py use_pool FOLDER | watch_cost [ROUNDS] | watch_lines | excepthook | chunks | cupy_pool | plugin FOLDER

Prints one JSON object with a sentence and figures; exit status 1 where something does not hold."""

import json
import os
import statistics
import subprocess
import sys
import time

STEPS = 30
GIB = 1 << 30


def network(torch):
    def block():
        return torch.nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True)

    return torch.nn.Sequential(
        torch.nn.Embedding(8192, 512), *(block() for _ in range(4)), torch.nn.Linear(512, 8192)
    ).cuda()


def training(torch, steps=STEPS):
    """Yields the loss of each step, to the last bit; another length every step."""
    torch.manual_seed(1)
    model = network(torch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    generator = torch.Generator().manual_seed(2)
    for _ in range(steps):
        length = int(torch.randint(64, 1024, (1,), generator=generator))
        words = torch.randint(0, 8192, (8, length + 1), generator=generator).cuda()
        loss = torch.nn.functional.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        yield loss.item().hex()


def deterministic():
    import torch

    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    return torch


def train_once(mode, folder):
    """A process of its own for each allocator."""
    torch = deterministic()
    figures = {}
    if mode == "pool":
        import makeroom

        pool = makeroom.use_pool(history=100_000, pluggable=True)
    if mode == "expandable":
        import makeroom

        pool = makeroom.use_pool()
    figures["losses"] = list(training(torch))
    figures["allocated"], figures["most"] = torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated()
    figures["reserved"] = torch.cuda.max_memory_reserved()
    if mode == "expandable":
        figures["stats"] = pool.stats()._asdict()
    side, tensor = torch.cuda.Stream(), torch.ones(1 << 20, device="cuda")
    tensor.record_stream(side)
    torch.cuda.memory_summary()
    torch.cuda.reset_peak_memory_stats()
    figures["most_after_reset"] = torch.cuda.max_memory_allocated()
    path = os.path.join(folder, f"{mode}.pickle")
    torch.cuda.memory._dump_snapshot(path)
    if mode == "pool":
        figures["events"] = len(makeroom.open(path))
        figures["stats"] = pool.stats()._asdict()
    return figures


def use_pool(folder):
    runs = {}
    for mode in ("native", "pool", "expandable"):
        environment = dict(os.environ, CUBLAS_WORKSPACE_CONFIG=":4096:8")
        done = subprocess.run(
            [sys.executable, __file__, "train_once", mode, folder], env=environment, stdout=subprocess.PIPE, check=True
        )
        runs[mode] = json.loads(done.stdout)
    native, pool = runs["native"], runs["pool"]
    wrong = []
    if native["losses"] != pool["losses"]:
        wrong.append("the losses differ")
    # PyTorch counts what it rounded up to 512 bytes.
    if not 0.98 < pool["most"] / native["most"] <= 1.01:
        wrong.append(f"max_memory_allocated is {pool['most']}, expected about {native['most']}")
    if pool["most_after_reset"] > pool["most"] or pool["events"] < 1000:
        wrong.append("peaks or history do not work")
    if pool["reserved"] > native["reserved"]:
        wrong.append("the pool reserves more")
    expandable = runs["expandable"]
    if expandable["losses"] != native["losses"] or expandable["reserved"] > native["reserved"]:
        wrong.append("expandable segments change the losses or reserve more")
    if expandable["stats"]["peak_reserved"] != expandable["reserved"]:
        wrong.append("the figures of use_pool() are not PyTorch's")
    text = f"{STEPS} losses equal; peak {pool['most'] / GIB:.2f} GiB in {pool['reserved'] / GIB:.2f} GiB reserved, PyTorch reserves {native['reserved'] / GIB:.2f} GiB"
    return wrong, text, {"pool": pool["stats"], "native_reserved": native["reserved"]}


def watch_cost(rounds=15):
    """What `watch` itself takes of watched steps. The same steps with and without it, in turns, differ by several percent either
    way on a shared machine, so that difference is told and not judged by."""
    import makeroom

    torch = deterministic()
    model, data = network(torch), torch.randint(0, 8192, (8, 256)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    inside = 0.0

    def clocked(call, *arguments):
        nonlocal inside
        begin = time.perf_counter()
        result = call(*arguments)
        inside += time.perf_counter() - begin
        return result

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(data).float().mean().backward()
        optimizer.step()

    def timed(is_watched):
        torch.cuda.synchronize()
        start = time.perf_counter()
        watch = clocked(makeroom.watch) if is_watched else None
        if watch:
            clocked(watch.__enter__)
        for _ in range(20):
            step()
            if watch:
                clocked(watch.step)
        if watch:
            clocked(watch.__exit__, None, None, None)
        torch.cuda.synchronize()
        return time.perf_counter() - start

    def pair(number):
        # Who goes first changes from pair to pair: what drifts hits both.
        if number % 2:
            return timed(True), timed(False)
        plain = timed(False)
        return timed(True), plain

    for number in range(3):
        pair(number)
    inside = 0.0
    pairs = [pair(number) for number in range(int(rounds))]
    cost = inside / sum(watched for watched, _ in pairs)
    watched, plain = (statistics.median(times) for times in zip(*pairs))
    wrong = [] if cost <= 0.02 else [f"watching takes {cost:.2%}"]
    text = f"{cost:.2%} of watched steps; 20 steps take {plain * 1000:.1f} ms, watched {watched * 1000:.1f} ms: {watched / plain - 1:+.2%}"
    return wrong, text, {"cost": cost, "difference": watched / plain - 1}


def watch_lines():
    import makeroom
    import torch

    kept = []
    torch.ones(1, device="cuda")
    with makeroom.watch(lines=True) as w:
        for _ in range(5):
            buffer = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
            kept.append(torch.empty(3 << 20, dtype=torch.uint8, device="cuda"))
            del buffer
            w.step()
    wrong = [] if w.leak_per_step_bytes == 3 << 20 else [f"a leak of {w.leak_per_step_bytes} bytes per step"]
    if "python_module.py" not in json.dumps(w.to_dict()["devices"][0]["leaking"]):
        wrong.append("the line is missing")
    return wrong, f"{w.leak_per_step_bytes >> 20} MiB per step, with its line", {"peak": w.peak_bytes}


def excepthook():
    script = (
        "import torch, makeroom; makeroom.install_excepthook(); "
        "x = torch.empty(1 << 30, dtype=torch.uint8, device='cuda'); torch.empty(1 << 42, dtype=torch.uint8, device='cuda')"
    )
    done = subprocess.run([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
    wrong = [] if "REQUEST" in done.stderr and "OutOfMemoryError" in done.stderr else ["no verdict under the traceback"]
    return wrong, "the verdict is under the traceback of torch.OutOfMemoryError", {}


def chunks():
    """Twice as much as there is room, and results that are right to the last bit."""
    import makeroom
    import torch

    data = torch.arange(2 * GIB // 4, dtype=torch.float32).reshape(-1, 4096)
    # The context is nobody's copy.
    torch.ones(1, device="cuda")
    sizes = []

    def function(piece):
        sizes.append(len(piece))
        return (piece * 2 + 1).sqrt()

    start = time.perf_counter()
    result = makeroom.chunks(data, function, room="1GiB")
    seconds, count = time.perf_counter() - start, len(sizes)
    peak = torch.cuda.max_memory_allocated()
    expected = torch.cat([(piece.cuda() * 2 + 1).sqrt().cpu() for piece in data.split(16384)])
    wrong = [] if torch.equal(result, expected) else ["the results differ"]
    # Once more, to pages and through buffers that are there, and what the host needs to copy as much there and back.
    result.zero_()
    start = time.perf_counter()
    makeroom.chunks(data, function, room="1GiB", out=result)
    again = time.perf_counter() - start
    if not torch.equal(result, expected):
        wrong.append("the results in a separate array differ")
    place = torch.empty_like(data).fill_(0)
    start = time.perf_counter()
    place.copy_(data), place.copy_(data)
    host = time.perf_counter() - start
    if peak > 1.1 * GIB:
        wrong.append(f"{peak} bytes were used, the limit is 1 GiB")
    text = f"2 GiB through 1 GiB in {count} pieces, {2 / seconds:.1f} GiB/s, again {2 / again:.1f}, host copies {2 / host:.1f}"
    return wrong, text, {"pieces": sizes[:count], "seconds": seconds, "again": again, "host": host}


def cupy_pool():
    import cupy
    import makeroom

    pool = makeroom.use_pool("cupy")
    first = cupy.arange(1 << 24, dtype=cupy.float32)
    total = float((first * 2).sum(dtype=cupy.float64))
    expected = float((1 << 24) * ((1 << 24) - 1))
    wrong = [] if total == expected else [f"{total} instead of {expected}"]
    stats = pool.stats()
    if stats.live < first.nbytes or stats.allocations < 2:
        wrong.append("CuPy did not use the pool")
    return wrong, f"{stats.allocations} CuPy allocations, peak {stats.peak_live >> 20} MiB", stats._asdict()


def plugin(folder):
    tests = os.path.join(folder, "test_plugin.py")
    with open(tests, "w") as file:
        file.write(
            "import pytest, torch\n"
            "kept = []\n"
            "def take(mib): return torch.empty(mib << 20, dtype=torch.uint8, device='cuda')\n"
            "@pytest.mark.gpu_memory(limit='100MiB', leaks=0)\ndef test_modest(): take(90)\n"
            "@pytest.mark.gpu_memory(limit='100MiB')\ndef test_greedy(): take(110)\n"
            "@pytest.mark.gpu_memory(leaks=0)\ndef test_leaky(): kept.append(take(2))\n"
        )
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
    wrong = [] if "2 failed, 1 passed" in done.stdout else [done.stdout.strip().splitlines()[-1]]
    return wrong, "a limit and a leak fail their tests, the third passes", {}


if __name__ == "__main__":
    name, *words = sys.argv[1:]
    if name == "train_once":
        print(json.dumps(train_once(*words)))
        sys.exit()
    wrong, text, figures = globals()[name](*(word for word in words if word))
    print(json.dumps({"text": "; ".join(wrong) or text, "figures": figures}))
    sys.exit(1 if wrong else 0)
