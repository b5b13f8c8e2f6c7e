"""Arithmetic of the paging checks, without a GPU: limits by bisection, intervals, goals, shares of time."""

from support.runs import at

MIB = 1 << 20
# Runs of one bisection.
LIMITS = 4


def bisect(completes, low, high, runs):
    """Narrows the smallest limit with which a program completes; the first is assumed to fail and the last to complete.

    Returns the largest limit that failed and the smallest that completed, after so many runs."""
    for _ in range(runs):
        middle = (low + high) // 2
        if completes(middle):
            high = middle
        else:
            low = middle
    return low, high


def interval(values):
    """The 95 % interval of the median by order statistics; the whole range if there are too few values."""
    ordered, count = sorted(values), len(values)
    below, rank, chance = 0.0, 0, 0.5 ** count
    # The largest rank with at most 2.5 % below it.
    while below + chance <= 0.025 and rank < count // 2:
        below += chance
        rank += 1
        chance = chance * (count - rank + 1) / rank
    return ordered[max(rank - 1, 0)], ordered[count - max(rank, 1)]


def pages_of(summary):
    """The figures of the process with the most reports, in the file that `run --summary` writes; empty if nothing was paged."""
    found = [pages for process in summary or [] for pages in at(process, "explanation", "run", "pages") or []]
    return max(found, key=lambda pages: pages["reports"], default={})


def factor(pages):
    """Physical bytes per live byte, at their peaks; 0 if nothing was paged."""
    return pages.get("peak_physical_bytes", 0) / max(pages.get("peak_live_bytes", 0), 1)


def most_physical(live):
    """The goal for that factor; none for small programs, of which every page is a large part."""
    return 1.01 if live >= 8e9 else 1.03 if live >= 2e9 else float("inf")


def is_footprint_met(expandable, paging):
    """Whether the whole process holds at most 0.2 % or 32 MiB more than with plain expandable segments."""
    return 0 < paging <= expandable + max(expandable // 500, 32 * MIB)


def time_inside(series):
    """The share of the run that was spent inside, of rows that begin with seconds and nanoseconds inside."""
    return share(series, 0.0)


def second_half(series):
    """The same for the second half of the run."""
    return share(series, 0.5)


def share(series, since):
    if not series or series[-1][0] <= series[0][0]:
        return 0.0
    (begin, *_), (end, last, *_) = series[0], series[-1]
    start, inside, *_ = max((row for row in series if row[0] <= begin + since * (end - begin)), key=lambda row: row[0])
    return (last - (inside if since else 0)) / 1e9 / (end - start)
