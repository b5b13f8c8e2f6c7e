"""Find the `makeroom` command. The wheel installs it in Python's scripts directory, which is not always on the PATH."""

from __future__ import annotations

import os
import shutil
import sysconfig


def find() -> str | None:
    """Return the command that was installed with this module, else the one on the PATH."""
    directories = [sysconfig.get_path("scripts")]
    # `pip install --user` uses another scheme.
    user_scheme = f"{os.name}_user"
    if user_scheme in sysconfig.get_scheme_names():
        directories.append(sysconfig.get_path("scripts", user_scheme))
    for directory in directories:
        path = os.path.join(directory, "makeroom")
        if os.access(path, os.X_OK):
            return path
    return shutil.which("makeroom")
