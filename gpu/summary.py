"""Sums up a check: summary.py RESULTS.jsonl TIMES.jsonl OUT.json. Ends with 1 if anything failed or nothing was checked."""

import collections
import json
import subprocess
import sys

results_path, times_path, json_path = sys.argv[1:]
with open(results_path) as file:
    results = [json.loads(line) for line in file]
with open(times_path) as file:
    seconds = {time["section"]: time["seconds"] for time in map(json.loads, file)}
count = collections.Counter(result["status"] for result in results)
query = subprocess.run(
    ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"],
    capture_output=True,
    text=True,
)
with open(json_path, "w") as file:
    json.dump({"gpu": query.stdout.strip(), "count": count, "seconds": seconds, "results": results}, file, indent=1)
    file.write("\n")
print(f"\n{count['ok']} ok, {count['FAILED']} FAILED, {count['skipped']} skipped; all figures: {json_path}")
sys.exit(count["FAILED"] > 0 or count["ok"] == 0)
