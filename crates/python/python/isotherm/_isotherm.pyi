from typing import Any, Dict, Optional, Tuple

__version__: str

class RecordError(ValueError):
    """A file is no record, or is damaged."""

class Table:
    """A table of a record, which is read each time that a stream of it is read.

    The columns are those of Parquet: docs/abi/testing/interchange.md.
    """

    def __init__(
        self, path: str, name: str, hot_hz: float, cold_s: float, skip_damaged: bool, folder: Optional[object]
    ) -> None: ...
    def __arrow_c_stream__(self, requested_schema: Optional[object] = None) -> Any: ...
    def __arrow_c_schema__(self) -> Any: ...

def facts(path: str, skip_damaged: bool) -> Tuple[Dict[str, Any], Optional[str]]: ...
