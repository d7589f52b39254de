"""Answers an operator's questions about a lake of `isotherm agent`, by DuckDB or Spark.

`isotherm fleet report` runs this program: report.py OPTIONS, where OPTIONS is JSON. It writes the answers to
standard output as text or JSON, and as a page to the file `html`.
"""

import sys

# `python3 -c` would import modules from the current folder, in which others may have put files of these names.
sys.path = [entry for entry in sys.path if entry]

import datetime
import glob
import html
import json
import os
import pathlib
import time

SCHEMA_VERSION = 1
COLUMNS = """minute host cgroup service container image resident_bytes hot_bytes warm_bytes cold_bytes unknown_bytes
    swapped_bytes aged_bytes limit_bytes host_bytes snapshots""".split()
# Rows of a table of the text, and bars of a chart.
SHOWN = 20


class Failure(Exception):
    """What failed, why, and what to do."""


def missing(package, engine):
    return Failure(
        f"the engine {engine} requires the Python package {package}, which {sys.executable} does not have. Install it "
        "in a virtual environment: python3 -m venv DIR && . DIR/bin/activate && python3 -m pip install " + package
    )


def patterns(lake):
    """Patterns of the files of a lake. A copy that is under way, or broke off, is in a hidden folder, which DuckDB would
    read too."""
    found = []
    for entry in sorted(pathlib.Path(lake).glob("[!.]*")):
        if entry.suffix == ".parquet":
            found.append(glob.escape(str(entry)))
        elif next(entry.glob("**/*.parquet"), None):
            found.append(os.path.join(glob.escape(str(entry)), "**", "*.parquet"))
    return found


class DuckDb:
    """The lake in DuckDB, inside this process."""

    name = "duckdb"

    def __init__(self, options):
        try:
            import duckdb
        except ImportError:
            raise missing("duckdb", self.name) from None
        self.error = duckdb.Error
        self.connection = duckdb.connect()
        self.connection.execute("SET TimeZone = 'UTC'")
        self.connection.execute("SET enable_progress_bar = false")
        self.connection.execute(f"SET memory_limit = '{options['memory_mib']}MiB'")
        if options["threads"]:
            self.connection.execute(f"SET threads = {options['threads']}")
        self.mismatch = duckdb.InvalidInputException
        self.files = ", ".join("'" + pattern.replace("'", "''") + "'" for pattern in patterns(options["folder"]))

    def begin(self, wanted):
        """Makes the view `lake`, and returns the names of its columns."""
        names = self.look(by_name=False)
        return names if names.issuperset(wanted) else self.look(by_name=True)

    def look(self, by_name):
        """Makes the view with the columns of one file, or `by_name` of all files. Then DuckDB keeps the heads of all files
        in memory: gigabytes for 20,000 files."""
        source = f"read_parquet([{self.files}], hive_partitioning = false, union_by_name = {str(by_name).lower()})"
        names = {column[0] for column in self.connection.execute(f"SELECT * FROM {source} LIMIT 0").description}
        self.connection.execute(
            "CREATE OR REPLACE VIEW lake AS SELECT *, CAST(minute AS DATE) AS day, "
            f"CAST(epoch(minute) AS BIGINT) AS minute_s FROM {source}"
        )
        return names

    def view(self, name, sql):
        self.connection.execute(f"CREATE VIEW {name} AS {sql}")

    def query(self, sql):
        """The names of the columns, and the rows."""
        try:
            cursor = self.connection.execute(sql)
        except self.mismatch:
            # An earlier version has written some of the files, which lack a column.
            self.look(by_name=True)
            cursor = self.connection.execute(sql)
        return [column[0] for column in cursor.description], cursor.fetchall()

    def end(self):
        self.connection.close()


class Spark:
    """The lake in Spark: on the cluster of `master`, or in this process with local[N]."""

    name = "spark"

    def __init__(self, options):
        try:
            import pyspark
            from pyspark.sql import SparkSession
        except ImportError:
            raise missing("pyspark", self.name) from None
        self.error = (pyspark.errors.PySparkException, __import__("py4j.protocol").protocol.Py4JError)
        builder = SparkSession.builder.appName("isotherm fleet report")
        settings = {
            "spark.sql.session.timeZone": "UTC",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
            "spark.sql.shuffle.partitions": "16",
            "spark.driver.memory": f"{options['memory_mib']}m",
        }
        for key, value in settings.items():
            builder = builder.config(key, value)
        try:
            self.session = builder.master(options["master"]).getOrCreate()
        except Exception as error:
            reason = str(error).splitlines()[0]
            raise Failure(
                f"Spark cannot start with the master {options['master']}: {reason}: check JAVA_HOME (Java 17 or later) "
                "and that the master runs"
            ) from None
        self.folder = options["folder"]

    def begin(self, _):
        reader = self.session.read.option("recursiveFileLookup", "true").option("pathGlobFilter", "*.parquet")
        # Files of earlier versions may lack columns.
        frame = reader.option("mergeSchema", "true").parquet(self.folder)
        added = ("CAST(minute AS DATE) AS day", "unix_timestamp(minute) AS minute_s")
        frame.selectExpr("*", *added).createOrReplaceTempView("lake")
        return set(frame.columns)

    def view(self, name, sql):
        self.session.sql(sql).createOrReplaceTempView(name)

    def query(self, sql):
        frame = self.session.sql(sql)
        return frame.columns, [tuple(row) for row in frame.collect()]

    def end(self):
        self.session.stop()


def check_lake(options):
    """Fails with a clear message if there is no lake."""
    lake, folder = options["lake"], options["folder"]
    if not pathlib.Path(folder).is_dir():
        raise Failure(f"{folder} is not a folder: name the folder of a lake with --lake")
    if not os.access(folder, os.R_OK | os.X_OK):
        raise Failure(f"cannot read {folder}: its permissions do not let this user read it")
    if not patterns(folder):
        raise Failure(f"{lake} has no Parquet files: name the place that isotherm agent --lake writes to")


def wanted(options):
    """The columns that the questions read."""
    ages = {question["age"] for question in options["questions"] if question["age"]}
    return COLUMNS + [f"{prefix}_{age}" for age in sorted(ages) for prefix in ("idle", "returned")]


def check_columns(names, options):
    absent = [name for name in wanted(options) if name not in names]
    if absent:
        raise Failure(
            f"{options['lake']} is not a lake of isotherm: its files have no column {', '.join(absent)}: "
            "docs/abi/testing/lake.md lists the columns"
        )


def answer(engine, options):
    """The rows of each question as dicts, and how long each took."""
    answers, seconds = {}, {}
    for question in options["questions"]:
        begin = time.monotonic()
        columns, rows = engine.query(question["sql"])
        seconds[question["name"]] = round(time.monotonic() - begin, 3)
        answers[question["name"]] = [dict(zip(columns, map(plain, row))) for row in rows]
    return answers, seconds


def plain(value):
    return value.isoformat() if isinstance(value, datetime.date) else value


# Figures


def size(count):
    sign, count = ("-" if count < 0 else ""), abs(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            return f"{sign}{count:.0f} B" if unit == "B" else f"{sign}{count:.{1 if count < 100 else 0}f} {unit}"
        count /= 1024


def counted(number, what):
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def percent(part, whole, digits=0):
    return f"{100 * part / whole:.{digits}f} %" if whole else "-"


def by_service(cold):
    """Means over the days of the lake, and the sums of each day."""
    days = sorted({row["day"] for row in cold})
    keys = [key for key in cold[0] if key.endswith("_bytes")] if cold else []
    services, totals = {}, {day: dict.fromkeys(keys, 0) for day in days}
    for row in cold:
        mean = services.setdefault(row["service"], dict.fromkeys(keys, 0) | {"service": row["service"], "groups": 0})
        mean["groups"] = max(mean["groups"], row["control_groups"])
        for key in keys:
            mean[key] += row[key] / len(days)
            totals[row["day"]][key] += row[key]
    return sorted(services.values(), key=lambda row: -row["cold_bytes"]), totals


def without_images(images):
    """What the question about new images cannot see."""
    (row,) = images
    return (
        f"{row['without_image']} of {counted(row['control_groups'], 'control group')} had no image, and have no row; "
        f"{row['containers_without_image']} of them are containers."
    )


def without_hosts(hosts):
    """The hosts that the question about hosts leaves out, as they no longer exist."""
    gone = hosts[0]["gone_hosts"] if hosts else 0
    return f" Hosts left out, because they have no row in the last hours of the lake: {gone}." if gone else ""


def tables(report):
    """Every question as a title, a sentence, a head and rows of text."""
    options, answers = report["options"], report["answers"]
    age, rollout_age = options["age"], options["rollout_age"]
    services, totals = by_service(answers["cold"])
    kinds = ("hot", "warm", "cold", "unknown", "swapped")
    yield (
        "Cold memory by service",
        f"Means over {counted(len(totals), 'day')}. Cold memory was untouched for at least 5 s.",
        ["service", "groups", "resident", *kinds, "cold share"],
        [
            [row["service"], str(row["groups"]), size(row["resident_bytes"])]
            + [size(row[f"{kind}_bytes"]) for kind in kinds]
            + [percent(row["cold_bytes"], row["resident_bytes"])]
            for row in services
        ],
    )
    yield (
        f"What page-out after {age} would save",
        f"Memory that is idle for {age} or longer, and what would come back from swap in a minute.",
        ["service", "hosts", "resident", "saved", "share", "back a minute", "of resident"],
        [
            [
                row["service"],
                str(row["hosts"]),
                size(row["resident_bytes"]),
                size(row["saved_bytes"]),
                percent(row["saved_bytes"], row["resident_bytes"]),
                size(row["returned_bytes_per_minute"]),
                percent(row["refault_ppm"], 1_000_000, 2),
            ]
            for row in answers["savings"]
        ],
    )
    yield (
        "Smallest memory limits",
        f"At most {percent(options['objective_ppm'], 1_000_000, 2)} of the resident memory of a service comes back in a "
        "minute. The limit is for its largest control group; its minimum age of page-out meets the objective on every day. "
        "It covers memory that processes map. A limit also counts page cache that no process maps, and kernel memory: add "
        "them, as far as the service needs them (memory.stat: file minus file_mapped, and kernel).",
        ["service", "limit now", "peak", "smallest limit", "minimum age", "comes back"],
        [
            [
                row["service"],
                "none" if row["limit_bytes"] is None else size(row["limit_bytes"]),
                size(row["peak_bytes"]),
                size(row["smallest_limit_bytes"]),
                row["minimum_age"],
                percent(row["worst_day_refault_ppm"], 1_000_000, 2),
            ]
            for row in answers["limits"]
        ],
    )
    hosts = answers["hosts"]
    emptied = [row for row in hosts if row["can_be_emptied"]]
    yield (
        "Hosts that could be emptied",
        f"{len(emptied)} of {len(hosts)} hosts, {size(sum(row['host_bytes'] for row in emptied))} of "
        f"{size(sum(row['host_bytes'] for row in hosts))}, if memory idle for {age} is paged out and "
        f"{options['headroom']} % of each host stays free. Only memory that processes map counts as "
        "required: kernel memory, page cache and unmapped files of tmpfs have to fit into what stays free."
        f"{without_hosts(hosts)}",
        ["host", "memory", "peak", "required", "room"],
        [
            [row["host"]] + [size(row[f"{key}_bytes"]) for key in ("host", "resident", "needed", "room")]
            for row in emptied
        ],
    )
    yield (
        "New images",
        f"Change of the memory of a control group that is idle for {rollout_age} or longer, by the new image, with its "
        f"standard error. Hosts that kept the old image are the control. {without_images(answers['images'])}",
        ["service", "new image", "new", "kept", "cold before", "change", "error", "resident", "clear"],
        [
            [
                row["service"],
                row["new_image"].rsplit("/", 1)[-1],
                str(row["hosts_new"]),
                str(row["hosts_kept"]),
                size(row["cold_before_bytes"]),
                size(row["change_bytes"]),
                size(row["error_bytes"]),
                size(row["resident_change_bytes"]),
                "yes" if row["is_significant"] else "no",
            ]
            for row in sorted(answers["rollout"], key=lambda row: -row["change_bytes"])
        ],
    )


def printable(name):
    """A name without characters that a terminal would obey. Whoever makes a control group chooses its name."""
    return "".join(c if c.isprintable() else "?" for c in name)


def text(report):
    out = [printable(report["summary"])]
    for title, sentence, head, rows in tables(report):
        out += ["", title, sentence]
        rows = [[printable(cell) for cell in row] for row in rows]
        if not rows:
            out.append("none")
            continue
        shown = [head, *rows[:SHOWN]]
        widths = [max(len(row[i]) for row in shown) for i in range(len(head))]
        is_text = [not any(row[i][:1].isdigit() for row in rows) for i in range(len(head))]
        for row in shown:
            cells = [
                cell.ljust(width) if left else cell.rjust(width) for cell, width, left in zip(row, widths, is_text)
            ]
            out.append("  ".join(cells).rstrip())
        if len(rows) > SHOWN:
            out.append(f"and {len(rows) - SHOWN} more: --html and --json have all")
    return "\n".join(out)


# The page

STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1b1f27; --quiet: #565f6d; --line: #c4cad3; --panel: #f5f7f9;
  --hot: #d94801; --warm: #fdbe5e; --cold: #6b9bd1; --unknown: #87909d; --saved: #085955; --limit: #0b57b0; }
@media (prefers-color-scheme: dark) { :root { --paper: #12151b; --ink: #e8ebf0; --quiet: #a5aebb; --line: #3a424e;
  --panel: #1b2029; --saved: #82ede6; --limit: #7db4ff; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1000px; padding: 1.2rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .2rem; }
p { margin: .2rem 0 .6rem; color: var(--quiet); max-width: 75ch; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(165px, 1fr)); gap: .7rem; margin: 1rem 0; }
.tiles div { background: var(--panel); border: 1px solid var(--line); border-radius: 8px; padding: .6rem .8rem; }
.tiles b { display: block; font-size: 1.35rem; line-height: 1.3; }
.tiles span { color: var(--quiet); font-size: .85rem; }
section { overflow-x: auto; }
svg { width: 100%; min-width: 640px; height: auto; display: block; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; }
svg .quiet { fill: var(--quiet); }
svg .axis { stroke: var(--line); stroke-width: 1; }
svg .hot { fill: var(--hot); } svg .warm { fill: var(--warm); } svg .cold { fill: var(--cold); }
svg .unknown { fill: var(--unknown); } svg .saved { fill: var(--saved); } svg .limit { fill: var(--limit); }
svg .track { fill: var(--panel); stroke: var(--line); } svg .faint { fill: var(--line); }
svg .over { fill: var(--hot); }
svg .path { fill: none; stroke-width: 2; } svg .s-saved { stroke: var(--saved); } svg .s-limit { stroke: var(--limit); }
svg .s-hot { stroke: var(--hot); } svg .s-quiet { stroke: var(--quiet); }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; font-size: .85rem; color: var(--quiet); margin: .3rem 0; }
.legend i { display: inline-block; width: .8em; height: .8em; border-radius: 2px;
  border: 1px solid var(--line); margin-right: .35em; }
details { margin: .4rem 0; } summary { cursor: pointer; color: var(--quiet); }
.scroll { overflow-x: auto; max-height: 30rem; overflow-y: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; }
th, td { padding: .15rem .7rem .15rem 0; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; }
"""
WIDTH, LABEL, BAR = 960, 150, 24


def escaped(value):
    return html.escape(str(value), quote=True)


def short(name, most=22):
    """A name that fits beside a bar."""
    return name if len(name) <= most else "…" + name[1 - most :]


def rect(x, y, width, height, kind, title=""):
    tip = f"<title>{escaped(title)}</title>" if title else ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}" class="{kind}">{tip}</rect>'
    )


def label(x, y, value, anchor="start", kind=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escaped(value)}</text>'


def line(x1, y1, x2, y2, kind="axis"):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def svg(height, parts, name):
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escaped(name)}">{"".join(parts)}</svg>'


def legend(*entries):
    items = "".join(f'<span><i style="background: var(--{color})"></i>{escaped(name)}</span>' for color, name in entries)
    return f'<div class="legend">{items}</div>'


def round_step(top, steps=5):
    """A round size of which about `steps` reach up to `top`."""
    step = 1.0
    while step * steps < top:
        step *= 2
    return step


def ticks(scale, top, y0, y1):
    """Lines of an axis of bytes along x."""
    step, at, parts = round_step(top), 0.0, []
    while at <= top:
        parts += [line(scale(at), y0, scale(at), y1), label(scale(at), y1 + 14, size(at), "middle", "quiet")]
        at += step
    return parts


def bars(rows, top, name, right=130):
    """Horizontal bars: each row has a label, pieces of (bytes, kind, title) and a text at its end."""
    scale = lambda value: LABEL + (WIDTH - LABEL - right) * value / (top or 1)
    bottom = len(rows) * BAR + 4
    parts = ticks(scale, top, 0, bottom)
    for i, (title, pieces, end) in enumerate(rows):
        y, x = i * BAR + 4, 0.0
        parts.append(label(LABEL - 8, y + 13, short(title), "end"))
        for value, kind, tip in pieces:
            parts.append(rect(scale(x), y, scale(x + value) - scale(x), BAR - 7, kind, tip))
            x += value
        parts.append(label(scale(x) + 6, y + 13, end, kind="quiet"))
    return svg(bottom + 22, parts, name)


def cold_charts(services, totals):
    kinds = ("hot", "warm", "cold", "unknown")
    pieces = lambda row: [
        (row[f"{kind}_bytes"], kind, f"{kind}: {size(row[f'{kind}_bytes'])}") for kind in kinds
    ]
    share = lambda row: f"{percent(row['cold_bytes'], row['resident_bytes'])} cold"
    days = [(day, pieces(row), share(row)) for day, row in totals.items()]
    shown = [(row["service"], pieces(row), share(row)) for row in services[:SHOWN]]
    top = max((row["resident_bytes"] for row in totals.values()), default=0)
    largest = max((row["resident_bytes"] for row in services[:SHOWN]), default=0)
    key = legend(("hot", "hot"), ("warm", "warm"), ("cold", "cold"), ("unknown", "cannot be observed"))
    return (
        key
        + bars(days, top, "memory of the fleet by day")
        + f"<p>By service, the {len(shown)} with the most cold memory:</p>"
        + bars(shown, largest, "memory by service")
    )


def savings_chart(rows, objective_ppm):
    shown = [
        (
            row["service"],
            [
                (row["saved_bytes"], "saved", f"saved: {size(row['saved_bytes'])}"),
                (row["resident_bytes"] - row["saved_bytes"], "faint", f"resident: {size(row['resident_bytes'])}"),
            ],
            f"{size(row['saved_bytes'])}; {percent(row['refault_ppm'], 1_000_000, 2)}/min back"
            + (" !" if row["refault_ppm"] > objective_ppm else ""),
        )
        for row in rows[:SHOWN]
    ]
    top = max((row["resident_bytes"] for row in rows[:SHOWN]), default=0)
    key = legend(("saved", "saved"), ("line", "stays resident"))
    key += f"<p>! marks services where more than {percent(objective_ppm, 1_000_000, 2)} comes back in a minute.</p>"
    return key + bars(shown, top, "savings by service", 200)


def limits_chart(rows):
    shown = sorted(rows, key=lambda row: -row["peak_bytes"])[:SHOWN]
    top = max((max(row["peak_bytes"], row["limit_bytes"] or 0) for row in shown), default=0)
    scale = lambda value: LABEL + (WIDTH - LABEL - 110) * value / (top or 1)
    bottom = len(shown) * BAR + 4
    parts = ticks(scale, top, 0, bottom)
    for i, row in enumerate(shown):
        y, at = i * BAR + 4, lambda key: scale(row[key]) - LABEL
        parts.append(label(LABEL - 8, y + 13, short(row["service"]), "end"))
        if row["limit_bytes"] is not None:
            parts.append(rect(LABEL, y, at("limit_bytes"), BAR - 7, "track", f"limit now: {size(row['limit_bytes'])}"))
        parts.append(rect(LABEL, y + 3, at("peak_bytes"), BAR - 13, "faint", f"peak: {size(row['peak_bytes'])}"))
        tip = f"smallest limit: {size(row['smallest_limit_bytes'])}"
        parts.append(rect(LABEL, y + 3, at("smallest_limit_bytes"), BAR - 13, "limit", tip))
        end = f"{size(row['smallest_limit_bytes'])} at {row['minimum_age']}"
        parts.append(label(scale(max(row["peak_bytes"], row["limit_bytes"] or 0)) + 6, y + 13, end, kind="quiet"))
    key = legend(("limit", "smallest limit"), ("line", "peak"), ("panel", "limit now"))
    return key + svg(bottom + 22, parts, "limits by service")


def hosts_chart(rows):
    if not rows:
        return ""
    height, left = 260, 70
    top = max(max(row["moved_bytes"], row["room_elsewhere_bytes"]) for row in rows) or 1
    x = lambda place: left + (WIDTH - left - 20) * place / len(rows)
    y = lambda value: 10 + (height - 20) * (1 - value / top)
    parts, at = [], 0.0
    while at <= top:
        parts += [line(left, y(at), WIDTH - 20, y(at)), label(left - 6, y(at) + 4, size(at), "end", "quiet")]
        at += round_step(top, 4)
    for share in range(0, 5):
        place = len(rows) * share // 4
        parts.append(label(x(place), height + 8, place, "middle", "quiet"))
    step = max(len(rows) // 400, 1)
    for key, kind in (("room_elsewhere_bytes", "s-saved"), ("moved_bytes", "s-hot")):
        points = " ".join(f"{x(row['place']):.1f},{y(row[key]):.1f}" for row in rows[::step] + rows[-1:])
        parts.append(f'<polyline points="{points}" class="path {kind}"/>')
    emptied = sum(row["can_be_emptied"] for row in rows)
    parts.append(line(x(emptied), 10, x(emptied), height - 10, "path s-quiet"))
    parts.append(label(x(emptied) - 6, 24, f"{emptied} hosts", "end"))
    key = legend(("hot", "memory that must move, if so many hosts are emptied"), ("saved", "room on the other hosts"))
    return key + svg(height + 16, parts, "hosts that could be emptied")


def rollout_chart(rows):
    if not rows:
        return "<p>No service ran an old and a new image for whole days.</p>"
    shown = sorted(rows, key=lambda row: -row["change_bytes"])[:SHOWN]
    low = min(min(row["change_bytes"] - 2 * row["error_bytes"] for row in shown), 0)
    high = max(max(row["change_bytes"] + 2 * row["error_bytes"] for row in shown), 1)
    scale = lambda value: LABEL + 10 + (WIDTH - LABEL - 170) * (value - low) / (high - low)
    bottom = len(shown) * BAR + 4
    parts = [line(scale(0), 0, scale(0), bottom), label(scale(0), bottom + 14, "0", "middle", "quiet")]
    step = round_step(max(high, -low), 3)
    for at in (i * step for i in range(-8, 9) if i):
        if low <= at <= high:
            parts += [line(scale(at), 0, scale(at), bottom), label(scale(at), bottom + 14, size(at), "middle", "quiet")]
    for i, row in enumerate(shown):
        y = i * BAR + 12
        kind = "hot" if row["is_significant"] else "quiet"
        change, error = row["change_bytes"], row["error_bytes"]
        parts.append(label(LABEL - 8, y + 4, short(row["service"]), "end"))
        parts.append(line(scale(change - 2 * error), y, scale(change + 2 * error), y, f"path s-{kind}"))
        tip = f"<title>{escaped(row['new_image'])}: {size(change)}, error {size(error)}</title>"
        parts.append(f'<circle cx="{scale(change):.1f}" cy="{y}" r="5" class="{kind}">{tip}</circle>')
        end = f"{size(change)} ± {size(2 * error)}"
        parts.append(label(scale(change + 2 * error) + 10, y + 4, end, kind="quiet"))
    key = legend(("hot", "clear: more than three standard errors"), ("quiet", "not clear; lines are two standard errors"))
    return key + svg(bottom + 22, parts, "change by new images")


def tiles(report):
    options, answers = report["options"], report["answers"]
    services, _ = by_service(answers["cold"])
    total = lambda rows, key: sum(row[key] for row in rows)
    resident = total(services, "resident_bytes")
    saved = total(answers["savings"], "saved_bytes")
    emptied = [row for row in answers["hosts"] if row["can_be_emptied"]]
    clear = [row for row in answers["rollout"] if row["is_significant"]]
    yield size(resident), "resident, on average"
    yield percent(total(services, "cold_bytes"), resident), "of it untouched for 5 s"
    yield size(saved), f"idle for {options['age']} or longer"
    yield f"{len(emptied)} of {len(answers['hosts'])}", "hosts could be emptied"
    yield f"{len(clear)} of {len(answers['rollout'])}", "new images changed cold memory"


def page(report):
    options, answers = report["options"], report["answers"]
    services, totals = by_service(answers["cold"])
    charts = [
        cold_charts(services, totals),
        savings_chart(answers["savings"], options["objective_ppm"]),
        limits_chart(answers["limits"]),
        hosts_chart(answers["hosts"]),
        rollout_chart(answers["rollout"]),
    ]
    tile = lambda value, what: f"<div><b>{escaped(value)}</b><span>{escaped(what)}</span></div>"
    parts = [f'<div class="tiles">{"".join(tile(*entry) for entry in tiles(report))}</div>']
    for (title, sentence, head, rows), chart in zip(tables(report), charts):
        cells = lambda row, tag: "<tr>" + "".join(f"<{tag}>{escaped(cell)}</{tag}>" for cell in row) + "</tr>"
        table = cells(head, "th") + "".join(cells(row, "td") for row in rows)
        parts.append(
            f"<section><h2>{escaped(title)}</h2><p>{escaped(sentence)}</p>{chart}<details><summary>"
            f'{len(rows)} rows</summary><div class="scroll"><table>{table}</table></div></details></section>'
        )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Memory of a fleet</title><style>{STYLE}</style></head><body><h1>Memory of a fleet</h1>"
        f"<p>{escaped(report['summary'])}</p>{''.join(parts)}</body></html>\n"
    )


def write(path, content):
    """Writes a file aside and renames it. A device or a pipe stays what it is."""
    aside = f"{path}.{os.getpid()}"
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            pathlib.Path(path).write_text(content, encoding="utf-8")
            return
        # Not through a link that another user has put there.
        file = open(aside, "x", encoding="utf-8")
        try:
            with file:
                file.write(content)
            os.replace(aside, path)
        except OSError:
            os.unlink(aside)
            raise
    except OSError as error:
        raise Failure(f"cannot write {path}: {error.strerror}: name another file with --html") from None


def run(options):
    check_lake(options)
    engine = {"duckdb": DuckDb, "spark": Spark}[options["engine"]](options)
    try:
        check_columns(engine.begin(wanted(options)), options)
        for name, sql in options["views"]:
            engine.view(name, sql)
        answers, seconds = answer(engine, options)
    except engine.error as error:
        reason = " ".join(str(error).split())[:400]
        raise Failure(f"{engine.name} cannot read the lake {options['lake']}: {reason}") from None
    finally:
        engine.end()
    if not answers["cold"]:
        raise Failure(f"the lake {options['lake']} has no minute with a snapshot: see whether isotherm agent runs")
    days = sorted({row["day"] for row in answers["cold"]})
    services = len({row["service"] for row in answers["cold"]})
    summary = (
        f"{counted(len(answers['hosts']), 'host')} and {counted(services, 'service')}, {days[0]} to {days[-1]}, by {engine.name}: "
        f"{options['lake']}"
    )
    report = {"options": options, "answers": answers, "summary": summary}
    if options["html"]:
        write(options["html"], page(report))
    if not options["json"]:
        return text(report)
    said = {key: options[key] for key in ("lake", "engine", "age", "rollout_age", "objective_ppm", "headroom")}
    return json.dumps({"schema_version": SCHEMA_VERSION, **said, "seconds": seconds, "answers": answers}, indent=1)


if __name__ == "__main__":
    try:
        print(run(json.loads(sys.argv[1])))
    except Failure as failure:
        sys.exit(f"isotherm: {failure}")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
