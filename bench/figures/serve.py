"""`makeroom serve` with one request per second, compared with nvitop's exporter and Python's HTTP server.

Uses 8 devices and 200 processes that hold memory. CPU time and resident memory include the process that queries the driver.
"""
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

from harness import Figure, build, figure, machine, once, under


def options(parser, quick):
    machine.options(parser, quick, seconds=60)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def cost(command, environment, port, path, length):
    """Share of a core, resident memory, and bytes of one response."""
    request = lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30).read()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            try:
                size = len(request())
                break
            except OSError:
                time.sleep(0.2)
        else:
            sys.exit(f"{command[0]} does not respond")
        return *machine.measure(process.pid, length, request), size
    finally:
        process.terminate()
        process.wait()


@once
def measured(options):
    exporter = machine.peer("nvitop-exporter", "nvitop-exporter")
    with machine.machine(options.devices, options.holders) as environment, tempfile.TemporaryDirectory() as empty:
        port, results = free_port(), {}
        command = [build.makeroom(), "serve", "--listen", f"127.0.0.1:{port}"]
        results["makeroom"] = cost(command, environment, port, "/metrics", options.seconds)
        if exporter:
            port = free_port()
            command = [exporter, "--hostname", "127.0.0.1", "--port", str(port), "--interval", "1"]
            results["nvitop-exporter"] = cost(command, environment, port, "/metrics", options.seconds)
        port = free_port()
        command = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "--directory", empty, str(port)]
        results["http.server"] = cost(command, environment, port, "/", options.seconds)
    return results


@figure
def processor(options):
    ours, *_ = measured(options)["makeroom"]
    for peer, (theirs, *_) in measured(options).items():
        if peer != "makeroom":
            yield Figure("share of a core", 100 * ours, "%", peer, 100 * theirs, under(0.5))


@figure
def memory(options):
    _, ours, size = measured(options)["makeroom"]
    for peer, (_, theirs, _) in measured(options).items():
        if peer != "makeroom":
            yield Figure("resident memory", ours / 1e6, "MB", peer, theirs / 1e6, under(30), f"{size / 1000:.1f} kB per response")
