"""`python -m makeroom` is the command `makeroom` of this installation."""

import os
import sys

from ._command import find


def main() -> None:
    command = find()
    if command is None:
        sys.exit("error: the command makeroom is not beside this module\n\nhint: pip install --force-reinstall makeroom")
    os.execv(command, [command, *sys.argv[1:]])


if __name__ == "__main__":
    main()
