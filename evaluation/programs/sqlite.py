"""A shop's orders in SQLite, in memory: most transactions are about recent orders, some reports read a part of all."""
import random
import sqlite3
import time

ORDERS = 2_500_000
CUSTOMERS = 200_000

random.seed(1)
db = sqlite3.connect(":memory:", isolation_level=None)
db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, cents INTEGER, note TEXT)")
note = "delivered to the neighbour on the second floor, " * 2
rows = ((i, random.randrange(CUSTOMERS), random.randrange(100_000), note) for i in range(ORDERS))
db.execute("BEGIN")
db.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", rows)
db.execute("COMMIT")
db.execute("CREATE INDEX by_customer ON orders (customer)")

done, printed = 0, 0.0
while True:
    # Nine of ten are among the newest tenth.
    newest = ORDERS - int(ORDERS * (random.random() / 10 if random.random() < 0.9 else random.random())) - 1
    (customer,) = db.execute("SELECT customer FROM orders WHERE id = ?", (newest,)).fetchone()
    db.execute("UPDATE orders SET cents = cents + 1 WHERE id = ?", (newest,))
    db.execute("SELECT sum(cents) FROM orders WHERE customer = ?", (customer,)).fetchone()
    done += 1
    if done % 20_000 == 0:
        start = random.randrange(ORDERS * 9 // 10)
        db.execute("SELECT avg(cents) FROM orders WHERE id BETWEEN ? AND ?", (start, start + ORDERS // 10)).fetchone()
    if done % 64 == 0 and time.monotonic() - printed > 0.05:
        printed = time.monotonic()
        print("done", done, flush=True)
