"""Prints which lines of a program held the most memory at its peak: `python largest.py run.room [COUNT]`.

Needs no package besides makeroom. `trace.live().to_polars()` gives the same rows to polars.
"""

import sys
from collections import Counter

import makeroom


def largest(path: str, count: int) -> "list[tuple[str, int]]":
    trace = makeroom.open(path)
    held: "Counter[str]" = Counter()
    for row in trace.live():
        held[row["site"] or "no stack recorded"] += row["size"]
    return held.most_common(count)


def main() -> int:
    if len(sys.argv) < 2:
        print("usage: largest.py RECORDING [COUNT]", file=sys.stderr)
        return 2
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    try:
        lines = largest(sys.argv[1], count)
    except (OSError, makeroom.InputError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for place, size in lines:
        print(f"{size:>15,}  {place}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
