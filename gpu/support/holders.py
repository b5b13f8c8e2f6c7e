"""Processes that hold GPU memory in different ways until they are told to end."""

import subprocess
import time

from support.runs import last_line


class Holders:
    """Starts programs/ps_holder.py in different ways; ends all of them together."""

    def __init__(self, runs):
        self.runs, self.processes = runs, []

    def hold(self, name, *arguments, prefix=()):
        """Starts a holder and waits until it has its memory. It runs as long as its input is open."""
        out, err = self.runs.directory / f"ps.{name}.out", self.runs.directory / f"ps.{name}.err"
        command = [*map(str, prefix), *map(str, self.runs.python("ps_holder.py", *arguments))]
        with open(out, "wb") as stdout, open(err, "wb") as stderr:
            self.processes.append(subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr, env=self.runs.environment))
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if b"ready" in out.read_bytes():
                return
            assert self.processes[-1].poll() is None, f"{name} ended: {last_line(err.read_text(errors='replace'))}"
            time.sleep(0.2)
        raise AssertionError(f"{name} allocated nothing within 60 s: {last_line(err.read_text(errors='replace'))}")

    def release(self):
        for process in self.processes:
            process.stdin.close()
        for process in self.processes:
            process.wait(60)
        self.processes.clear()


def has_pid_namespaces():
    """Whether this user may create a PID namespace."""
    try:
        return subprocess.run(["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False
