"""``python -m isotherm`` runs the program."""

import os
import sys

from ._program import program

if __name__ == "__main__":
    os.execv(program(), ["isotherm", *sys.argv[1:]])
