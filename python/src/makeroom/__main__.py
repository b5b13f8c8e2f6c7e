"""Run the `makeroom` command that was installed with this module: `python -m makeroom`."""

import os
import sys

from ._impl._command import find


def main() -> None:
    command = find()
    if command is None:
        sys.exit("error: the makeroom command was not found\n\nhint: pip install --force-reinstall makeroom")
    os.execv(command, [command, *sys.argv[1:]])


if __name__ == "__main__":
    main()
