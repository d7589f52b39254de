#!/usr/bin/env python3
"""Tests of the questions and of the program that asks them, about small lakes: `fleet/check`."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import duckdb
from common import FLEET, read

AGES = "1s 2s 5s 10s 15s 30s 1m 2m 5m 10m 15m 30m 1h 2h 4h 8h 12h 1d 2d 4d 7d 14d".split()
ZERO = ["hot", "warm", "cold", "unknown", "swapped", "aged"]
# Midnight, in seconds since 1970.
DAY = 1_795_564_800
QUESTIONS = {"cold": None, "savings": "2m", "limits": None, "hosts": "2m", "rollout": "30m"}
PARAMETERS = {"age_s": "120", "objective_ppm": "2000", "skipped_days": "2", "headroom": "10"}


def statement(name, age):
    sql = read(FLEET / f"sql/{name}.sql").replace("{age}", age or "")
    for parameter, value in PARAMETERS.items():
        sql = sql.replace("{" + parameter + "}", value)
    return sql


def write(path, groups):
    """A lake of control groups: host, its memory, service, resident bytes, and the minutes in which the group is there."""
    zeros = [f"0::BIGINT AS {name}_bytes" for name in ZERO]
    zeros += [f"0::BIGINT AS {kind}_{age}" for age in AGES for kind in ("idle", "returned")]
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("CREATE TABLE rows (host TEXT, host_bytes INT8, service TEXT, resident_bytes INT8, cgroup TEXT, n INT8)")
    for i, (host, host_bytes, service, resident, minutes) in enumerate(groups):
        connection.execute(
            "INSERT INTO rows SELECT ?, ?, ?, ?, ?, n FROM range(?, ?) AS minutes (n)",
            [host, host_bytes, service, resident, f"/{i}", minutes.start, minutes.stop],
        )
    connection.execute(
        f"COPY (SELECT * EXCLUDE n, to_timestamp({DAY} + 60 * n) AS minute, NULL::TEXT AS image, "
        f"NULL::BIGINT AS limit_bytes, 1::BIGINT AS snapshots, {', '.join(zeros)} FROM rows) TO '{path}'"
    )


class Report(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def report(self, groups, **more):
        """What `isotherm fleet report` prints: it runs the program in this way."""
        write(self.folder / "a.parquet", groups)
        questions = [{"name": name, "sql": statement(name, age), "age": age} for name, age in QUESTIONS.items()]
        options = {"lake": str(self.folder), "engine": "duckdb", "age": "2m", "rollout_age": "30m", "html": None}
        options |= {"objective_ppm": 2000, "headroom": 10, "memory_mib": 256, "threads": 1, "json": True}
        options |= {"questions": questions} | more
        command = [sys.executable, "-c", read(FLEET / "report.py"), json.dumps(options)]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def answers(self, groups):
        return json.loads(self.report(groups))["answers"]

    def test_a_group_counts_for_as_long_as_it_exists(self):
        # The job of each hour has a group of its own.
        groups = [("h", 2**20, "job", 6000, range(60 * hour, 60 * hour + 60)) for hour in range(10)]
        answers = self.answers([*groups, ("h", 2**20, "daemon", 70, range(600))])
        for question in ("cold", "savings"):
            resident = {row["service"]: row["resident_bytes"] for row in answers[question]}
            self.assertEqual(resident, {"job": 6000, "daemon": 70}, question)
        (host,) = answers["hosts"]
        self.assertEqual((host["resident_bytes"], host["needed_bytes"]), (6070, 6070))

    def test_minutes_without_the_agent_do_not_count(self):
        groups = [("h", 2**20, "s", 600, range(10)), ("h", 2**20, "s", 600, range(100, 150))]
        self.assertEqual(self.answers(groups)["cold"][0]["resident_bytes"], 600)

    def test_hosts_are_emptied_in_their_order(self):
        # The group of the second host fits nowhere. The third host would fit, and is not emptied either.
        minute = range(1)
        groups = [("a", 1000, "s", 100, minute), ("b", 600, "s", 500, minute)]
        groups += [("c", 1000, "s", 200, minute)] * 3
        groups += [(f"d{n}", 1500, "s", 1000, minute) for n in range(10)]
        emptied = [row["can_be_emptied"] for row in self.answers(groups)["hosts"]]
        self.assertEqual(emptied, [1] + 12 * [0])

    def test_names_do_not_control_the_terminal(self):
        # Whoever makes a control group chooses its name.
        text = self.report([("h", 2**20, "a\x1b]0;owned\x07\nb", 70, range(2))], json=False)
        self.assertIn("a?]0;owned??b", text)
        self.assertNotIn("\x1b", text)

    def test_the_current_folder_has_no_say(self):
        for module in ("json", "glob", "duckdb"):
            (self.folder / f"{module}.py").write_text("raise SystemExit('code of another user ran')")
        self.report([("h", 2**20, "s", 70, range(2))])

    def test_a_link_in_place_of_the_page_is_not_followed(self):
        page, victim = self.folder / "page.html", self.folder / "victim"
        victim.write_text("whole")
        code = f"import os; os.symlink({str(victim)!r}, f'{page}.{{os.getpid()}}')\n"
        write(self.folder / "a.parquet", [("h", 2**20, "s", 70, range(2))])
        program = read(FLEET / "report.py").replace('if __name__ == "__main__":', code + 'write("page.html", "")\nif 0:')
        done = subprocess.run([sys.executable, "-c", program], cwd=self.folder, capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(victim.read_text(), "whole")


if __name__ == "__main__":
    unittest.main()
