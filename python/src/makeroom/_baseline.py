"""Baselines of tests: the files of `makeroom gate`, with the memory that one test uses.

A baseline has the peak and the lines that held it. Lines of a test have no kind, because a test need not be a whole training step.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from ._sizes import parse, show

if TYPE_CHECKING:
    from pathlib import Path

    from ._watch import Site, Watch

FORMAT = "makeroom baseline 1"
_HINT = "pytest --gpu-memory=write writes the baselines of all tests that have one"


class BaselineError(Exception):
    """A baseline is missing or is not a baseline."""


class Baseline(NamedTuple):
    """The peak of a test, and the bytes of each line at that time."""

    peak_bytes: int
    lines: dict[str, int]


def measured(watched: Watch) -> Baseline:
    """Return what a test used, on the device where it used the most."""
    device = max(watched.devices, key=lambda device: device.peak_bytes - device.before_bytes, default=None)
    lines: dict[str, int] = {}
    for place, size in _leaves(device.sites if device is not None else []):
        lines[place] = lines.get(place, 0) + size
    return Baseline(watched.taken_bytes, lines)


def read(path: Path) -> Baseline:
    """Read a baseline."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BaselineError(f"{path} does not exist\n\nhint: {_HINT}") from None
    except (OSError, ValueError) as error:
        raise BaselineError(f"{path} cannot be read: {error}\n\nhint: {_HINT}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise BaselineError(f"{path} is not a baseline\n\nhint: {_HINT}")
    try:
        lines: dict[str, int] = {}
        for line in content["lines"]:
            if line["place"] is not None:
                lines[line["place"]] = lines.get(line["place"], 0) + int(line["bytes"])
        return Baseline(int(content["peak_bytes"]), lines)
    except (KeyError, TypeError, ValueError) as error:
        raise BaselineError(f"{path} is damaged: {error!r}\n\nhint: {_HINT}") from None


def write(path: Path, baseline: Baseline) -> None:
    """Write a baseline, one line of code per entry and in a fixed order, so that changes are easy to review."""
    content: dict[str, Any] = {
        "format": FORMAT,
        "peak_bytes": baseline.peak_bytes,
        "reserved_bytes": None,
        "kinds": {"unknown": baseline.peak_bytes},
        "lines": [
            {"place": place, "kind": "unknown", "bytes": size, "blocks": 1} for place, size in sorted(baseline.lines.items())
        ],
    }
    # A file that is replaced is never half written.
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    beside.replace(path)


def limit(baseline: Baseline, allow: str | int) -> int:
    """Return the largest peak that is allowed: a percentage or a size above the baseline."""
    if isinstance(allow, str) and allow.strip().endswith("%"):
        percent = float(allow.strip()[:-1])
        if not 0 <= percent <= 1000:
            raise ValueError(f"{allow!r} is not between 0% and 1000%")
        return baseline.peak_bytes + int(baseline.peak_bytes * percent / 100)
    return baseline.peak_bytes + parse(allow)


def complaint(now: Baseline, before: Baseline, allow: str | int) -> str | None:
    """Return what is wrong if a test exceeds its baseline, with the line that grew most."""
    most = limit(before, allow)
    if now.peak_bytes <= most:
        return None
    text = (
        f"the test used {show(now.peak_bytes)} of GPU memory; baseline: {show(before.peak_bytes)}, "
        f"allowed: {show(most)}"
    )
    growth = {place: size - before.lines.get(place, 0) for place, size in now.lines.items()}
    place = max(growth, key=lambda place: growth[place], default=None)
    if place is not None and growth[place] > 0:
        text += f"; {place} holds {show(growth[place])} more"
    return text


def _leaves(sites: list[Site]) -> list[tuple[str, int]]:
    """Return the innermost lines, each with the bytes that no line below it has."""
    found: list[tuple[str, int]] = []
    for site in sites:
        own = site.bytes - sum(callee.bytes for callee in site.calls)
        if own > 0:
            found.append((site.place, own))
        found += _leaves(site.calls)
    return found
