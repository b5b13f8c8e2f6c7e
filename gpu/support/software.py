"""The software GPU in place of a real one: finds its libraries next to makeroom, and compiles programs against them.

Only checks that need neither PyTorch nor kernels run on it; the others are skipped. It exists to test the checks
themselves on a machine without a GPU.
"""

import os
import subprocess
from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "programs" / "software"
LIBRARIES = {"libcuda.so.1": "libmakeroom_simgpu.so", "libnvidia-ml.so.1": "libmakeroom_simnvml.so"}


def find(makeroom, name):
    """A library that cargo built: next to makeroom, or with the dependencies."""
    built = Path(makeroom).parent
    places = [place for place in (built / name, built / "deps" / name) if place.exists()]
    return max(places, key=lambda place: place.stat().st_mtime) if places else None


class SoftwareGpu:
    """A directory from which programs load the software GPU."""

    def __init__(self, makeroom, directory):
        self.directory = Path(directory) / "software-gpu"
        self.directory.mkdir(exist_ok=True)
        for name, library in LIBRARIES.items():
            found = find(makeroom, library)
            if found is None:
                raise FileNotFoundError(
                    f"{library} is not next to {makeroom}\n\nhint: cargo build --release -p makeroom-simgpu -p makeroom-simnvml")
            link = self.directory / name
            link.unlink(missing_ok=True)
            link.symlink_to(found)
        runtime = ["cc", "-w", "-O1", "-shared", "-fPIC", "-o", self.directory / "libcudart.so", SOURCES / "cudart.c",
                   self.directory / "libcuda.so.1", "-Wl,-soname,libcudart.so"]
        subprocess.run(runtime, check=True)
        os.environ["LD_LIBRARY_PATH"] = str(self.directory)
        os.environ["MAKEROOM_SIMGPU_DIR"] = str(self.directory)
        os.environ["MAKEROOM_SIMGPU"] = "memory=16GiB"
        os.environ["XDG_RUNTIME_DIR"] = str(self.directory)

    def compiler(self, source, program):
        """The command that compiles a program without kernels."""
        # nvcc includes the runtime's header by itself.
        return ["c++", "-g", "-w", "-x", "c++", f"-I{SOURCES}", "-include", "cuda_runtime.h", source, "-x", "none",
                "-o", program, "-Wl,--as-needed", self.directory / "libcudart.so", self.directory / "libcuda.so.1"]
