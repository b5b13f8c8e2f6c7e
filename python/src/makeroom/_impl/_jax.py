"""JAX: its allocator's counters for `watch`, and its profile of live buffers for `explain`.

JAX reserves most of a GPU when it is first used, so nothing here makes it start: without a source name, `watch` reads devices
only after the program has used them. The profile (`jax.profiler.device_memory_profile`) has the stack of each live buffer;
`_jax_arrays.py` removes those that have no memory.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

from . import _jax_arrays, _native
from ._errors import chain
from ._sources import NO_STACK, Counter, CounterSource, WatchError

if TYPE_CHECKING:
    from ._explanation import Explanation

# Classes of exceptions that XLA raises, by name.
_ERRORS = {"XlaRuntimeError", "JaxRuntimeError"}
_PROFILE = "JAX's memory profile"
# The allocator's own figures, which an exception or a log may include.
_OWN_REPORT = re.compile(r"ran out of memory trying to allocate|^\W*InUse:\s+\d", re.MULTILINE)


def module() -> Any:
    """Return JAX if the program imported it, else `None`."""
    jax = sys.modules.get("jax")
    return jax if jax is not None and hasattr(jax, "local_devices") else None


def is_started() -> bool:
    """Return whether the program has used a device. If this version of JAX does not show that, return no."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    try:
        return bool(bridge is not None and bridge.backends_are_initialized())
    except (AttributeError, RuntimeError):
        return False


def counted_devices(jax: Any) -> list[tuple[Any, dict[str, int]]]:
    """Return the GPUs whose allocator keeps statistics, with those. This starts JAX."""
    found = []
    for device in jax.local_devices():
        stats = _stats(device) if device.platform != "cpu" else None
        if stats and "bytes_in_use" in stats:
            found.append((device, stats))
    return found


def _stats(device: Any) -> dict[str, int] | None:
    """Return the statistics of a device, or `None` if its platform has none."""
    try:
        stats: dict[str, int] | None = device.memory_stats()
        return stats
    except Exception:
        return None


def why_not() -> str | None:
    """Return why JAX cannot be watched, with a hint; `None` if it can, or if that is not known before it starts."""
    jax = module()
    if jax is None:
        return "JAX is not imported\n\nhint: import jax first"
    if not is_started() or counted_devices(jax):
        return None
    if all(device.platform == "cpu" for device in jax.local_devices()):
        return "JAX found no GPU\n\nhint: pip install 'jax[cuda13]'; makeroom doctor"
    return "JAX's allocator keeps no statistics here\n\nhint: unset XLA_PYTHON_CLIENT_ALLOCATOR, or use makeroom run -- python …"


def live_buffers(error: BaseException | None = None) -> _native.Recording | None:
    """Return JAX's profile of live buffers, or `None` if JAX is not in use or the error is not JAX's."""
    jax = module()
    if jax is None or not is_started() or error is not None and not _is_of_jax(error):
        return None
    try:
        profile = _native.read_bytes(_PROFILE, jax.profiler.device_memory_profile())
        return _jax_arrays.only_real(jax, profile, {_index(device): stats for device, stats in counted_devices(jax)})
    except Exception:
        # After a failure, JAX may be unusable. The error message still has an explanation.
        return None


def allocator_log(error: BaseException, text: str, explanation: Explanation) -> str:
    """Return the figures of JAX's allocator, in the words of its log, or nothing if they do not show the failure.

    XLA writes them to stderr, and not into the exception. They are read now, so memory that the program has freed since
    the failure is missing; the highest amount that was ever in use shows whether it can have been the reason.
    """
    jax, request = module(), explanation.request_bytes
    if jax is None or not request or not is_started() or not _is_of_jax(error) or _OWN_REPORT.search(text):
        return ""
    try:
        found = {_index(device): stats for device, stats in counted_devices(jax) if stats.get("bytes_limit")}
    except Exception:
        # After a failure, JAX may be unusable.
        return ""
    if not found:
        return ""
    named = explanation.to_dict()["request"]["device"]
    device = named if named in found else max(found, key=lambda each: _most(found[each]) / found[each]["bytes_limit"])
    stats = found[device]
    limit, in_use, largest = stats["bytes_limit"], stats["bytes_in_use"], stats.get("largest_free_block_bytes", 0)
    # Figures with which the request would have succeeded at any time explain nothing.
    if in_use + request <= limit and not 0 < largest < request and _most(stats) <= in_use:
        return ""
    lines = [f"Allocator (GPU_{device}_bfc) ran out of memory trying to allocate {request}B (rounded to {request})"]
    taken = stats.get("pool_bytes", 0)
    if taken:
        lines.append(
            f"total_region_allocated_bytes_: {taken} memory_limit_: {limit} available bytes: {max(limit - taken, 0)} "
            f"curr_region_allocation_bytes_: {taken}"
        )
    lines += ["Stats after the failure:", f"Limit: {limit}", f"InUse: {in_use}", f"MaxInUse: {_most(stats)}"]
    if largest:
        lines.append(f"LargestFreeBlock: {largest}")
    return "\n" + "\n".join(lines) + "\n"


def _most(stats: dict[str, int]) -> int:
    """Return the highest amount that was in use."""
    return max(stats["bytes_in_use"], stats.get("peak_bytes_in_use", 0))


def _index(device: Any) -> int:
    """Return the number of a device on this host."""
    return int(getattr(device, "local_hardware_id", 0) or 0)


def _is_of_jax(error: BaseException) -> bool:
    kinds = [kind for each in chain(error) for kind in type(each).__mro__]
    return any(kind.__name__ in _ERRORS or kind.__module__.split(".")[0] in ("jax", "jaxlib") for kind in kinds)


class JaxCounter(Counter):
    """Counters of one device. JAX cannot reset its peak, so the peak of a step is known only if it is a new maximum;
    otherwise it is at least the live memory at the step's ends."""

    def __init__(self, device: Any, before: dict[str, int] | None) -> None:
        self._device, self._highest, self._live = device, 0, 0
        self.is_exact = False
        stats = before if before is not None else {"bytes_in_use": 0, "peak_bytes_in_use": 0}
        self._highest, self._live = stats.get("peak_bytes_in_use", 0), stats["bytes_in_use"]
        super().__init__(_index(device), self._read, self._reset)
        self.before = self._live if before is not None else 0

    def _read(self) -> tuple[int, int]:
        stats = self._device.memory_stats()
        live, highest = int(stats["bytes_in_use"]), int(stats.get("peak_bytes_in_use", 0))
        is_new = highest > self._highest
        self.is_exact |= is_new
        return live, highest if is_new else max(live, self._live)

    def _reset(self) -> None:
        stats = self._device.memory_stats()
        self._highest, self._live = int(stats.get("peak_bytes_in_use", 0)), int(stats["bytes_in_use"])


class JaxSource(CounterSource):
    """Counters of JAX's allocator; with lines, its profiles of live buffers at the ends of steps."""

    def __init__(self, jax: Any, lines: bool) -> None:
        super().__init__("jax", "JAX's counters", list)
        self._jax, self._lines = jax, lines
        self._profiles: list[dict[int, dict[str, tuple[int, int]]]] = []
        self._made: dict[int, JaxCounter] = {}
        self._marks = 0

    def begin(self) -> None:
        self._find()
        self._profile()

    def mark(self) -> None:
        self._find()
        super().mark()
        self._marks += 1
        self._profile()

    def end(self) -> list[dict[str, Any]]:
        figures = super().end()
        if not self._made:
            self.notes.append("JAX used no GPU")
        if self._made and not any(counter.is_exact for counter in self._made.values()):
            self.notes.append(
                "JAX's allocator had a higher peak before this block and cannot reset it: the peak here is a lower bound"
            )
        if self._lines:
            for device in figures:
                self._add_lines(device)
        else:
            self.notes.append("to see the lines that hold memory, use makeroom run -- python …, or makeroom.watch(lines=True)")
        return figures

    def _find(self) -> None:
        """Add the devices that JAX has started since the last call. Without a device, nothing was live before."""
        if not is_started():
            return
        for device, stats in counted_devices(self._jax):
            if device.id not in self._made:
                counter = JaxCounter(device, None if self._marks else stats)
                # Steps before the first use of the device used nothing.
                counter.steps = [{"peak_bytes": 0, "after_bytes": 0} for _ in range(self._marks)]
                self._made[device.id] = counter
                self._counters.append(counter)

    def _profile(self) -> None:
        if self._lines:
            recording = live_buffers()
            self._profiles.append(_by_line(recording) if recording is not None else {})

    def _add_lines(self, figures: dict[str, Any]) -> None:
        device = figures["device"]
        held = [profile.get(device, {}) for profile in self._profiles]
        fullest = max(held, key=lambda lines: sum(size for size, _ in lines.values()))
        figures["sites"] = _sites(fullest, {})
        figures["taken"] = _sites(fullest, held[0])
        figures["left_sites"] = _sites(held[-1], held[0])
        figures["left_blocks"] = sum(site["blocks"] for site in figures["left_sites"])
        # Without the first step, which fills caches, and the part after the last.
        if len(held) > 3:
            figures["leaking"] = _sites(held[-2], held[1])


def _by_line(recording: _native.Recording) -> dict[int, dict[str, tuple[int, int]]]:
    """Return bytes and number of live buffers, by device and line."""
    table = recording.allocations().select(["device", "size", "site"])
    lines: dict[int, dict[str, tuple[int, int]]] = {}
    for device, size, site in table.rows(0, len(table)):
        of_device = lines.setdefault(device, {})
        bytes, count = of_device.get(site or NO_STACK, (0, 0))
        of_device[site or NO_STACK] = (bytes + size, count + 1)
    return lines


def _sites(now: dict[str, tuple[int, int]], before: dict[str, tuple[int, int]]) -> list[dict[str, Any]]:
    """Return the lines that hold more now than before, largest first, in the format of `watched_json`."""
    sites = []
    for site, (bytes, count) in now.items():
        old_bytes, old_count = before.get(site, (0, 0))
        if bytes > old_bytes:
            more = {"site": site, "bytes": bytes - old_bytes, "blocks": max(count - old_count, 0), "calls": []}
            sites.append(more)
    return sorted(sites, key=lambda site: -int(str(site["bytes"])))


def source(is_named: bool, lines: bool | None) -> JaxSource | None:
    """Return the source for `watch`, or `None` if JAX cannot be watched. If the user named it, start JAX."""
    jax = module()
    if jax is None:
        return None
    if is_named and not counted_devices(jax):
        raise WatchError(why_not() or "JAX found no GPU")
    return JaxSource(jax, bool(lines)) if why_not() is None else None
