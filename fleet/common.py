"""What the tests of the files for a fleet share."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
FLEET = ROOT / "fleet"
CHART = FLEET / "helm/isotherm"
MANIFEST = FLEET / "kubernetes/daemonset.yaml"
DASHBOARD = FLEET / "grafana/isotherm.json"
RULES = FLEET / "alerts/isotherm.rules.yaml"
# The oldest Kubernetes that the chart supports, and the newest whose schema is installed.
KUBERNETES = ["1.30", "1.37"]


def read(path):
    return (ROOT / path).read_text()


def of_kind(kind, documents):
    """The only document of this kind."""
    (found,) = [document for document in documents if document["kind"] == kind]
    return found


def agent(documents):
    """The container of the agent."""
    pod = of_kind("DaemonSet", documents)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    return pod, container


def settings(unit):
    """The settings of a unit: the values of each name, in order."""
    settings = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", unit, re.MULTILINE):
        settings.setdefault(name, []).append(value)
    return settings


def documents(text):
    return [document for document in yaml.safe_load_all(text) if document]
