"""Writes a snapshot whose names are markup, scripts, control characters and ten million letters."""
import pickle
import sys

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
with open(sys.argv[1], "wb") as file:
    pickle.dump({"segments": segments, "device_traces": [trace], "allocator_settings": {}, "external_annotations": []}, file)
