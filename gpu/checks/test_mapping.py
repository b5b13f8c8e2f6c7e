"""What pages under PyTorch's allocator rely on: calls that map memory do not wait for kernels, and PyTorch recovers from
refused growth without losing anything."""

import json

import pytest

from support.runs import last_line

CALLS = ["cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease", "move", "grow"]
# The kernel spins for 300 ms.
LONGEST_US = 50_000


@pytest.mark.needs("nvcc")
@pytest.mark.goal("no call takes 50 ms while a kernel spins for 300 ms, and all are allowed in a capture")
def test_mapping_waits(runs, show):
    run = runs.plain("mapping_waits", [runs.build("mapping_waits", "mapping_waits.cu", "-lcuda")])
    assert run.status == 0, f"exit status {run.status}: {last_line(run.err)}"
    lines = [json.loads(line) for line in run.out.splitlines()]
    times = {line["call"]: line["behind_kernel_us"] for line in lines if "behind_kernel_us" in line}
    statuses = [(line["status"], line["capture"]) for line in lines if "status" in line]
    show(", ".join(f"{call} {time:.0f} us" for call, time in times.items()), times=times)
    assert list(times) == CALLS
    assert max(times.values()) < LONGEST_US, "a call waits for the kernel"
    assert statuses == [(0, 0), (0, 0)], "not allowed in a capture"


@pytest.mark.needs("nvcc")
@pytest.mark.goal("an event of the context is done once the work of all streams before it is, and not earlier")
def test_context_events(runs, show):
    run = runs.plain("context_events", [runs.build("context_events", "context_events.cu", "-lcuda")])
    assert run.status == 0, f"exit status {run.status}: {last_line(run.err)}"
    found = json.loads(last_line(run.out))
    show(f"recording takes {found['record_us']} us, a query {found['query_us']} us; in a capture it answers "
         f"{found['in_capture']}, and the capture ends with {found['capture_ended']}", **found)
    assert found["covered"] == found["streams"] and found["independent"]


@pytest.mark.needs("torch")
@pytest.mark.goal("after 100 refusals, PyTorch's statistics are the same as before")
@pytest.mark.parametrize("pattern", ["plain", "autograd", "capture", "cached"], ids="refusals_{}".format)
def test_refusals(runs, show, pattern):
    environment = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
    run = runs.recorded(f"refusals_{pattern}", runs.python("torch_refusals.py", pattern), options=["--limit", "8GiB"],
                        environment=environment)
    assert run.status == 0, f"exit status {run.status}: {last_line(run.err)}"
    found = json.loads(last_line(run.out))
    show(f"refused {found['refused']} times, PyTorch counts {found['counted']}", **found)
    assert found["refused"] > 0 and found["works"] and found["sum"] == 4950
    assert found["differences"] == {}, "the statistics differ"
