"""Compares two outputs of `isotherm fleet report --json`, digit by digit: fleet/compare.py A B."""

import json
import sys

a, b = (json.load(open(path)) for path in sys.argv[1:3])
differ = [name for name in a["answers"] if a["answers"][name] != b["answers"][name]]
for name in differ:
    pairs = zip(a["answers"][name], b["answers"][name])
    print(name, next((pair for pair in pairs if pair[0] != pair[1]), "another number of rows"), file=sys.stderr)
rows = sum(map(len, a["answers"].values()))
print(f"{a['engine']} and {b['engine']}: {rows} rows of {len(a['answers'])} answers are {'not ' * bool(differ)}equal")
sys.exit(bool(differ))
