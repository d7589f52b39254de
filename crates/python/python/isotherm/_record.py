"""Records and their tables."""

import json
import os
import tempfile
import warnings
from typing import Any, Dict, Optional, Tuple, Union

from . import _isotherm
from ._heatmap import Heatmap
from ._program import run

Path = Union[str, "os.PathLike[str]"]


def read(path: Path, *, skip_damaged: bool = False) -> "Record":
    """Opens a record. Warns if it has no end, because its recording continues or was killed.

    ``skip_damaged`` leaves out damaged parts. Without it, a damaged part is a :class:`RecordError`, or an error of the
    library that reads a table, if the part is a snapshot: snapshots are read when a table of them is.

    >>> read(example)
    <record ...example.rec of nowhere>
    >>> read("missing.rec")
    Traceback (most recent call last):
    FileNotFoundError: [Errno 2] No such file or directory: 'missing.rec'
    """
    return Record(path, skip_damaged=skip_damaged)


def record(pid: int, seconds: float, output: Optional[Path] = None) -> "Record":
    """Records the memory of a process for some seconds, and returns the record.

    Without ``output`` the record is a temporary file, which ends with the returned object and its tables. It requires the
    privileges of ``isotherm record``, without which it raises a :class:`ProgramError`. The program records in a
    process of its own, so that this process keeps its own privileges and signals.
    """
    folder = None
    if output is None:
        folder = tempfile.TemporaryDirectory(prefix="isotherm.")
        output = os.path.join(folder.name, "isotherm.rec")
    run("record", "--pid", str(pid), "--duration", f"{seconds}", "--output", os.fspath(output))
    made = Record(output)
    made._folder = folder
    return made


class Record:
    """A record file. The tables and reports read it each time that they are used."""

    def __init__(self, path: Path, *, skip_damaged: bool = False) -> None:
        self.path: str = os.path.abspath(path)
        self.skip_damaged = skip_damaged
        #: what the record holds about itself: version, host, kernel, command, look, note, started_unix_ms, and a list
        #: of the figures that are missing
        self.facts: Dict[str, Any]
        self.facts, torn = _isotherm.facts(os.fspath(path), skip_damaged)
        #: whether the record has an end
        self.complete: bool = torn is None
        self._folder: Optional["tempfile.TemporaryDirectory[str]"] = None
        if torn is not None:
            warnings.warn(torn, stacklevel=3)

    def __repr__(self) -> str:
        return f"<record {self.path} of {self.facts.get('host') or 'an unknown host'}>"

    def _table(self, name: str, hot_hz: float = 10, cold_s: float = 5) -> _isotherm.Table:
        return _isotherm.Table(self.path, name, hot_hz, cold_s, self.skip_damaged, self._folder)

    def regions(self) -> _isotherm.Table:
        """A row for each region of each snapshot. ``seq`` and ``target`` join it with :meth:`snapshots`.

        ``measured_bp`` and ``extended_bp`` are the shares of its visible pages, of 10,000, whose rate is measured or
        presumed from a sample. ``age_ms`` and ``resident_bp`` are null if the record does not have them.

        >>> import pyarrow
        >>> table = pyarrow.table(read(example).regions())
        >>> table.num_rows, table.column_names[:5]
        (1200, ['seq', 'target', 'start', 'bytes', 'rate_hz'])
        """
        return self._table("regions")

    def snapshots(self, hot_hz: float = 10, cold_s: float = 5) -> _isotherm.Table:
        """A row for each target of each snapshot, with its bytes by heat.

        Memory is hot if it is touched at ``hot_hz`` or more, and cold if it is untouched for ``cold_s`` or longer.

        >>> import polars
        >>> polars.DataFrame(read(example).snapshots()).select("seq", "target", "hot_bytes").shape
        (60, 3)
        >>> read(example).snapshots(hot_hz=-1)
        Traceback (most recent call last):
        ValueError: hot_hz is -1: a rate must be above 0
        """
        return self._table("snapshots", hot_hz, cold_s)

    def cgroups(self) -> _isotherm.Table:
        """The attribution of targets: their control groups, names, bytes in swap and major faults, over time.

        A target without attribution has one row, with nulls.

        >>> import duckdb
        >>> cgroups = read(example).cgroups()
        >>> duckdb.sql("SELECT DISTINCT cgroup FROM cgroups ORDER BY ALL").fetchall()
        [('/system.slice/batch.service',), ('/system.slice/db.service',), ('/system.slice/web.service',)]
        """
        return self._table("targets")

    def report(self, kind: str, *options: str) -> Any:
        """The figures of ``isotherm report KIND``, with these options of the program.

        >>> read(example).report("wss", "--percentiles", "50")["working_set_bytes"].keys()
        dict_keys([...])
        >>> read(example).report("wss", "--target", "nobody")
        Traceback (most recent call last):
        isotherm._program.ProgramError: isotherm: no target matches "nobody": ...
        """
        skip = ["--skip-damaged"] if self.skip_damaged else []
        return json.loads(run("report", kind, "--json", "--input", self.path, *skip, *options))

    def heatmap(
        self,
        target: Union[int, str, None] = None,
        time: Optional[Tuple[float, float]] = None,
        addr: Optional[Tuple[int, int]] = None,
    ) -> Heatmap:
        """Rates over time and addresses.

        ``target`` is a pid, a part of a command line, or the number of a target. ``time`` is in seconds since the
        beginning of the record, ``addr`` in bytes.

        >>> heat = read(example).heatmap(target="db")
        >>> heat.panels[0].hz.shape == (heat.panels[0].rows, heat.columns)
        True
        """
        options = []
        if target is not None:
            options += ["--target", str(target)]
        if time is not None:
            options += ["--time", f"{time[0]}..{time[1]}"]
        if addr is not None:
            options += ["--addr", f"{addr[0]:#x}..{addr[1]:#x}"]
        return Heatmap(self.report("heatmap", *options))
