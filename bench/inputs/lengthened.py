"""A recording made longer: the steps of a real one, repeated later in time.

A long recording has few names and many events. Frames that are repeated keep only their events, whose times move, so the
result is one program that runs for longer.
"""
from inputs.hostile import fold, frame

RECORDS = 2
EVENT, LONG_KIND = 0x80, 0x3F
TIMED = {5, 6, 7, 8}
PLACE = 1 << 4
PAUSE_NS = 1_000_000


def number(data, at):
    """A variable-length integer, and the position after it."""
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value, at


def unfold(value):
    return value >> 1 ^ -(value & 1)


def events(payload):
    """The events of a frame of records: their time, and the bytes before and after it."""
    _, at = number(payload, 0)
    time = 0
    while at < len(payload):
        start = at
        tag, at = payload[at], at + 1
        if not tag & EVENT:
            length, at = number(payload, at)
            if tag in TIMED:
                time += unfold(number(payload, at)[0])
            at += length
            continue
        at += tag & LONG_KIND == LONG_KIND
        fields, at = payload[at], at + 1
        head = payload[start:at]
        delta, at = number(payload, at)
        time += unfold(delta)
        rest = at
        for bit in range(8):
            for _ in range((fields >> bit & 1) * (2 if 1 << bit == PLACE else 1)):
                _, at = number(payload, at)
        yield time, head, payload[rest:at]


def payloads(parts):
    return [part[9:] for part in parts if part[8] == RECORDS]


def event_count(parts):
    return sum(1 for payload in payloads(parts) for _ in events(payload))


def lengthened(parts, repeats):
    """The frames of a recording, as `inputs.jobs.recording` returns them, and its later half this many more times."""
    later = [(payload[:number(payload, 0)[1]], list(events(payload))) for payload in payloads(parts)[len(parts) // 2:]]
    later = [(thread, found) for thread, found in later if found]
    times = [time for _, found in later for time, _, _ in found]
    period = max(times) - min(times) + PAUSE_NS
    copies = []
    for repeat in range(1, repeats + 1):
        for thread, found in later:
            before, content = -repeat * period, [thread]
            for time, head, rest in found:
                content += [head, fold(time - before), rest]
                before = time
            copies.append(frame(RECORDS, b"".join(content)))
    return list(parts) + copies
