#!/usr/bin/env python3
"""Prints the seccomp profile for containers: the system calls that the unit of the agent permits.

    fleet/seccomp.py >fleet/helm/isotherm/files/seccomp.json

systemd-analyze expands the sets of system calls. Another version of systemd may have other sets.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UNIT = ROOT / "packaging/isotherm-agent.service"


# The unit forbids these by other settings (RestrictNamespaces, LockPersonality, RestrictSUIDSGID), or isotherm has no
# use for them.
OTHERS = {
    *("unshare", "setns", "personality", "mknod", "mknodat", "userfaultfd"),
    *("io_uring_setup", "io_uring_enter", "io_uring_register"),
}


def analyzed(*args):
    return subprocess.run(["systemd-analyze", *args], check=True, capture_output=True, text=True).stdout


def sets():
    """The sets of system calls, by name."""
    sets, name = {}, None
    for line in analyzed("syscall-filter", "--no-pager").splitlines():
        word = line.strip()
        if line.startswith("@"):
            name = word
        elif word and not word.startswith("#"):
            sets.setdefault(name, []).append(word)
    return sets


def expand(word, sets):
    """The system calls of a set and of the sets in it, or the single system call."""
    if word not in sets:
        return {word}
    return set().union(*(expand(member, sets) for member in sets[word]))


def permitted(unit):
    """The system calls that the unit permits, without those that isotherm does not need."""
    known = sets()
    permitted = expand("@default", known)
    for removes, words in re.findall(r"^SystemCallFilter=(~?)(.*)$", unit, re.MULTILINE):
        named = set().union(*(expand(word, known) for word in words.split()))
        permitted = permitted - named if removes else permitted | named
    return permitted - OTHERS


def profile(calls):
    """A profile that refuses all other calls with EPERM, as the unit does."""
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": 1,
        "architectures": ["SCMP_ARCH_X86_64"],
        "syscalls": [{"names": sorted(calls), "action": "SCMP_ACT_ALLOW"}],
    }


if __name__ == "__main__":
    json.dump(profile(permitted(UNIT.read_text())), sys.stdout, indent=2)
    print()
