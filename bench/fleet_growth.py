"""Whether the time of Spark grows linearly with the rows, and what a second worker saves.

Usage: bench/fleet_growth.py FOLDER DAYS HOSTS..., where FOLDER has the reports spark-WORKERS-HOSTS.json, and in
cpu-WORKERS-HOSTS the CPU time of the workers before and after. The time of the first, smallest lake counts as the fixed part:
planning and starting tasks. The rest is proportional to the rows. Growth requires three sizes at least, the smallest first.
Exit status 1 if that rest is not proportional within 10 %, or if a machine of four CPUs or more needs more than 0.65 of the
time with two workers, for the largest lake.
"""

import json
import os
import sys

folder, days, *sizes = sys.argv[1], *map(int, sys.argv[2:])
if len(sizes) < 3 or sizes != sorted(set(sizes)):
    sys.exit("growth requires three numbers of hosts at least, the smallest first")
MINUTES_OF_DAY = 1440
CPUS = len(os.sched_getaffinity(0))


def rows(hosts):
    return hosts * days * MINUTES_OF_DAY / 1e6


def seconds(workers, hosts):
    return sum(json.load(open(f"{folder}/spark-{workers}-{hosts}.json"))["seconds"].values())


def cpu(workers, hosts):
    before, after = map(float, open(f"{folder}/cpu-{workers}-{hosts}").read().split())
    return after - before


print("| million rows | workers | time | fixed part | proportional part | a million rows | CPU time of the workers |")
print("|---|---|---|---|---|---|---|")
pace = {}
for workers in (1, 2):
    fixed = seconds(workers, sizes[0])
    for hosts in sizes:
        time, more = seconds(workers, hosts), rows(hosts) - rows(sizes[0])
        print(f"| {rows(hosts):.2f} | {workers} | {time:.1f} s | {fixed:.1f} s | {time - fixed:.1f} s | ", end="")
        if more:
            pace[workers, hosts] = (time - fixed) / more
            print(f"{pace[workers, hosts]:.2f} s", end="")
        print(f" | {cpu(workers, hosts):.1f} s |")

failed = []
for workers in (1, 2):
    of = [pace[workers, hosts] for hosts in sizes[1:]]
    if min(of) <= 0:
        sys.exit("a larger lake was not slower: the lakes are too small to measure growth")
    spread = max(of) / min(of) - 1
    print(f"{workers} of 2 workers: the time of a million rows differs by {100 * spread:.0f} %")
    if spread > 0.1:
        failed.append("the time does not grow linearly within 10 %")
largest = sizes[-1]
whole = seconds(2, largest) / seconds(1, largest)
part = pace[2, largest] / pace[1, largest]
print(f"two workers need {whole:.2f} of the time of one, and {part:.2f} of its proportional part")
if whole > 0.65 and CPUS >= 4:
    failed.append("two workers need more than 0.65 of the time of one")
sys.exit(", ".join(failed) or 0)
