#!/usr/bin/env python3
"""Tests of the chart with helm and kubeconform, and of the dashboard with Grafana's schema: `fleet/check --all`."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from importlib import resources
from pathlib import Path

import yaml
from common import CHART, DASHBOARD, KUBERNETES, MANIFEST, agent, documents, of_kind

HELM, KUBECONFORM, DASHBOARD_CHECK = (os.environ[name] for name in ("HELM", "KUBECONFORM", "DASHBOARD_CHECK"))
EXAMPLES = sorted(CHART.glob("ci/*.yaml"))
HEADER = "# Made from the chart by `fleet/check --update`. docs/start/roll-out.md has the steps.\n"


def run(*command):
    return subprocess.run(command, capture_output=True, text=True)


def template(*options, version=KUBERNETES[-1]):
    return run(HELM, "template", "isotherm", CHART, "--namespace", "isotherm", "--kube-version", version, *options)


def rendered(*options, version=KUBERNETES[-1]):
    done = template(*options, version=version)
    assert done.returncode == 0, done.stderr
    return done.stdout


def manifest():
    """The chart with its defaults, in its namespace. Pods that see the machine require its label."""
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "isotherm", "labels": {"pod-security.kubernetes.io/enforce": "privileged"}},
    }
    return f"{HEADER}---\n{yaml.safe_dump(namespace, sort_keys=False)}{rendered()}"


def schemas(folder, version):
    """The schemas of kubernetes-validate, each with all definitions inside, as kubeconform requires."""
    packed = resources.files("kubernetes_validate") / f"kubernetes-json-schema/v{version}.0-local-strict"
    definitions = json.loads((packed / "_definitions.json").read_text())["$defs"]
    for name in ["daemonset-apps-v1", "serviceaccount-v1", "configmap-v1", "namespace-v1"]:
        text = (packed / f"{name}.json").read_text().replace("/api/_definitions.json#", "#")
        schema = json.loads(text)
        schema.pop("$id", None)
        schema["$defs"] = definitions
        (folder / f"{name}.json").write_text(json.dumps(schema))
    return f"{folder}/{{{{ .ResourceKind }}}}{{{{ .KindSuffix }}}}.json"


class Chart(unittest.TestCase):
    def test_lint(self):
        for options in [[], *(["-f", example] for example in EXAMPLES)]:
            done = run(HELM, "lint", "--strict", CHART, *options)
            self.assertEqual(done.returncode, 0, done.stdout)

    def test_kubernetes_accepts_all_examples(self):
        for version in KUBERNETES:
            with tempfile.TemporaryDirectory() as folder:
                location = schemas(Path(folder), version)
                texts = [manifest(), *(rendered("-f", example, version=version) for example in EXAMPLES)]

                def conforms(text):
                    command = [KUBECONFORM, "-strict", "-summary", "-schema-location", location]
                    return subprocess.run(command, input=text, capture_output=True, text=True)

                for text in texts:
                    done = conforms(text)
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                    self.assertIn("Skipped: 0", done.stdout)
                wrong = conforms(texts[0].replace("hostPID: true", "hostPid: true"))
                self.assertNotEqual(wrong.returncode, 0, "a wrong name is accepted")

    def test_manifest_is_the_rendered_chart(self):
        self.assertEqual(MANIFEST.read_text(), manifest(), "run fleet/check --update")

    def test_wrong_values_are_refused(self):
        for value in [
            "lake.type=nfs",
            "lake.type=s3",
            "lake.hostPath.path=lake",
            "lake.hostPath.keep=30",
            "lake.hostPath.keepSize=1GB",
            "seccomp.type=None",
            "maxUnavailable=-1",
            "nameDirectories[0]=pods",
            "nosuch=1",
        ]:
            self.assertNotEqual(template("--set", value).returncode, 0, value)

    def test_bucket(self):
        pod, container = agent(documents(rendered("-f", CHART / "ci/s3.yaml")))
        args = " ".join(container["args"])
        self.assertIn("--lake s3://memory/isotherm --host $(NODE_NAME) --spool /spool", args)
        self.assertIn("--metrics /metrics/isotherm.prom --budget 0.5%", args)
        self.assertNotIn("--keep", args)
        secret = {"name": "isotherm-s3", "key": "AWS_SECRET_ACCESS_KEY"}
        variables = {variable["name"]: variable for variable in container["env"]}
        self.assertEqual(variables["AWS_SECRET_ACCESS_KEY"]["valueFrom"]["secretKeyRef"], secret)
        self.assertEqual(variables["AWS_REGION"]["value"], "eu-central-1")
        self.assertNotIn("AWS_ALLOW_HTTP", variables)
        plain = rendered("-f", CHART / "ci/s3.yaml", "--set", "lake.s3.endpoint=http://minio:9000")
        _, container = agent(documents(plain))
        self.assertIn({"name": "AWS_ALLOW_HTTP", "value": "true"}, container["env"])
        # The profile is there already.
        self.assertNotIn("initContainers", pod)
        self.assertEqual(container["securityContext"]["seccompProfile"]["type"], "Localhost")

    def test_without_profile(self):
        found = documents(rendered("-f", CHART / "ci/unconfined.yaml"))
        pod, container = agent(found)
        self.assertEqual(container["securityContext"]["seccompProfile"], {"type": "Unconfined"})
        self.assertNotIn("appArmorProfile", container["securityContext"])
        self.assertNotIn("initContainers", pod)
        self.assertEqual({document["kind"] for document in found}, {"ServiceAccount", "DaemonSet"})

    def test_every_mount_has_its_volume(self):
        for example in [None, *EXAMPLES]:
            pod, _ = agent(documents(rendered(*(["-f", example] if example else []))))
            containers = pod["containers"] + pod.get("initContainers", [])
            mounted = {mount["name"] for container in containers for mount in container["volumeMounts"]}
            self.assertEqual(mounted, {volume["name"] for volume in pod["volumes"]}, example)

    def test_names_of_another_release(self):
        done = run(HELM, "template", "b" * 53, CHART, "--kube-version", KUBERNETES[-1])
        name = of_kind("DaemonSet", documents(done.stdout))["metadata"]["name"]
        self.assertLessEqual(len(name), 63)


class Grafana(unittest.TestCase):
    def test_dashboard_has_the_schema(self):
        done = run(DASHBOARD_CHECK, DASHBOARD)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_wrong_dashboard_is_refused(self):
        dashboard = json.loads(DASHBOARD.read_text())
        dashboard["panels"][1]["options"]["nosuch"] = 1
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(dashboard, file)
            file.flush()
            self.assertNotEqual(run(DASHBOARD_CHECK, file.name).returncode, 0)


if __name__ == "__main__":
    if sys.argv[1:] == ["--update"]:
        MANIFEST.write_text(manifest())
    else:
        unittest.main()
