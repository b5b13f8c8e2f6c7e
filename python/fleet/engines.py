"""A standalone Spark with two workers and a Ray of two nodes, each with an executor to kill.

A file that every Python process of the engines loads (`sitecustomize.py`) notes a process that code of makeroom starts. The
command is not on their PATH either.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any, Callable

#: Seconds to wait for anything.
TIMEOUT = 240

HOOK = """
import os, sys
STARTS = {"subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.exec", "os.system", "os.spawn", "pty.spawn"}
def hook(event, arguments):
    if event in STARTS:
        frame = sys._getframe()
        while frame is not None:
            if os.sep + "makeroom" + os.sep in frame.f_code.co_filename:
                open(os.path.join(FOLDER, f"started-{os.getpid()}"), "w").write(f"{event} {arguments}")
            frame = frame.f_back
sys.addaudithook(hook)
open(os.path.join(FOLDER, f"hooked-{os.getpid()}"), "w").close()
"""

#: Code that starts a process, and looks as if it were makeroom's.
CULPRIT = "exec(compile('import os; os.system(\"true\")', '/x/makeroom/y.py', 'exec'))"


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_for(what: str, found: Callable[[], Any]) -> Any:
    ends = time.monotonic() + TIMEOUT
    while time.monotonic() < ends:
        value = found()
        if value:
            return value
        time.sleep(0.05)
    raise TimeoutError(f"{what}: nothing for {TIMEOUT} s")


def processes(is_wanted: Callable[[bytes], bool], parents: set[int] | None = None) -> list[int]:
    """The processes with such a command line, of these parents."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
                parent = int((entry / "stat").read_text().rsplit(") ", 1)[1].split()[1])
            except (OSError, IndexError):
                continue
            if is_wanted(command) and (parents is None or parent in parents):
                found.append(int(entry.name))
    return found


class Engine:
    """An engine that runs as long as the context."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir()
        (folder / "hook").mkdir()
        (folder / "hook" / "sitecustomize.py").write_text(f"FOLDER = {str(folder)!r}\n{HOOK}")
        self.started: list[subprocess.Popen[bytes]] = []
        # Without the folder of `makeroom`.
        path = os.pathsep.join(part for part in os.environ["PATH"].split(os.pathsep) if "ci-fleet" not in part)
        self.environment = dict(os.environ, PYTHONPATH=str(folder / "hook"), PATH=path)
        subprocess.run([sys.executable, "-c", CULPRIT], env=self.environment, check=True)
        noted = [*folder.glob("started-*"), *folder.glob("hooked-*")]
        assert len(noted) == 2, "a process that is started is not noted"
        for note in noted:
            note.unlink()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self.started):
            process.terminate()
        for process in self.started:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()

    def run(self, source: Path, index: Path) -> Any:
        raise NotImplementedError

    def executor(self) -> int | None:
        raise NotImplementedError

    def index_and_kill(self, source: Path, index: Path, files: int) -> str:
        """Index, and kill an executor after the first file was written."""
        killed: list[str] = []

        def kill() -> None:
            objects = index / "objects"
            wait_for("a first file", lambda: objects.is_dir() and [name for name in os.listdir(objects) if name[0] != "."])
            pid = wait_for("an executor", self.executor)
            written = len([name for name in os.listdir(objects) if name[0] != "."])
            os.kill(pid, signal.SIGKILL)
            killed.append(f"process {pid} after {written} of {files} files")
            assert written < files, "the engine was done before its executor was killed: make the recordings larger"

        killer = threading.Thread(target=kill)
        killer.start()
        result = self.run(source, index)
        killer.join(TIMEOUT)
        assert killed and result.written == result.objects, (killed, result)
        self.check_no_process()
        return killed[0]

    def check_no_process(self) -> None:
        assert list(self.folder.glob("hooked-*")), "no executor would have noted a process"
        started = [path.read_text() for path in self.folder.glob("started-*")]
        assert not started, f"an executor started a process: {started}"

    def check_change(self) -> None:
        """An object that is gone when it is read is an error that names it, and not an index that lacks it."""
        source = self.folder / "changing"
        source.mkdir()
        for number in range(3):
            (source / f"{number}.log").write_text("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
        error = self.listed_before(source, (source / "1.log").unlink)
        assert "1 of 3 objects could not be indexed" in error and "changing/1.log" in error, error

    def listed_before(self, source: Path, change: Callable[[], object]) -> str:
        """The error of an index whose listing changes before it is read."""
        from makeroom._impl import _index

        listing = _index.new_objects

        def then_change(*places: str) -> Any:
            found = listing(*places)
            change()
            return found

        index = self.folder / "changed"
        module = sys.modules[f"makeroom.{self.name}"]
        module.new_objects = then_change
        try:
            self.run(source, index)
        except OSError as error:
            return str(error)
        finally:
            module.new_objects = listing
        return "no error"

    name = ""


class Spark(Engine):
    """A master and two workers with one core each."""

    name = "spark"

    def __enter__(self) -> Spark:
        import pyspark

        self.home = Path(pyspark.__file__).parent
        self.environment.update(SPARK_HOME=str(self.home), SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable,
                                SPARK_LOCAL_DIRS=str(self.folder / "local"), SPARK_WORKER_DIR=str(self.folder / "work"))
        os.environ.update(SPARK_LOCAL_IP="127.0.0.1", SPARK_LOCAL_DIRS=str(self.folder / "local"),
                          PYSPARK_PYTHON=sys.executable)
        port, page = free_port(), free_port()
        master = f"spark://127.0.0.1:{port}"
        self.start("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page))
        wait_for("Spark's master", lambda: self.workers(page) is not None)
        self.pids = {self.start("worker.Worker", "--cores", "1", "--memory", "700m", "--host", "127.0.0.1",
                                "--webui-port", str(free_port()), master).pid for _ in range(2)}
        wait_for("two workers", lambda: self.workers(page) == 2)
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master(master)
        for name, value in {
            "spark.executor.memory": "512m",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.executorEnv.PYTHONPATH": str(self.folder / "hook"),
            "spark.executorEnv.PATH": self.environment["PATH"],
        }.items():
            builder = builder.config(name, value)
        self.session = builder.getOrCreate()
        self.session.sparkContext.setLogLevel("ERROR")
        return self

    def __exit__(self, *error: object) -> None:
        self.session.stop()
        super().__exit__(*error)

    def start(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        command = [str(self.home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *words]
        log = open(self.folder / f"{name}-{len(self.started)}.log", "wb")
        process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)
        self.started.append(process)
        return process

    def workers(self, page: int) -> int | None:
        import json

        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{page}/json/", timeout=5) as answer:
                return int(json.load(answer)["aliveworkers"])
        except OSError:
            return None

    def executor(self) -> int | None:
        found = processes(lambda command: b"CoarseGrainedExecutorBackend" in command, self.pids)
        return found[0] if found else None

    def run(self, source: Path, index: Path) -> Any:
        import makeroom.spark

        return makeroom.spark.index(self.session, source, index)

    def empty(self) -> None:
        """A map that does nothing, to compare with."""
        table = self.session.createDataFrame([(number,) for number in range(8)], "number long").repartition(8)
        assert table.mapInArrow(lambda batches: batches, "number long").count() == 8


class Ray(Engine):
    """Two nodes with one core each."""

    name = "ray"

    def __enter__(self) -> Ray:
        os.environ.update(RAY_DEDUP_LOGS="0", RAY_USAGE_STATS_ENABLED="0", PYTHONPATH=str(self.folder / "hook"),
                          PATH=self.environment["PATH"], RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0")
        import ray
        from ray.cluster_utils import Cluster

        size = 100 << 20
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": size})
        self.cluster.add_node(num_cpus=1, object_store_memory=size)
        self.cluster.wait_for_nodes()
        ray.init(address=self.cluster.address, log_to_driver=False, logging_level="error")
        ray.data.DataContext.get_current().enable_progress_bars = False
        assert ray.cluster_resources()["CPU"] == 2
        return self

    def __exit__(self, *error: object) -> None:
        import ray

        session = self.cluster.head_node.get_session_dir_path()
        ray.shutdown()
        self.cluster.shutdown()
        shutil.rmtree(session, ignore_errors=True)
        super().__exit__(*error)

    def executor(self) -> int | None:
        found = processes(lambda command: command.startswith(b"ray::MapBatches"))
        return found[0] if found else None

    def run(self, source: Path, index: Path) -> Any:
        import makeroom.ray

        return makeroom.ray.index(source, index)

    def empty(self) -> None:
        """A map that does nothing, to compare with."""
        import ray

        table = ray.data.from_items([{"number": number} for number in range(8)], override_num_blocks=8)
        assert len(table.map_batches(lambda batch: batch, batch_format="pyarrow").take_all()) == 8


ENGINES = {"spark": Spark, "ray": Ray}
