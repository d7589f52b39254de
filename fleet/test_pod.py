#!/usr/bin/env python3
"""Runs the program as the manifest describes it: in a container of runc, with the capabilities, the seccomp profile
and the read-only root of the pod. Requires root, and the static program in ISOTHERM: `make check-fleet`."""

import copy
import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from common import MANIFEST, agent, documents, of_kind

PROGRAM = os.environ.get("ISOTHERM")
# What Kubernetes hides from containers that are not privileged.
MASKED = ["/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/scsi"]
READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]
FIRMWARE = "/sys/firmware"


def mount(destination, kind, *options, source=None):
    return {"destination": destination, "type": kind, "source": source or kind, "options": list(options)}


def masked():
    """In the pod, the program reads the addresses of RAM from the view of process 1. Some sandboxes hide that view."""
    return [*MASKED, FIRMWARE] if os.access(f"/proc/1/root{FIRMWARE}/memmap", os.R_OK) else MASKED


def bundle(folder, profile, args):
    """A bundle for runc: the container of the agent, in the pid namespace of the machine."""
    _, container = agent(documents(MANIFEST.read_text()))
    context = container["securityContext"]
    capabilities = [f"CAP_{name}" for name in context["capabilities"]["add"]]
    (folder / "rootfs/usr/bin").mkdir(parents=True)
    shutil.copy(PROGRAM, folder / "rootfs/usr/bin/isotherm")
    (folder / "lake").mkdir()
    config = {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": context["runAsUser"], "gid": 0},
            "args": [*container["command"], *args],
            "env": ["PATH=/usr/bin"],
            "cwd": "/",
            "capabilities": {name: capabilities for name in ("bounding", "effective", "permitted")},
            "noNewPrivileges": not context["allowPrivilegeEscalation"],
        },
        "root": {"path": "rootfs", "readonly": context["readOnlyRootFilesystem"]},
        "mounts": [
            mount("/proc", "proc", "nosuid", "noexec", "nodev"),
            mount("/dev", "tmpfs", "nosuid", "mode=755", "size=64k"),
            mount("/sys", "sysfs", "nosuid", "noexec", "nodev", "ro"),
            mount("/sys/fs/cgroup", "bind", "rbind", "ro", source="/sys/fs/cgroup"),
            mount("/lake", "bind", "rbind", "rw", source=str(folder / "lake")),
            mount("/run/isotherm", "tmpfs", "nosuid", "size=1m"),
        ],
        "linux": {
            "namespaces": [{"type": kind} for kind in ("mount", "ipc", "uts", "network", "cgroup")],
            "seccomp": profile,
            "maskedPaths": masked(),
            "readonlyPaths": READ_ONLY,
        },
    }
    (folder / "config.json").write_text(json.dumps(config))


def finish(*command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def run(profile, *args, then=None):
    """Runs the program in the container, and `then` outside of it, with the folder of the lake."""
    with tempfile.TemporaryDirectory() as folder:
        bundle(Path(folder), profile, args)
        code, output = finish("runc", "run", "--bundle", folder, f"isotherm-test-{os.getpid()}")
        return code, output + (then(Path(folder) / "lake") if then else "")


@unittest.skipUnless(PROGRAM and os.geteuid() == 0, "requires root, and the program in ISOTHERM")
class Pod(unittest.TestCase):
    def setUp(self):
        config = of_kind("ConfigMap", documents(MANIFEST.read_text()))
        self.profile = json.loads(config["data"]["profile.json"])

    def test_program_looks_by_bpf(self):
        code, output = run(self.profile, "record", "--all", "--duration", "3s", "-o", "/lake/a.rec")
        self.assertEqual(code, 0, output)
        self.assertIn("recorded 3.0 s", output)
        self.assertNotIn("bpf does not work", output)

    def test_agent_writes_rows_with_the_arguments_of_the_manifest(self):
        _, container = agent(documents(MANIFEST.read_text()))
        args = [arg.replace("$(NODE_NAME)", "node-1") for arg in container["args"]]

        def rows(lake):
            return "".join(str(file) for file in lake.glob("date=*/hour=*/host=node-1/rows.parquet"))

        # A minute ends in this time.
        code, output = run(self.profile, *args, "--duration", "65s", then=rows)
        self.assertEqual(code, 0, output)
        self.assertNotIn("bpf does not work", output)
        self.assertIn("rows.parquet", output)

    def test_groups_have_the_names_that_the_machine_gives_them(self):
        def report(lake):
            return finish(PROGRAM, "report", "cgroups", "-i", lake / "a.rec")[1]

        code, output = run(self.profile, "record", "--all", "--duration", "3s", "-o", "/lake/a.rec", then=report)
        self.assertEqual(code, 0, output)
        self.assertIn("by control group", output)
        self.assertNotIn("/..", output)

    def test_profile_is_in_force(self):
        profile = copy.deepcopy(self.profile)
        profile["syscalls"][0]["names"].remove("process_madvise")
        _, output = run(profile, "record", "--all", "--duration", "1s", "-o", "/lake/a.rec")
        self.assertIn("bpf does not work", output)

    def test_root_is_read_only(self):
        code, output = run(self.profile, "record", "--all", "--duration", "1s", "-o", "/a.rec")
        self.assertNotEqual(code, 0, output)
        self.assertIn("Read-only file system", output)


if __name__ == "__main__":
    unittest.main()
