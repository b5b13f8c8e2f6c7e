"""Whether memory stays flat over days: `serve` over 10,000 samples, `run` over many events.

`serve` normally samples at most once a second, so 10,000 samples would take three hours; `--always-sample` makes every
request a sample of its own. `run` records a program that allocates and frees on the software GPU as fast as it can, for a
while; its own resident memory and that of the recorder in the program are compared between an early and a late moment, and
the recording is read back.
"""
import os
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

from harness import Figure, build, figure, machine, measure, once, under

SOURCE = Path(__file__).resolve().parent.parent / "programs" / "soak.c"
# Caches and heaps fill up first.
WARM_UP = 1000
MIB = 2**20
EVENTS_OF_A_DAY = 24 * 3600 * 10_000


def options(parser, quick):
    samples, seconds = (500, 10) if quick else (10_000, 300)
    parser.add_argument("--samples", type=int, default=samples, help=f"[default: {samples}]")
    parser.add_argument("--seconds", type=float, default=seconds, help=f"how long the recorded program runs [default: {seconds}]")


@figure
def serve(options):
    """Growth of `serve` and its helper between the first samples and the last."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    with machine.machine(8, 50) as environment:
        command = [build.makeroom(), "serve", "--always-sample", "--listen", f"127.0.0.1:{port}"]
        process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        try:
            process.stderr.readline()  # where it listens
            request = lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60).read()
            for _ in range(WARM_UP):
                request()
            early = sum(map(measure.private, machine.family(process.pid)))
            began = time.monotonic()
            for _ in range(options.samples):
                request()
            each = (time.monotonic() - began) / options.samples
            late = sum(map(measure.private, machine.family(process.pid)))
        finally:
            process.terminate()
            process.wait()
    yield Figure(f"serve: growth over {options.samples} samples", (late - early) / MIB, "MiB", goal=under(1),
                 note=f"{early / MIB:.2f} then {late / MIB:.2f} MiB, {1e3 * each:.1f} ms per sample")


@once
def recorded(options):
    """Private memory early and late, of `run` and of the program; events; bytes of the file; the cost of reading it."""
    with tempfile.TemporaryDirectory() as directory:
        environment, program = build.software_gpu(directory), os.path.join(directory, "program")
        build.call([os.environ.get("CC", "cc"), "-w", "-o", program, SOURCE, os.path.join(directory, "libcuda.so.1")])
        recording = os.path.join(directory, "run.room")
        command = [build.makeroom(), "run", "--no-status", "-o", recording, "--", program, str(options.seconds)]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        output = []
        reader = threading.Thread(target=lambda: output.append(process.stdout.read()))
        reader.start()
        time.sleep(options.seconds / 5)
        early = [measure.private(pid) for pid in machine.family(process.pid)]
        time.sleep(options.seconds * 0.7)
        late = [measure.private(pid) for pid in machine.family(process.pid)]
        process.wait()
        reader.join()
        reading = measure.run([build.makeroom(), "why", "--json", recording])
        return early, late, int(output[0].split()[0]), os.path.getsize(recording), reading


@figure
def run(options):
    early, late, events, _, _ = recorded(options)
    yield Figure(f"run: growth over {events / 1e6:.0f} million events", (sum(late) - sum(early)) / MIB, "MiB", goal=under(1),
                 note=f"makeroom {early[0] / MIB:.2f} then {late[0] / MIB:.2f} MiB, the program {sum(early[1:]) / MIB:.2f} then "
                      f"{sum(late[1:]) / MIB:.2f} MiB")


@figure
def file(options):
    _, _, events, size, _ = recorded(options)
    yield Figure("run: size of an event", size / events, "bytes",
                 note=f"a day at 10,000 events per second: {EVENTS_OF_A_DAY * size / events / 1e9:.1f} GB")


@figure
def why(options):
    _, _, events, size, reading = recorded(options)
    beyond = reading.memory - 100e6
    yield Figure("why: peak beyond 100 MB, per byte of the file", beyond / size, "bytes", goal=under(20),
                 note=f"{reading.memory / 1e6:.0f} MB for {size / 1e6:.0f} MB, {reading.processor:.1f} s of CPU time; such a day: "
                      f"{EVENTS_OF_A_DAY * max(beyond, 0) / events / 1e9:.0f} GB")
