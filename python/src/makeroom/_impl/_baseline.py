"""Baselines of tests: the files of `makeroom gate`, with the memory that one test uses.

A baseline has the peak and the lines that held it, without the memory that was live before the test: of each line, only the
growth counts. Lines of a test have no kind, because a test need not be a whole training step.

Σ lines = peak. Memory for which no line was recorded is a line without a place.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from ._sizes import parse, show
from ._sources import NO_STACK

if TYPE_CHECKING:
    from pathlib import Path

    from ._watch import Watch

FORMAT = "makeroom baseline 1"
_HINT = "to write the baselines: pytest --gpu-memory=write"


class BaselineError(Exception):
    """A baseline is missing, or the file is not a baseline."""


class Line(NamedTuple):
    """The memory of a line of code."""

    bytes: int
    blocks: int


class Baseline(NamedTuple):
    """The peak of a test, and its lines at that time. `None` is the memory for which no line was recorded."""

    peak_bytes: int
    lines: dict[str | None, Line]

    def to_dict(self) -> dict[str, Any]:
        """Return the content of a baseline file."""
        lines = sorted(self.lines.items(), key=lambda item: (item[0] is not None, item[0] or ""))
        return {
            "format": FORMAT,
            "peak_bytes": self.peak_bytes,
            "reserved_bytes": None,
            "kinds": {"unknown": self.peak_bytes},
            "lines": [{"place": place, "kind": "unknown", **line._asdict()} for place, line in lines],
        }


def from_dict(content: Any) -> Baseline:
    """Return the baseline that a file contains.

    Raises:
        KeyError, TypeError, ValueError: It is not the content of a baseline.
    """
    lines: dict[str | None, Line] = {}
    for line in content["lines"]:
        known = lines.get(line["place"], Line(0, 0))
        lines[line["place"]] = Line(known.bytes + int(line["bytes"]), known.blocks + int(line["blocks"]))
    return Baseline(int(content["peak_bytes"]), lines)


def measured(watched: Watch) -> Baseline:
    """Return what a test used, on the device where it used the most.

    Memory that was live before the test and that the test freed does not reduce the peak.
    """
    device = max(watched.devices, key=lambda device: device.peak_bytes - device.before_bytes, default=None)
    if device is None:
        return Baseline(0, {})
    lines: dict[str | None, Line] = {}
    for site in device.taken_sites:
        lines[None if site.place == NO_STACK else site.place] = Line(site.bytes, site.blocks)
    listed = sum(line.bytes for line in lines.values())
    peak = max(device.peak_bytes - device.before_bytes, listed)
    if peak > listed:
        # The source records no lines, or not all of them.
        known = lines.get(None, Line(0, 0))
        lines[None] = Line(known.bytes + peak - listed, known.blocks)
    return Baseline(peak, lines)


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
        return from_dict(content)
    except (KeyError, TypeError, ValueError) as error:
        raise BaselineError(f"{path} is damaged: {error!r}\n\nhint: {_HINT}") from None


def write(path: Path, baseline: Baseline) -> None:
    """Write a baseline, one line of code per entry and in a fixed order, so that changes are easy to review.

    Raises:
        OSError: The file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # A file that is replaced is never half written.
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(baseline.to_dict(), indent=2) + "\n", encoding="utf-8")
    draft.replace(path)


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
    none = Line(0, 0)
    growth = {
        place: line.bytes - before.lines.get(place, none).bytes for place, line in now.lines.items() if place is not None
    }
    place = max(growth, key=lambda place: growth[place], default=None)
    if place is not None and growth[place] > 0:
        text += f"; {place} holds {show(growth[place])} more"
    return text
