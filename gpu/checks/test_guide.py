"""The guide docs/out-of-memory.md shows what `makeroom run` prints for the programs of examples/out-of-memory, on a software
GPU of 2 GiB. To accept a change: GUIDE=overwrite gpu/check target/debug/makeroom --software --only guide."""

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from support.runs import execute

ROOT = Path(__file__).resolve().parents[2]
PAGE, PROGRAMS = ROOT / "docs" / "out-of-memory.md", ROOT / "examples" / "out-of-memory"
# A block of the page that starts with commands of which one is `makeroom run`; its output follows.
BLOCK = re.compile(r"^```text\n((?:\$ .*\n)*\$ makeroom run .*\n)((?:(?!```).*\n)*)```$", re.MULTILINE)
pytestmark = [pytest.mark.goal("the page shows this output"), pytest.mark.needs("compiler")]


def names():
    """The blocks of the page by the program that they run: `leak`, `leak fixed`."""
    found = {}
    for block in BLOCK.finditer(PAGE.read_text()):
        command = shlex.split(block[1].splitlines()[-1].removeprefix("$ "))
        found.setdefault(" ".join(command[command.index("--") + 1:]).removeprefix("./"), []).append(block)
    return found


@pytest.fixture
def environment(runs, tmp_path):
    """A software GPU of 2 GiB that no other check uses."""
    if not runs.software:
        pytest.skip("the page shows the figures of the software GPU")
    return dict(runs.environment, MAKEROOM_SIMGPU="memory=2GiB", MAKEROOM_SIMGPU_DIR=str(tmp_path), XDG_RUNTIME_DIR=str(tmp_path))


def printed(runs, environment, folder, commands):
    """What the program and makeroom print, with the process ids and the folder of the page."""
    command = shlex.split(commands[-1])
    program = command.index("--") + 1
    others, pids = [], {}
    try:
        for other in commands[:-1]:
            words = shlex.split(other.removesuffix("&"))
            others.append(subprocess.Popen([build(runs, words[0]), *words[1:]], env=environment, stdin=subprocess.PIPE,
                                           stdout=subprocess.PIPE, text=True))
            assert others[-1].stdout.readline() == "holding\n"
            pids[str(others[-1].pid)] = "4700"
        shutil.copy(build(runs, command[program]), folder / command[program])
        out, err = folder / "out", folder / "err"
        status = execute([runs.makeroom, *command[1:]], out, err, environment=environment, directory=folder)
        assert status in (0, 1), f"exit status {status}: {err.read_text()}"
    finally:
        for other in others:
            other.communicate()
    text = out.read_text() + err.read_text().replace(f"{folder}/", "")
    text = re.sub(r"\(PID \d+\)", "(PID 4711)", text)
    for pid, shown in pids.items():
        text = re.sub(rf"\b{pid}\b", shown, text)
    return re.sub(r", user \S+", ", user alice", text)


def build(runs, name):
    """Compiles a program, in a folder of its own, so that it has the name that the page shows."""
    name = name.removeprefix("./")
    (runs.directory / f"guide-{name}").mkdir(exist_ok=True)
    return runs.build(f"guide-{name}/{name}", PROGRAMS / f"{name}.cu")


@pytest.mark.parametrize("name", names())
def test_shows(runs, environment, tmp_path, show, name):
    show(name)
    for block in names()[name]:
        commands = [line.removeprefix("$ ") for line in block[1].splitlines()]
        text = printed(runs, environment, tmp_path, commands)
        if os.environ.get("GUIDE") == "overwrite":
            page = PAGE.read_text()
            PAGE.write_text(page.replace(block[0], f"```text\n{block[1]}{text}```", 1))
        else:
            assert text == block[2], f"{PAGE.name} shows different output for {name}"
