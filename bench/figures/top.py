"""`makeroom top`, compared with nvitop, each on a terminal with 80 columns and 24 rows.

Uses 8 devices and 200 processes that hold memory, with one update per second. CPU time and resident memory include the
process that queries the driver.
"""
import fcntl
import os
import pty
import signal
import struct
import termios
import threading
import time

from harness import Figure, build, figure, machine, once, under


def options(parser, quick):
    machine.options(parser, quick, seconds=60)


def cost(command, environment, length):
    """The share of a core, the resident memory, and the bytes written to the terminal per second."""
    pid, terminal = pty.fork()
    if pid == 0:
        # Start only after the terminal has its size.
        time.sleep(0.2)
        os.execve(command[0], command, dict(environment, TERM="xterm-256color"))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    drawn = [0]

    def drain():
        try:
            while data := os.read(terminal, 65536):
                drawn[0] += len(data)
        except OSError:
            pass

    threading.Thread(target=drain, daemon=True).start()
    try:
        time.sleep(4)
        before = drawn[0]
        share, memory = machine.measure(pid, length)
        return share, memory, (drawn[0] - before) / length
    finally:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)


@once
def measured(options):
    """What makeroom needs, and nvitop, if it can be installed."""
    path = machine.peer("nvitop", "nvitop")
    with machine.machine(options.devices, options.holders) as environment:
        ours = cost([build.makeroom(), "top"], environment, options.seconds)
        theirs = cost([path, "--monitor", "full", "--interval", "1"], environment, options.seconds) if path else None
    return ours, theirs


def compared(options, index, name, unit, factor, goal=None):
    ours, theirs = measured(options)
    return Figure(name, factor * ours[index], unit, "nvitop" if theirs else "", factor * theirs[index] if theirs else None, goal)


@figure
def processor(options):
    yield compared(options, 0, "share of a core", "%", 100, under(2))


@figure
def memory(options):
    yield compared(options, 1, "resident memory", "MB", 1e-6)


@figure
def terminal(options):
    yield compared(options, 2, "written to the terminal", "bytes/s", 1)
