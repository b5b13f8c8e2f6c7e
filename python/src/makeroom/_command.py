"""Where the command of this installation is. The wheel puts it where Python's scripts go; that is not always on the PATH."""

from __future__ import annotations

import os
import shutil
import sysconfig


def find() -> str | None:
    """The command that came with this module, or else one on the PATH."""
    folders = [sysconfig.get_path("scripts")]
    # `pip install --user` has a scheme of its own.
    user_scheme = f"{os.name}_user"
    if user_scheme in sysconfig.get_scheme_names():
        folders.append(sysconfig.get_path("scripts", user_scheme))
    for folder in folders:
        path = os.path.join(folder, "makeroom")
        if os.access(path, os.X_OK):
            return path
    return shutil.which("makeroom")
