"""`%%makeroom`, the page and the verdict in a real notebook kernel, on the software GPU under the recorder."""

from __future__ import annotations

import json
import re
import sys
from importlib.util import find_spec

import pytest

from conftest import ROOT
from test_explain import TEXT

FIRST = f"ROOT, TEXT = {str(ROOT)!r}, {TEXT!r}\n"
CELLS = [
    FIRST + "%load_ext makeroom\nfrom driver import Driver\ndriver = Driver()\nMIB = 1 << 20",
    "%%makeroom --view --name figures\nkept = [driver.take(64 * MIB)]\ndriver.give(driver.take(256 * MIB))\n'the value of the cell'",
    "figures.peak_bytes, figures.left_bytes",
    "%%makeroom\nheld = [driver.take(1 << 30) for _ in range(9)]",
    "%%makeroom --nothing\npass",
    "import makeroom\nmakeroom.install_excepthook()",
    "driver.take(1 << 40)",
    "%%makeroom\ndriver.take(1 << 40)",
    "figures.trace.allocations",
    "%tb",
    "print(makeroom.explain(TEXT))",
    "makeroom.explain(TEXT)",
    "%%makeroom\nimport asyncio\nawait asyncio.sleep(0.01)",
    "import asyncio\nwith makeroom.watch() as w:\n    await asyncio.sleep(0.01)\nw.source",
    "%%makeroom\nfor",
    "makeroom.open(ROOT + '/traces/seed004.pickle.gz')",
    "makeroom.open(ROOT + '/traces/seed004.pickle.gz').view(height=700)",
    "%unload_ext makeroom\n%%makeroom",
]

RUN = """
import json, sys
import nbclient, nbformat
cells = json.loads(sys.argv[1])
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
nbclient.NotebookClient(notebook, kernel_name="python3", allow_errors=True, timeout=100).execute()
json.dump([cell.outputs for cell in notebook.cells], sys.stdout)
"""


@pytest.fixture(scope="module")
def outputs(command, software_gpu, tmp_path_factory):
    for package in ("nbclient", "nbformat", "ipykernel"):
        if find_spec(package) is None:
            pytest.skip(f"no {package}")
    folder = tmp_path_factory.mktemp("notebook")
    program = folder / "run.py"
    program.write_text(RUN)
    # Kernels are child processes, which are recorded too.
    recorder = (command, "run", "-o", str(folder / "run.%p.room"), "--no-status", "--")
    done = software_gpu.run(*recorder, sys.executable, str(program), json.dumps(CELLS))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def html(output: list[dict]) -> str:
    parts = ["".join(each.get("data", {}).get("text/html", "")) for each in output]
    return "\n".join(part for part in parts if part)


def errors(output: list[dict]) -> list[dict]:
    return [each for each in output if each["output_type"] == "error"]


def plain(error: dict) -> str:
    """The traceback without colors."""
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error["traceback"]))


def text(output: list[dict]) -> str:
    return json.dumps(output)


def test_a_cell_is_measured(outputs):
    shown = outputs[1]
    assert "peak 320.00 MiB" in html(shown) and "still live: 64.00 MiB" in html(shown)
    assert "the value of the cell" in text(shown)
    assert "(335544320, 67108864)" in text(outputs[2])


def test_the_page_is_shown_in_the_cell(outputs):
    assert html(outputs[1]).count("<iframe srcdoc=") == 1
    assert "<iframe" not in html(outputs[3])


def test_a_cell_that_runs_out_of_memory_is_explained_once(outputs):
    shown = html(outputs[3])
    assert shown.count("<b>Fixes, most effective first</b>") == 1 and "live at the peak" in shown
    # The cell has failed, with one traceback.
    assert text(outputs[3]).count("CUDA error: out of memory (cuMemAlloc_v2)") >= 1
    assert [error["ename"] for error in errors(outputs[3])].count("RuntimeError") >= 1


def test_with_the_hook_the_verdict_is_shown_once(outputs):
    assert html(outputs[6]).count("<b>Fixes, most effective first</b>") == 1
    assert html(outputs[7]).count("<b>Fixes, most effective first</b>") == 1


def test_a_wrong_option_is_an_error_and_not_the_end_of_the_kernel(outputs):
    (error,) = errors(outputs[4])
    assert error["ename"] == "UsageError" and "--nothing" in error["evalue"]


def test_the_traceback_is_printed_once_and_again_on_request(outputs):
    shown = [plain(error) for error in errors(outputs[7])]
    assert ["driver.take(1 << 40)" in each for each in shown] == [True, False] and shown[1] == ""
    (again,) = errors(outputs[9])
    assert "driver.take(1 << 40)" in plain(again)


def test_settings_are_python_in_every_form(outputs):
    for shown in (text(outputs[10]), html(outputs[11])):
        assert "os.environ[" in shown and "restart the kernel" in shown and "export " not in shown


def test_a_cell_that_awaits_is_an_error_with_a_way_on(outputs):
    (error,) = errors(outputs[12])
    assert error["ename"] == "UsageError" and "with makeroom.watch(lines=True) as w: await" in error["evalue"]
    assert errors(outputs[13]) == [] and "'recorder'" in text(outputs[13])
    assert errors(outputs[14])[0]["ename"] == "SyntaxError"


def test_recordings_are_displayed(outputs):
    assert "peak of live memory" in html(outputs[15]) and "GPU 0: 223.13 MiB" in html(outputs[15])
    assert html(outputs[16]).count("<iframe srcdoc=") == 1 and "height:700px" in html(outputs[16])


def test_the_extension_can_be_unloaded(outputs):
    assert "makeroom" in text(outputs[17]) and "not found" in text(outputs[17])


def test_the_recording_of_the_cell_is_a_table(outputs):
    assert "allocations: " in html(outputs[8]) and "<th" in html(outputs[8])
