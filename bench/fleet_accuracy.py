"""Holds the answers of `isotherm fleet report --json` against the truth of `isotherm lab fleet --truth`.

Usage: bench/fleet_accuracy.py TRUTH REPORT...
Exit status 1 if savings and returns are not within 10 % for 90 % of the services and ages.
"""

import json
import statistics
import sys

truth = {}
deploys = {}
for row in map(json.loads, open(sys.argv[1])):
    truth[row["service"], row["age"]] = row
    deploys[row["image"]] = row["deploy_cold_bytes"]

print(f"{'':<28} {'services':>8} {'median error':>13} {'worst':>8} {'within 10 %':>12}")
right, all_services = 0, 0
for path in sys.argv[2:]:
    report = json.load(open(path))
    errors = {"saved": [], "comes back": []}
    for row in report["answers"]["savings"]:
        exact = truth[row["service"], report["age"]]
        pairs = (
            ("saved", row["saved_bytes"], exact["saved_bytes"]),
            ("comes back", row["returned_bytes_per_minute"], exact["returned_bytes_per_minute"]),
        )
        for what, found, real in pairs:
            # Less than 10 bytes of a million are as good as none: errors are relative to the greater of both.
            errors[what].append(abs(found - real) / max(real, 1e-5 * row["resident_bytes"]))
    for what, of in errors.items():
        near = sum(error <= 0.1 for error in of)
        print(
            f"{report['age'] + ', ' + what:<28} {len(of):>8} {100 * statistics.median(of):>11.2f} % "
            f"{100 * max(of):>6.1f} % {100 * near / len(of):>10.0f} %"
        )
    both = sum(max(pair) <= 0.1 for pair in zip(*errors.values()))
    right, all_services = right + both, all_services + len(errors["saved"])
print(f"both within 10 %: {right} of {all_services} services and ages, {100 * right / all_services:.0f} %")

report = json.load(open(sys.argv[2]))
rows = report["answers"]["rollout"]
changed = [row for row in rows if deploys[row["new_image"]] > 0]
same = [row for row in rows if deploys[row["new_image"]] == 0]
found = sum(row["is_significant"] for row in changed)
wrong = sum(row["is_significant"] for row in same)
within = sum(abs(row["change_bytes"] - deploys[row["new_image"]]) <= 2 * row["error_bytes"] for row in rows)
print(
    f"new images that add cold memory: {found} of {len(changed)} found; others called clear: {wrong} of {len(same)}; "
    f"true change within two standard errors: {within} of {len(rows)}"
)
for row in rows if "-v" in sys.argv else ():
    print(row["new_image"], deploys[row["new_image"]] / 2**20, row["change_bytes"] / 2**20, row["error_bytes"] / 2**20)
sys.exit(right < 0.9 * all_services)
