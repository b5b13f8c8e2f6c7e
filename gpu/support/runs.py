"""Runs programs with and without makeroom, each once per session, so that sections share runs and each also works alone.

All files are in one directory, named after the run: NAME.plain.out and NAME.run.out (stdout), .err (stderr), .json
(figures written by the program itself), NAME.room (the recording), NAME.why.json and NAME.replay.json.
"""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parent.parent / "programs"
TIMED_OUT = 124


def at(value, *path):
    """The value at a path of keys and positions; None if there is none."""
    for key in path:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def need(value, *path):
    """The value at a path of keys and positions; fails the check if there is none."""
    found = at(value, *path)
    assert found is not None, f"no {'.'.join(map(str, path))} in the JSON"
    return found


def load(path):
    """The content of a JSON file; None if it is missing or is not JSON."""
    try:
        return json.loads(Path(path).read_text())
    except (OSError, ValueError):
        return None


def last_line(text):
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""


def execute(command, out, err, seconds=120, environment=None, directory=None):
    """Runs a command with its output in two files; returns its exit status, 124 after a timeout, -N after a signal.

    The command is a process group of its own, so that a timeout also ends its children."""
    with open(out, "wb") as stdout, open(err, "wb") as stderr:
        process = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
            env=environment, cwd=directory, start_new_session=True)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            for number in (signal.SIGTERM, signal.SIGKILL):
                os.killpg(process.pid, number)
                try:
                    process.wait(5)
                    break
                except subprocess.TimeoutExpired:
                    continue
            return TIMED_OUT


@dataclass
class Run:
    """One run of a program."""

    stem: Path
    status: int

    def file(self, ending):
        return self.stem.with_name(f"{self.stem.name}.{ending}")

    @property
    def out(self):
        return self.file("out").read_text(errors="replace")

    @property
    def err(self):
        return self.file("err").read_text(errors="replace")

    @property
    def said(self):
        """What was printed to stderr, with wrapped lines joined."""
        return " ".join(self.err.split())

    @property
    def figures(self):
        """The figures that the program itself wrote (programs/figures.py)."""
        return load(self.file("json"))


@dataclass
class Recorded(Run):
    """One run under `makeroom run`, with its recordings and what makeroom says about the first."""

    name: str = ""

    @property
    def room(self):
        return self.stem.with_name(f"{self.name}.room")

    @property
    def rooms(self):
        """The recordings of all processes: child processes add their PID to the name."""
        return [path for path in [self.room, *self.room.parent.glob(f"{self.name}.[0-9]*.room")] if path.exists()]

    @property
    def why(self):
        return load(self.stem.with_name(f"{self.name}.why.json"))

    @property
    def replay(self):
        return load(self.stem.with_name(f"{self.name}.replay.json"))


class Runs:
    """The runs of one session."""

    def __init__(self, makeroom, directory, software=None):
        self.makeroom, self.directory, self.software = str(makeroom), Path(directory), software
        self.done = {}
        self.environment = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", PYTHONUNBUFFERED="1")

    def python(self, program, *arguments):
        """The command that runs a program of programs/ with Python."""
        return [sys.executable, PROGRAMS / program, *map(str, arguments)]

    def build(self, name, source, *flags):
        """Compiles a program as a user would; returns its path."""
        program, log = self.directory / name, self.directory / f"{name}.build"
        if program.exists():
            return program
        if self.software:
            command = self.software.compiler(PROGRAMS / source, program)
        else:
            command = ["nvcc", "-g", "-lineinfo", "-o", program, PROGRAMS / source, *flags]
        status = execute(command, log, log.with_suffix(".errors"), 300)
        assert status == 0, f"build failed: {log.with_suffix('.errors').read_text().strip()[:200]}"
        return program

    def plain(self, name, command, environment=None, seconds=120):
        """Runs a program without makeroom."""
        key = f"{name}.plain"
        if key not in self.done:
            stem = self.directory / key
            self.done[key] = Run(stem, self._execute(stem, command, environment, seconds))
        return self.done[key]

    def recorded(self, name, command, options=(), environment=None, seconds=120):
        """Runs a program under `makeroom run`, and explains and replays its recording."""
        key = f"{name}.run"
        if key not in self.done:
            stem, room = self.directory / key, self.directory / f"{name}.room"
            prefix = [self.makeroom, "run", "-o", room, *options, "--"]
            self.done[key] = Recorded(stem, self._execute(stem, [*prefix, *command], environment, seconds), name)
            if room.exists():
                self.call(f"{name}.why", "why", "--json", room)
                self.call(f"{name}.replay", "replay", "--json", "--allocator", "ideal", "--no-smallest", room)
        return self.done[key]

    def call(self, name, *arguments, environment=None, seconds=120):
        """Runs makeroom itself: NAME.json has its output. Returns that as data, with the exit status."""
        out = self.directory / f"{name}.json"
        command = [self.makeroom, *arguments]
        status = execute(command, out, self.directory / f"{name}.err", seconds, environment, self.directory)
        return load(out), status

    def error_of(self, name):
        """The last line that a call printed to stderr."""
        return last_line((self.directory / f"{name}.err").read_text(errors="replace"))

    def _execute(self, stem, command, environment, seconds):
        path = lambda ending: stem.with_name(f"{stem.name}.{ending}")
        variables = dict(self.environment, GPU_CHECK_FIGURES=str(path("json")), **(environment or {}))
        return execute(command, path("out"), path("err"), seconds, variables, self.directory)
