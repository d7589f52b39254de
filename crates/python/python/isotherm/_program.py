"""The program ``isotherm``, which the wheel installs beside Python."""

import os
import shutil
import subprocess
import sysconfig


class ProgramError(RuntimeError):
    """The program has failed. The text is its message."""


def program() -> str:
    """The path of the program: that of this package, otherwise the first one on the path.

    >>> import isotherm, subprocess
    >>> subprocess.run([isotherm.program(), "--version"], capture_output=True, text=True).stdout.split()[0]
    'isotherm'
    """
    for folder in (sysconfig.get_path("scripts"), sysconfig.get_path("scripts", f"{os.name}_user")):
        path = os.path.join(folder, "isotherm")
        if os.access(path, os.X_OK):
            return path
    found = shutil.which("isotherm")
    if found is None:
        raise FileNotFoundError("the program isotherm is neither beside this Python nor on the path: install a wheel")
    return found


def run(*args: str) -> str:
    """Runs the program, and returns what it prints."""
    done = subprocess.run([program(), *args], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise ProgramError(done.stderr.strip())
    return done.stdout
