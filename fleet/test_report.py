#!/usr/bin/env python3
"""Tests of the questions and of the program that asks them, about small lakes: `fleet/check`."""

import json
import os
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
# The names of the questions, with the ages that they read.
QUESTIONS = {"cold": None, "savings": "2m", "limits": None, "hosts": "2m", "rollout": "30m", "images": None}
SECONDS = {None: "0", "2m": "120", "30m": "1800"}
PARAMETERS = {"objective_ppm": "2000", "skipped_days": "2", "headroom": "10"}


def statement(name, age):
    sql = read(FLEET / f"sql/{name}.sql").replace("{age}", age or "").replace("{age_s}", SECONDS[age])
    for parameter, value in PARAMETERS.items():
        sql = sql.replace("{" + parameter + "}", value)
    return sql


def write(path, groups, without=()):
    """A lake of control groups: host, its memory, service, resident bytes, the minutes in which the group is there, and
    more columns by their names. The columns `without` are absent."""
    zeros = {f"{name}_bytes": 0 for name in ZERO}
    zeros |= {f"{kind}_{age}": 0 for age in AGES for kind in ("idle", "returned")}
    nothing = {"container": None, "image": None, "limit_bytes": None, "snapshots": 1}
    rows = []
    for i, (host, host_bytes, service, resident, minutes, *more) in enumerate(groups):
        row = {"host": host, "host_bytes": host_bytes, "service": service, "resident_bytes": resident, "cgroup": f"/{i}"}
        row |= nothing | zeros | (more[0] if more else {})
        rows.append([*row.values(), minutes.start, minutes.stop])
    texts = ("host", "service", "cgroup", "container", "image")
    types = ", ".join(f"{name} {'TEXT' if name in texts else 'INT8'}" for name in [*row, "start", "stop"])
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"CREATE TABLE groups ({types})")
    connection.executemany(f"INSERT INTO groups VALUES ({', '.join('?' * len(rows[0]))})", rows)
    left_out = ", ".join(["start", "stop", "n", *without])
    connection.execute(
        f"COPY (SELECT * EXCLUDE ({left_out}), to_timestamp({DAY} + 60 * n) AS minute FROM (SELECT *, "
        f"unnest(range(start, stop)) AS n FROM groups)) TO '{path}'"
    )


class Report(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def report(self, groups, **more):
        """What `isotherm fleet report` prints: it runs the program in this way."""
        if groups:
            write(self.folder / "a.parquet", groups)
        questions = [{"name": name, "sql": statement(name, age), "age": age} for name, age in QUESTIONS.items()]
        options = {"lake": "lake", "folder": str(self.folder), "engine": "duckdb", "age": "2m", "rollout_age": "30m", "html": None}
        options |= {"objective_ppm": 2000, "headroom": 10, "memory_mib": 256, "threads": 1, "json": True}
        options |= {"views": [("observed", read(FLEET / "sql/observed.sql"))], "questions": questions} | more
        command = [sys.executable, "-c", read(FLEET / "report.py"), json.dumps(options)]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def answers(self, groups=()):
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
        # Found by a review: once b is emptied, the group of a fits nowhere.
        groups = [("a", 1000, "s", 100, minute)] + 3 * [("b", 1000, "s", 50, minute)]
        groups += [(f"c{n}", 300, "s", 50, minute) for n in range(10) for _ in range(4)]
        emptied = [row["can_be_emptied"] for row in self.answers(groups)["hosts"]]
        self.assertEqual(emptied, [1] + 11 * [0])

    def test_hosts_that_no_longer_exist_have_no_room(self):
        # All but the first host have a row on each of seven days.
        days = [range(1440 * day, 1440 * day + 1) for day in range(7)]
        groups = [("gone", 1000, "s", 100, days[0])]
        for day in days:
            groups += [("b", 1000, "s", 90, day), ("c", 1000, "s", 870, day)]
        hosts = self.answers(groups)["hosts"]
        self.assertEqual([(row["host"], row["can_be_emptied"]) for row in hosts], [("b", 0), ("c", 0)])
        self.assertEqual([row["gone_hosts"] for row in hosts], [1, 1])
        text = self.report(groups, json=False)
        self.assertIn("Hosts left out, because they have no row in the last hours of the lake: 1.", text)
        self.assertIn("0 of 2 hosts", text)

    def test_a_clock_that_is_ahead_hides_no_host(self):
        # One of 40 hosts is two days ahead: found by an audit, the others were gone.
        limit, ahead = {"limit_bytes": 8000}, {"limit_bytes": 2000}
        groups = [(f"h{n}", 1000, "s", 100, range(1), limit) for n in range(39)]
        groups += [("ahead", 1000, "s", 100, range(2880, 2881), ahead), ("gone", 1000, "s", 100, range(-180, -179), limit)]
        for some in (groups, groups[-5:]):
            answers = self.answers(some)
            self.assertEqual(len(answers["hosts"]), len(some) - 1)
            self.assertEqual({row["gone_hosts"] for row in answers["hosts"]}, {1})
            self.assertEqual([row["limit_bytes"] for row in answers["limits"]], [8000])

    def test_hosts_that_few_others_outlived_are_gone(self):
        groups = [(f"gone{n}", 1000, "s", 100, range(1), {"limit_bytes": 8000}) for n in range(90)]
        groups += [(f"h{n}", 1000, "s", 100, range(2880, 2881), {"limit_bytes": 2000}) for n in range(10)]
        answers = self.answers(groups)
        self.assertEqual([row["gone_hosts"] for row in answers["hosts"]], [90] * 10)
        self.assertEqual([row["limit_bytes"] for row in answers["limits"]], [2000])

    def test_hosts_that_are_replaced_each_day_are_gone(self):
        # Found by a review: 5 % of all hosts that the lake ever had was more than those of the last day.
        groups = [
            (f"h{day}-{n}", 1000, "s", 100, range(1440 * day, 1440 * day + 1), {"limit_bytes": 2000 if day == 29 else 8000})
            for day in range(30)
            for n in range(10)
        ]
        answers = self.answers(groups)
        self.assertEqual([row["gone_hosts"] for row in answers["hosts"]], [290] * 10)
        self.assertEqual([row["limit_bytes"] for row in answers["limits"]], [2000])

    def test_a_single_host_that_is_replaced_is_there(self):
        groups = [(f"h{day}", 1000, "s", 100, range(1440 * day, 1440 * day + 1), {"limit_bytes": 2000}) for day in range(5)]
        answers = self.answers(groups)
        self.assertEqual([(row["host"], row["gone_hosts"]) for row in answers["hosts"]], [("h4", 4)])
        self.assertEqual([row["limit_bytes"] for row in answers["limits"]], [2000])

    def test_no_requirement_is_below_zero(self):
        older = {f"idle_{age}": 1050 for age in AGES}
        answers = self.answers([("h", 10000, "s", 1000, range(3), older)])
        self.assertEqual(answers["limits"][0]["smallest_limit_bytes"], 0)
        self.assertEqual(answers["hosts"][0]["needed_bytes"], 0)

    def test_the_limit_is_that_of_the_last_day(self):
        groups = [("h", 10000, "s", 1000, range(1), {"limit_bytes": 8000})]
        groups += [("h", 10000, "s", 1000, range(1440, 1441), {"limit_bytes": 2000})]
        groups += [("h", 10000, "t", 1000, range(1), {"limit_bytes": 8000})]
        groups += [("h", 10000, "t", 1000, range(1440, 1441))]
        limits = {row["service"]: row["limit_bytes"] for row in self.answers(groups)["limits"]}
        self.assertEqual(limits, {"s": 2000, "t": None})

    def test_the_change_by_an_image_may_be_large(self):
        # The new image frees 1 TiB of cold memory on each of 12 hosts, give or take 1 GiB. The sum of the squares exceeds
        # 64 bits, as for 100 GiB on 1000 hosts.
        gib, groups = 2**30, []
        for n in range(15):
            is_new = n < 12
            for day in range(3):
                freed = 1024 + n % 3 - 1 if is_new and day > 0 else 0
                more = {"image": "s:2" if freed else "s:1", "idle_30m": (2048 - freed) * gib}
                groups.append((f"h{n}", 4096 * gib, "s", 2048 * gib, range(1440 * day, 1440 * day + 1), more))
        (change,) = self.answers(groups)["rollout"]
        self.assertEqual((change["hosts_new"], change["hosts_kept"], change["is_significant"]), (12, 3, 1))
        self.assertEqual(change["change_bytes"] / gib, -1024)
        # Four times -1, 0 and 1.
        self.assertAlmostEqual(change["error_bytes"] / gib, (8 / 11 / 12) ** 0.5, delta=0.001)

    def test_groups_without_an_image_are_counted(self):
        minute, named = range(1), {"container": "c", "image": "i"}
        groups = [("h", 2**20, "s", 70, minute, named), ("h", 2**20, "t", 70, minute, {"container": "c"})]
        groups += [("h", 2**20, "u", 70, minute)] * 2
        expected = {"control_groups": 4, "without_image": 3, "containers_without_image": 1}
        self.assertEqual(self.answers(groups)["images"], [expected])
        text = self.report(groups, json=False)
        self.assertIn("3 of 4 control groups had no image, and have no row; 1 of them are containers.", text)

    def test_the_text_says_which_memory_does_not_count(self):
        text = self.report([("h", 2**20, "s", 70, range(2))], json=False)
        self.assertIn("A limit also counts page cache", text)
        self.assertIn("kernel memory, page cache and unmapped files of tmpfs", text)

    def test_files_of_several_versions_are_read_together(self):
        for earlier, later in [("a", "b"), ("b", "a")]:
            group = (2**20, "s", 70, range(2))
            write(self.folder / f"{earlier}.parquet", [("h", *group)], without=("container", "limit_bytes"))
            write(self.folder / f"{later}.parquet", [("i", *group)])
            self.assertEqual([row["host"] for row in self.answers()["hosts"]], ["h", "i"])

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

    def test_a_pipe_in_place_of_the_page_stays(self):
        # Found by a trial: as root, the page replaced the device.
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        self.write_page("pipe", "some text")
        self.assertTrue(pipe.is_fifo())
        self.assertEqual(os.read(reader, 100), b"some text")
        os.close(reader)

    def test_a_page_that_cannot_be_written_leaves_no_file(self):
        (self.folder / "full").mkdir()
        with self.assertRaises(OSError):
            self.write_page("full", "")
        limit = "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\nresource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        with self.assertRaises(OSError):
            self.write_page("page.html", "x" * 10000, limit)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["full"])

    def write_page(self, name, content, before=""):
        code = f'{before}write("{name}", {content!r})\nif 0:'
        program = read(FLEET / "report.py").replace('if __name__ == "__main__":', code)
        done = subprocess.run([sys.executable, "-c", program], cwd=self.folder, capture_output=True, text=True)
        if done.returncode:
            raise OSError(done.stderr)


if __name__ == "__main__":
    unittest.main()
