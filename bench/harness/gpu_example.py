"""Examples of the pool that run on a real GPU if there is one, else on the software GPU."""
import contextlib
import os
import sys
import tempfile

from harness import build


@contextlib.contextmanager
def environment():
    if build.has_driver():
        yield dict(os.environ)
        return
    print("no driver found: using the software GPU", file=sys.stderr)
    with tempfile.TemporaryDirectory() as directory:
        yield build.software_gpu(directory)


def output(name, *arguments):
    """The lines that an example of makeroom-pool prints."""
    program = build.example("makeroom-pool", name)
    with environment() as variables:
        return build.call([program, *arguments], env=variables).splitlines()
