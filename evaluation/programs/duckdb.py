"""Sales in DuckDB, in memory: a dashboard asks about the last month again and again, and now and then about the months
of the year before it."""
import os
import sys

# Not this file, which has the same name.
sys.path = [path for path in sys.path if os.path.abspath(path) != os.path.dirname(os.path.abspath(__file__))]
import duckdb  # noqa: E402

ROWS = 16_000_000
DAYS = 730

db = duckdb.connect()
db.execute("SET threads = 1")
db.execute(
    f"""CREATE TABLE sales AS SELECT
        CAST(i * {DAYS} // {ROWS} AS INTEGER) AS day,
        CAST(hash(i) % 5000 AS INTEGER) AS product,
        CAST(hash(i + 1) % 300 AS INTEGER) AS shop,
        CAST(hash(i + 2) % 100000 AS BIGINT) AS cents,
        CAST(hash(i + 3) % 4000000 AS BIGINT) AS customer
    FROM range({ROWS}) t(i)"""
)

MONTH = 30

done = 0
while True:
    # The last month 40 times, then each month of the year before it. All questions take about the same time.
    for month in [1] * 40 + list(range(2, 14)):
        first = DAYS - MONTH * month
        db.execute(
            """SELECT shop, count(*), sum(cents), count(DISTINCT customer) FROM sales WHERE day >= ? AND day < ?
               GROUP BY shop ORDER BY 3 DESC LIMIT 10""",
            (first, first + MONTH),
        ).fetchall()
        done += 1
        print("done", done, flush=True)
