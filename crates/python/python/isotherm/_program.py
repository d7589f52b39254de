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
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [program(), *args], stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, encoding="utf-8", errors="replace"
    ) as process:
        try:
            out, err = process.communicate()
        except BaseException:
            # It writes the end of its record.
            process.terminate()
            process.communicate()
            raise
    if process.returncode != 0:
        raise ProgramError(err.strip())
    return out
