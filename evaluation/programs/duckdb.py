"""Sales in DuckDB, in memory: a dashboard asks about the last month again and again, and now and then about a year."""
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

done = 0
while True:
    for question in range(40):
        days = 30 if question else 365
        first = DAYS - days
        db.execute(
            """SELECT shop, count(*), sum(cents), count(DISTINCT customer) FROM sales WHERE day >= ?
               GROUP BY shop ORDER BY 3 DESC LIMIT 10""",
            (first,),
        ).fetchall()
        # In rows, because a year takes longer than a month.
        done += ROWS * days // DAYS
        print("done", done, flush=True)
