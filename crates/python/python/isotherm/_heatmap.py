"""Heat over time and addresses."""

import io
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

if TYPE_CHECKING:
    import numpy
    from matplotlib.figure import Figure


class Panel:
    """An area of memory. Row 0 has its lowest addresses, column 0 the beginning."""

    def __init__(self, figures: Dict[str, Any]) -> None:
        import numpy

        #: number of the target
        self.target: int = figures["target"]
        #: name of the target
        self.label: str = figures["label"]
        #: name of the mapping with most of the memory
        self.name: str = figures["name"]
        start, end = figures["range"]
        #: addresses, from and to
        self.range: Tuple[int, int] = (int(start, 16), int(end, 16))
        #: mean over the time; None if the record does not have it
        self.resident_bytes: Optional[int] = figures["resident_bytes"]
        cells = figures["cells"]
        #: number of rows
        self.rows: int = cells["rows"]
        #: rates in Hz, by row and column; NaN where there is none
        self.hz: "numpy.ndarray" = numpy.array(cells["hz"], dtype=numpy.float32)
        #: a letter for each cell: `r`ate, `u`nknown, `a`bsent, `d`amaged, or a dot where nothing is mapped
        self.states: "numpy.ndarray" = numpy.array([list(row) for row in cells["states"]])


class Heatmap:
    """Rates over time and addresses. ``numpy.asarray`` gives those of all panels, one below the other.

    >>> import isotherm, numpy
    >>> heat = isotherm.read(example).heatmap()
    >>> numpy.asarray(heat).shape == (sum(panel.rows for panel in heat.panels), heat.columns)
    True
    """

    def __init__(self, figures: Dict[str, Any]) -> None:
        #: heading
        self.title: str = figures["title"]
        #: seconds since the beginning of the record, from and to
        self.time: Tuple[float, float] = (figures["from_ms"] / 1000, figures["to_ms"] / 1000)
        #: areas of memory, by target, then in descending order of address
        self.panels: List[Panel] = [Panel(panel) for panel in figures["panels"]]
        #: number of columns
        self.columns: int = figures["panels"][0]["cells"]["columns"] if figures["panels"] else 0

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> "numpy.ndarray":
        import numpy

        if copy is False:
            raise ValueError("the rates of all panels are a copy: use those of each panel")
        return numpy.concatenate([panel.hz for panel in self.panels]).astype(dtype or numpy.float32)

    def _repr_png_(self) -> bytes:
        """The picture that notebooks show."""
        picture = io.BytesIO()
        self.figure().savefig(picture, format="png")
        return picture.getvalue()

    def figure(self, **options: Any) -> "Figure":
        """Draws a matplotlib figure: blue is 0.1 Hz or less, red is 1 kHz or more. ``options`` are those of a ``Figure``.

        >>> import isotherm
        >>> isotherm.read(example).heatmap().figure(figsize=(8, 4)).axes[-1].get_ylabel()
        'first touches per second'
        """
        import numpy
        from matplotlib.colors import LogNorm
        from matplotlib.figure import Figure
        from matplotlib.ticker import FuncFormatter

        options.setdefault("figsize", (10, 1 + 5 * min(1, len(self.panels))))
        figure = Figure(layout="constrained", **options)
        heights = [panel.rows for panel in self.panels]
        axes = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        coldest, hottest = 0.1, 1000
        for axis, panel in zip(axes, self.panels):
            image = axis.imshow(
                numpy.where(panel.hz < coldest, coldest, panel.hz),
                aspect="auto",
                origin="lower",
                interpolation="none",
                cmap="turbo",
                norm=LogNorm(coldest, hottest),
                extent=(*self.time, *panel.range),
            )
            axis.set_facecolor("lightgrey")
            axis.set_title(f"{panel.label}: {panel.name}", fontsize="small", loc="left")
            axis.yaxis.set_major_formatter(FuncFormatter(lambda address, _: f"{int(address):#x}"))
            axis.tick_params(labelsize="small")
        axes[-1].set_xlabel("time, in s")
        figure.colorbar(image, ax=list(axes), label="first touches per second")
        figure.suptitle(self.title)
        return figure
