"""Which processes hold the GPU: the figures of `makeroom ps` add up while processes of different kinds hold memory, and each
is listed with its size. The checks are one story: they run in this order, and the later ones use what the earlier ones saw."""

import statistics
import time
from types import SimpleNamespace

import pytest

from support.holders import Holders, has_pid_namespaces
from support.needs import missing
from support.runs import at, need

MOST = 128 << 20
goal = pytest.mark.goal


def used(answer):
    return need(answer, "devices", 0, "used_bytes")


@pytest.fixture(scope="module")
def story(runs):
    """All holders at once, and what `ps` says before, with all of them, with managed memory as well, and afterwards."""
    holders = Holders(runs)
    account = lambda name: runs.call(f"ps.{name}", "ps", "--json")[0]
    # The software GPU knows a process by the PID in its own namespace; a real driver by that of the host.
    has_namespace = not runs.software and has_pid_namespaces()
    found = SimpleNamespace(before=account("before"), kinds=3, has_namespace=has_namespace)
    try:
        holders.hold("plain", "plain", 2048)
        holders.hold("idle", "idle")
        holders.hold("stream", "stream", 1536)
        if not missing("torch", runs.makeroom, runs.software):
            holders.hold("torch", "torch", 4096)
            found.kinds += 1
        if found.has_namespace:
            holders.hold("namespace", "plain", 1024, prefix=["unshare", "--pid", "--fork", "--mount-proc"])
            found.kinds += 1
        found.full = account("full")
        half = need(found.full, "devices", 0, "free_bytes") // 2
        found.met = runs.call("ps.require", "ps", "--require", str(half))[1]
        found.unmet = runs.call("ps.require", "ps", "--require", "9999GiB")[1]
        found.seconds = []
        for _ in range(5):
            begin = time.perf_counter()
            account("timed")
            found.seconds.append(time.perf_counter() - begin)
        holders.hold("managed", "managed", 3072,
                     prefix=[runs.makeroom, "run", "-o", runs.directory / "ps.managed.room", "--"])
        time.sleep(1)
        found.managed = account("managed")
    finally:
        holders.release()
    found.after = account("after")
    return found


def causes(answer):
    return [cause["cause"] for cause in at(answer, "devices", 0, "unlisted", "causes") or []]


@goal("a process in another PID namespace is among the holders")
def test_namespace(story, show):
    if not story.has_namespace:
        pytest.skip("no PID namespaces for this user, or on the software GPU")
    show(f"{story.kinds} kinds of processes hold memory, one in another PID namespace")


@goal("less than 128 MiB has no listed owner, and every process is listed")
def test_ledger(story, show):
    device = need(story.full, "devices", 0)
    rest, holders = need(device, "unlisted", "bytes"), device["holders"]
    sizes = [holder["bytes"] >> 20 for holder in holders if holder["bytes"]]
    show(f"{story.kinds} processes hold memory, {len(holders)} listed ({' '.join(map(str, sizes))} MiB), "
         f"{rest >> 20} MiB without a listed owner",
         unlisted=rest, held=sum(holder["bytes"] or 0 for holder in holders), used=device["used_bytes"],
         used_before=used(story.before), holders=len(holders), sizes_mib=sizes, causes=causes(story.full))
    assert abs(rest) < MOST, f"{rest} bytes without a listed owner; causes: {causes(story.full)}"
    assert len(holders) >= story.kinds, "not every process is listed"


@goal("free + reserved + processes + without an owner is the total")
def test_adds_up(story, show):
    device = need(story.full, "devices", 0)
    held = sum(holder["bytes"] or 0 for holder in device["holders"])
    total = device["free_bytes"] + device["reserved_bytes"] + held + device["unlisted"]["bytes"]
    show("free + reserved + processes + without an owner is the total")
    assert total == device["total_bytes"], f"the lines do not add up: {total} of {device['total_bytes']}"


@goal("processes are shown with their command line")
def test_processes(story, show):
    holders, whole = need(story.full, "devices", 0, "holders"), at(story.full, "view", "whole_machine")
    seen = sum("ps_holder" in " ".join(at(holder, "process", "command") or []) for holder in holders)
    show(f"{seen} processes are shown with their command line", seen=seen, whole_machine=whole)
    if seen < story.kinds and whole is False:
        pytest.skip(f"this is a container: the driver lists host PIDs, {seen} of {story.kinds} processes are visible")
    assert seen >= story.kinds, f"{seen} of {story.kinds} processes"


@goal("--require exits 0 for half of the free memory and 1 for more than the GPU has")
def test_require(story, show):
    show("--require exits 0 for half of the free memory and 1 for more than the GPU has")
    assert (story.met, story.unmet) == (0, 1), f"--require exits {story.met} and {story.unmet}"


@goal("shown, not limited")
def test_time(story, show):
    median = statistics.median(story.seconds)
    show(f"makeroom ps takes {median:.3f} s (median of five)", seconds=median)


@goal("doctor finds the driver")
def test_doctor(runs, show):
    answer, _ = runs.call("ps.doctor", "doctor", "--json")
    checks = [check for check in need(answer, "checks") if check["subject"] in ("driver", "versions", "injection")]
    show("; ".join(f"{check['verdict']}: {check['found']}" for check in checks))
    assert checks, "doctor says nothing about the driver"


@goal("managed memory is counted for its process, or explained from its recording")
def test_managed(story, show):
    rest = need(story.full, "devices", 0, "unlisted", "bytes")
    more, found = need(story.managed, "devices", 0, "unlisted", "bytes") - rest, causes(story.managed)
    show(f"3072 MiB of managed memory: {more >> 20} MiB more without a listed owner; causes: {' '.join(found) or 'none'}",
         unlisted_more=more, causes=found)
    assert more < MOST or found[:1] == ["managed_memory"], "managed memory has no owner and no cause"


@goal("shown, not limited")
def test_given_back(story, show):
    before, after = used(story.before), used(story.after)
    show(f"in use before: {before >> 20} MiB, after: {after >> 20} MiB", used_before=before, used_after=after)
