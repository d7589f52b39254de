#!/usr/bin/env python3
"""Tests of the files for a fleet that take seconds: `fleet/check`."""

import hashlib
import json
import re
import subprocess
import tempfile
import unittest

import jsonschema
import kubernetes_validate
import seccomp
import yaml
from common import CHART, DASHBOARD, KUBERNETES, MANIFEST, RULES, agent, documents, of_kind, read, settings

RECLAIM_UNIT = "packaging/isotherm-reclaim.service"
AGENT_UNIT = "packaging/isotherm-agent.service"
# Settings that the two units need not share.
OF_ONE_UNIT = {
    *("Description", "After", "ExecStart", "ExecReload", "EnvironmentFile", "TimeoutStopSec"),
    *("RuntimeDirectory", "ReadWritePaths"),
}
# Maximum exposure by `systemd-analyze security`, in tenths, as for the other unit.
EXPOSURE = 25
# Metrics of node_exporter.
FOREIGN_METRICS = {"node_textfile_mtime_seconds"}
# The version of systemd that has expanded the sets of the profile.
SYSTEMD = "252"


def section(text, heading):
    """A section of a page, without its heading."""
    return re.split(r"^#+ .*$", text.split(f"\n{heading}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def required_capabilities():
    """The capabilities that the page of permissions requires for watching all processes."""
    table = section(read("docs/reference/permissions.md"), "## Capabilities")
    return re.findall(r"^\| `CAP_(\w+)` \|", table, re.MULTILINE)


def documented_metrics():
    """The metrics in the page of metrics. A row may have several, and the later ones may be suffixes."""
    names = set()
    for row in re.findall(r"^\| (`isotherm_.*?) \|", read("docs/abi/testing/metrics.md"), re.MULTILINE):
        first, *others = re.findall(r"`(\w+)`", row)
        names.add(first)
        stem = next(
            (s for s in ("isotherm_cgroup", "isotherm_process", "isotherm_scheme") if first.startswith(s)), ""
        )
        names.update(stem + other if other.startswith("_") else other for other in others)
    return names


def documented_ages():
    row = re.search(r"^\| `isotherm_idle_bytes` .*?: ([\d, ]+?)\.", read("docs/abi/testing/metrics.md"), re.MULTILINE)
    return set(row[1].split(", "))


def without_strings(expression):
    return re.sub(r'"[^"]*"', '""', expression)


def metrics_in(expression):
    """The names of metrics in an expression of PromQL."""
    return set(re.findall(r"\b(?:isotherm|node)_\w+", without_strings(expression)))


def dashboard():
    return json.loads(DASHBOARD.read_text())


def panels():
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def queries():
    """The expressions of the dashboard, with values in place of its variables."""
    for panel in panels():
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", "5m")
            yield re.sub(r"\$\w+", ".*", expression)


def rules():
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def expressions():
    return [*queries(), *(rule["expr"] for rule in rules())]


def promtool(*args):
    done = subprocess.run(["promtool", *args], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def leaves(value, path=()):
    """The paths of all values that are not mappings with keys."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    else:
        yield path


class Kubernetes(unittest.TestCase):
    def setUp(self):
        self.documents = documents(MANIFEST.read_text())
        self.pod, self.agent = agent(self.documents)
        self.context = self.agent["securityContext"]

    def test_manifest_has_the_schema(self):
        for version in KUBERNETES:
            for document in self.documents:
                kubernetes_validate.validate(document, version, strict=True)
            wrong = json.loads(json.dumps(of_kind("DaemonSet", self.documents)))
            wrong["spec"]["template"]["spec"]["hostPid"] = True
            with self.assertRaises(kubernetes_validate.ValidationError):
                kubernetes_validate.validate(wrong, version, strict=True)

    def test_capabilities_are_those_of_the_documentation(self):
        required = required_capabilities()
        self.assertEqual(len(required), 4)
        self.assertEqual(self.context["capabilities"], {"drop": ["ALL"], "add": required})
        for unit in [AGENT_UNIT, RECLAIM_UNIT]:
            (bounding,) = settings(read(unit))["CapabilityBoundingSet"]
            self.assertEqual(bounding.split(), [f"CAP_{name}" for name in required], unit)

    def test_pod_is_confined(self):
        self.assertTrue(self.pod["hostPID"])
        self.assertNotIn("hostNetwork", self.pod)
        self.assertFalse(self.pod["automountServiceAccountToken"])
        self.assertEqual(self.context["seccompProfile"]["type"], "Localhost")
        for container in [self.agent, *self.pod["initContainers"]]:
            context = container["securityContext"]
            self.assertTrue(context["readOnlyRootFilesystem"])
            self.assertFalse(context["allowPrivilegeEscalation"])
            self.assertFalse(context.get("privileged", False))
            self.assertIn("memory", container["resources"]["limits"])
        writable = {m["mountPath"] for m in self.agent["volumeMounts"] if not m.get("readOnly")}
        self.assertEqual(writable, {"/lake", "/run/isotherm"})

    def test_agent_reads_the_names_of_images_and_no_socket(self):
        mounts = {mount["mountPath"]: mount.get("readOnly", False) for mount in self.agent["volumeMounts"]}
        program = read("crates/isotherm/src/agent/names.rs")
        for folder in ["/var/log/containers", "/run/containerd/runc/k8s.io", "/run/crun", "/run/runc"]:
            self.assertIn(f'"{folder[1:]}"', program)
            self.assertTrue(mounts[folder], folder)
        # Who may send requests to a runtime controls the node, also by a mount that is read-only.
        for socket in ["/run/containerd/containerd.sock", "/run/crio/crio.sock", "/run/docker.sock"]:
            above = [folder for folder in mounts if socket.startswith(f"{folder.rstrip('/')}/")]
            self.assertEqual(above, [], socket)

    def test_idle_ages_outlive_the_pod(self):
        (mount,) = [m for m in self.agent["volumeMounts"] if m["mountPath"] == "/run/isotherm"]
        (volume,) = [v for v in self.pod["volumes"] if v["name"] == mount["name"]]
        # The agent leaves up to 64 MiB beside its control socket.
        self.assertEqual(volume["hostPath"], {"path": "/run/isotherm-isotherm", "type": "DirectoryOrCreate"})

    def test_agent_writes_the_lake_in_the_name_of_the_node(self):
        args = self.agent["args"]
        self.assertEqual(self.agent["command"], ["/usr/bin/isotherm"])
        self.assertEqual(args[:3], ["agent", "--lake", "/lake"])
        self.assertEqual(args[args.index("--host") + 1], "$(NODE_NAME)")
        self.assertEqual(self.agent["env"][0]["valueFrom"]["fieldRef"]["fieldPath"], "spec.nodeName")
        # The default path of the control socket: the probe finds it there.
        self.assertEqual(self.agent["livenessProbe"]["exec"]["command"][1:], ["service", "status"])

    def test_options_exist(self):
        page = read("docs/reference/options.md")
        if "\n## isotherm agent\n" not in page:
            self.skipTest("docs/reference/options.md has no isotherm agent")
        known = set(re.findall(r"`(--[a-z-]+)", section(page, "## isotherm agent")))
        templates = read(CHART / "templates/daemonset.yaml")
        used = set(re.findall(r"^ *- (--[a-z-]+)$", templates, re.MULTILINE))
        used |= set(re.findall(r"(?<=[ =])--[a-z-]+", read("packaging/agent.env") + read(AGENT_UNIT)))
        self.assertGreater(len(used), 5)
        self.assertLessEqual(used, known)


class Chart(unittest.TestCase):
    def test_values_have_the_schema(self):
        schema = json.loads(read(CHART / "values.schema.json"))
        jsonschema.Draft7Validator.check_schema(schema)
        values = yaml.safe_load(read(CHART / "values.yaml"))
        jsonschema.validate(values, schema)
        for example in CHART.glob("ci/*.yaml"):
            given = yaml.safe_load(example.read_text())
            unknown = {path[0] for path in leaves(given)} - set(values)
            self.assertFalse(unknown, example)

    def test_schema_describes_every_value(self):
        schema = json.loads(read(CHART / "values.schema.json"))
        for path in leaves(yaml.safe_load(read(CHART / "values.yaml"))):
            part = schema
            for key in path:
                if "properties" not in part:
                    break
                self.assertIn(key, part["properties"], path)
                part = part["properties"][key]
                self.assertTrue(part["description"], path)

    def test_templates_use_every_value(self):
        templates = "".join(read(file) for file in CHART.glob("templates/*"))
        for path in leaves(yaml.safe_load(read(CHART / "values.yaml"))):
            self.assertRegex(templates, rf"\.{path[-1]}\b|\.{path[0]}\b(?=[ \)}}])", path)

    def test_version_is_that_of_the_program(self):
        version = re.search(r'^version = "(.*)"$', read("Cargo.toml"), re.MULTILINE)[1]
        chart = yaml.safe_load(read(CHART / "Chart.yaml"))
        self.assertEqual((chart["version"], chart["appVersion"]), (version, version))


class Seccomp(unittest.TestCase):
    def setUp(self):
        self.profile = json.loads(read(CHART / "files/seccomp.json"))

    def test_profile_permits_the_calls_of_the_unit(self):
        version = seccomp.analyzed("--version").split()[1]
        if not version.startswith(SYSTEMD):
            self.skipTest(f"systemd {version} has other sets of system calls than {SYSTEMD}")
        self.assertEqual(self.profile, seccomp.profile(seccomp.permitted(read(AGENT_UNIT))))

    def test_both_units_permit_the_same_calls(self):
        filters = [settings(read(unit))["SystemCallFilter"] for unit in (AGENT_UNIT, RECLAIM_UNIT)]
        self.assertEqual(*filters)

    def test_profile_is_strict(self):
        calls = {name for rule in self.profile["syscalls"] for name in rule["names"]}
        self.assertLessEqual({"bpf", "perf_event_open", "process_madvise", "pidfd_open", "execve"}, calls)
        refused = ["ptrace", "process_vm_readv", "process_vm_writev", "mount", "swapon", "setuid", "chown"]
        refused += ["unshare", "setns", "userfaultfd", "io_uring_setup", "mknod"]
        self.assertFalse(calls.intersection(refused))
        self.assertEqual(self.profile["defaultAction"], "SCMP_ACT_ERRNO")

    def test_manifest_has_the_profile(self):
        manifest = documents(MANIFEST.read_text())
        text = of_kind("ConfigMap", manifest)["data"]["profile.json"]
        self.assertEqual(json.loads(text), self.profile)
        # Without a new checksum, running pods would keep the earlier profile.
        pod = of_kind("DaemonSet", manifest)["spec"]["template"]
        found = pod["metadata"]["annotations"]["checksum/seccomp"]
        expected = hashlib.sha256(read(CHART / "files/seccomp.json").encode()).hexdigest()
        self.assertEqual(found, expected, "run fleet/check --update")


class Units(unittest.TestCase):
    def test_both_are_hardened_alike(self):
        of_agent, of_reclaim = settings(read(AGENT_UNIT)), settings(read(RECLAIM_UNIT))
        for name in of_agent.keys() | of_reclaim.keys():
            if name not in OF_ONE_UNIT:
                self.assertEqual(of_agent.get(name), of_reclaim.get(name), name)

    def test_agent_is_hardly_exposed(self):
        command = ["systemd-analyze", "security", "--offline=true", "--no-pager", f"--threshold={EXPOSURE}"]
        done = subprocess.run([*command, AGENT_UNIT], cwd=CHART.parents[2], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("Overall exposure level", done.stdout)

    def test_bucket_permits_only_the_network(self):
        permitted = settings(read("packaging/isotherm-agent-s3.conf"))
        self.assertEqual(
            set(permitted), {"After", "Wants", "PrivateNetwork", "RestrictAddressFamilies", "IPAddressDeny"}
        )


class Metrics(unittest.TestCase):
    def test_all_exist(self):
        known = documented_metrics()
        self.assertGreater(len(known), 30)
        for expression in expressions():
            used = metrics_in(expression)
            self.assertTrue(used, expression)
            self.assertLessEqual(used, known | FOREIGN_METRICS, expression)
        for variable in dashboard()["templating"]["list"]:
            if variable["type"] == "query":
                self.assertLessEqual(metrics_in(variable["definition"]), known)

    def test_ages_exist(self):
        known = documented_ages()
        self.assertEqual(len(known), 10)
        for expression in expressions():
            for ages in re.findall(r'\bage=~?"([\d|]+)"', expression):
                self.assertLessEqual(set(ages.split("|")), known, expression)
            if re.search(r"_(idle_bytes|returned_bytes_total)\b", expression):
                self.assertRegex(expression, r"\bage=", "without an age, the sum counts memory several times")


class Alerts(unittest.TestCase):
    def test_rules_are_valid(self):
        code, output = promtool("check", "rules", str(RULES))
        self.assertEqual(code, 0, output)
        # Beyond the rules themselves: duplicates, for example, are only warnings.
        self.assertIn("SUCCESS", output)

    def test_rules_fire_when_they_must(self):
        code, output = promtool("test", "rules", str(RULES.with_name("isotherm.test.yaml")))
        self.assertEqual(code, 0, output)

    def test_every_alert_has_a_test(self):
        tests = yaml.safe_load(RULES.with_name("isotherm.test.yaml").read_text())["tests"]
        firing = {rule["alertname"] for test in tests for rule in test["alert_rule_test"] if rule["exp_alerts"]}
        self.assertEqual(firing, {rule["alert"] for rule in rules()})

    def test_every_alert_is_documented(self):
        table = section(read("docs/start/roll-out.md"), "## Alerts")
        self.assertEqual(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE), [rule["alert"] for rule in rules()])


class Dashboard(unittest.TestCase):
    def test_queries_are_valid(self):
        queried = [{"record": f"query:{i}", "expr": expression} for i, expression in enumerate(queries())]
        self.assertGreater(len(queried), 20)
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump({"groups": [{"name": "dashboard", "rules": queried}]}, file)
            file.flush()
            code, output = promtool("check", "rules", file.name)
        self.assertEqual(code, 0, output)

    def test_panels_say_what_they_show(self):
        for panel in panels():
            self.assertTrue(panel["title"] and panel["description"].endswith("."), panel["title"])
            self.assertTrue(panel["fieldConfig"]["defaults"]["unit"], panel["title"])
            self.assertTrue(all("$instance" in target["expr"] for target in panel["targets"]), panel["title"])

    def test_panels_do_not_overlap(self):
        taken = {}
        for panel in dashboard()["panels"]:
            at = panel["gridPos"]
            for x in range(at["x"], at["x"] + at["w"]):
                for y in range(at["y"], at["y"] + at["h"]):
                    self.assertIsNone(taken.setdefault((x, y), None), panel["title"])
                    self.assertLess(x, 24)
                    taken[x, y] = panel["title"]
        ids = [panel["id"] for panel in dashboard()["panels"]]
        self.assertEqual(len(ids), len(set(ids)))


class DebianPackage(unittest.TestCase):
    def test_agent_is_in_it(self):
        deb = read("packaging/deb")
        for file in ["isotherm-agent.service", "isotherm-agent-s3.conf", "agent.env"]:
            self.assertIn(file, deb)
        for script in ["postinst", "prerm"]:
            self.assertIn("isotherm-agent.service", read(f"packaging/debian/{script}"))


if __name__ == "__main__":
    unittest.main()
