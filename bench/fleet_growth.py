"""Whether the time of Spark grows linearly with the rows, and what a second worker saves.

Usage: bench/fleet_growth.py FOLDER DAYS HOSTS..., where FOLDER has the reports spark-WORKERS-HOSTS.json. The time of the
first, smallest lake counts as the fixed cost of planning and starting tasks.
"""

import json
import sys

folder, days, *sizes = sys.argv[1], *map(int, sys.argv[2:])
MINUTES_OF_DAY = 1440


def seconds(workers, hosts):
    return sum(json.load(open(f"{folder}/spark-{workers}-{hosts}.json"))["seconds"].values())


print(f"{'rows':>12} {'one worker':>11} {'two workers':>12} {'of one':>7} {'s per million rows, without the fixed part':>45}")
for hosts in sizes:
    rows = hosts * days * MINUTES_OF_DAY
    one, two = times = [seconds(workers, hosts) for workers in (1, 2)]
    more = (rows - sizes[0] * days * MINUTES_OF_DAY) / 1e6
    variable = [(time - seconds(workers, sizes[0])) / more for workers, time in enumerate(times, 1) if more]
    growth = ", ".join(f"{time:.2f}" for time in variable)
    print(f"{rows:>12} {one:>9.1f} s {two:>10.1f} s {two / one:>7.2f} {growth:>45}")
