"""Which memory of running programs is hot.

:func:`read` opens a record, whose tables pandas, Polars, PyArrow and DuckDB read without a copy. :func:`record`
records a process.

>>> import isotherm, pyarrow
>>> rec = isotherm.read(example)
>>> rec.facts["host"]
'nowhere'
>>> pyarrow.table(rec.snapshots()).num_rows
60
"""

from ._isotherm import RecordError, Table, __version__
from ._program import ProgramError, program
from ._record import Record, read, record
from ._heatmap import Heatmap, Panel

__all__ = [
    "Heatmap",
    "Panel",
    "ProgramError",
    "Record",
    "RecordError",
    "Table",
    "__version__",
    "program",
    "read",
    "record",
]
