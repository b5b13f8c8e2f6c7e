"""Writes snapshots that are odd into a folder: names that are markup, scripts, control characters and ten million letters
(hostile.pickle); nothing at all, one event, one refusal, one moment without a history, several GPUs (odd-*.pickle)."""
import os
import pickle
import sys

FOLDER = sys.argv[1]


def write(name, segments, traces):
    snapshot = {"segments": segments, "device_traces": traces, "allocator_settings": {}, "external_annotations": []}
    with open(os.path.join(FOLDER, name), "wb") as file:
        pickle.dump(snapshot, file)


def event(action, **more):
    frames = [{"name": "main", "filename": "train.py", "line": 1}]
    return {"action": action, "addr": 0x7F0000000000, "size": 512, "stream": 0, "frames": frames, "time_us": 5, **more}


NAMES = [
    "<script>window.hacked = 1</script>",
    "<img src=x onerror=\"window.hacked = 1\">",
    "\"><svg onload='window.hacked = 1'>",
    "line\nbreak\0zero\u202egnp.exe",
    "</script><script>window.hacked = 1</script>",
    "x" * 60_000,
    "y" * 10_000_000,
]
trace, segments = [], []
for number, name in enumerate(NAMES):
    address = 0x7F0000000000 + number * (2 << 20)
    frames = [{"name": name, "filename": f"{number}<b>.py", "line": number + 1}]
    trace.append({"action": "segment_alloc", "addr": address, "size": 2 << 20, "stream": 0, "frames": frames, "time_us": number * 10})
    trace.append({"action": "alloc", "addr": address, "size": (number + 1) << 17, "stream": 0, "frames": frames, "time_us": number * 10 + 1})
    held = (number + 1) << 17
    blocks = [{"address": address, "size": held, "requested_size": held, "state": "active_allocated", "frames": frames}]
    if held < 2 << 20:
        blocks.append({"address": address + held, "size": (2 << 20) - held, "requested_size": 0, "state": "inactive", "frames": []})
    segments.append({"device": 0, "address": address, "total_size": 2 << 20, "allocated_size": held, "active_size": held,
                     "requested_size": held, "stream": 0, "segment_type": "large", "segment_pool_id": (0, 0),
                     "is_expandable": False, "frames": frames, "blocks": blocks})
write("hostile.pickle", segments, [trace])
write("odd-nothing.pickle", [], [])
write("odd-one-event.pickle", [], [[event("alloc")]])
write("odd-refusal.pickle", [], [[event("oom", device_free=10, size=512 << 30)]])
write("odd-no-history.pickle", segments[:1], [[]])
write("odd-devices.pickle", [], [[], [event("alloc")], [event("alloc", addr=4096 * number) for number in range(1, 4)]])
write("odd-deep.pickle", [], [[event("alloc", frames=event("alloc")["frames"] * 3000)]])
