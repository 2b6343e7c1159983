"""The Helm chart as data: what it renders for some values."""

import copy
from typing import Any, Final

import helm_python
import yaml

from tools import chart

Manifest = dict[str, Any]

# The fewest values with which the portal can be installed.
LEAST: Final = {"host": "gpu.example.com", "settings": {"KCOVER_TRUSTED_PROXIES": "10.0.0.0/24"}}
TRIAL: Final = {"trial": True}
AGENT_ONLY: Final = {"agent": {"only": True, "url": "https://gpu.example.com"}}
SWITCHES: Final = ("actions", "rebootJob", "rebootJobPolicy", "readEvents", "writeEvents", "agentTokens")
SWITCHES_OF_OBJECTS: Final = (
    "preflightReports",
    "policyObjects",
    "claimCheck",
    "ledgerLease",
    "pairTests",
    "actionLease",
)
KINDS: Final = ("kubeflow", "batch", "leaderWorkerSet", "jobSet", "trainer", "ray", "volcano", "statefulSet")
NOTHING: Final = LEAST | {
    "inCluster": False,
    "ingress": {"enabled": False},
    "networkPolicy": {"enabled": False},
    "podDisruptionBudgets": False,
    "agent": {"enabled": False},
    "features": dict.fromkeys((*SWITCHES, *SWITCHES_OF_OBJECTS), False) | {"jobs": dict.fromkeys(KINDS, False)},
}
EVERYTHING: Final = LEAST | {
    "kubeconfigAccount": {"create": True},
    "namespaces": {"release": {"create": True}},
    "imagePullSecrets": ["pull"],
    "pullSecrets": {"create": True, "name": "registry", "imagePullSecretData": "e30="},
    "ca": {"configMap": "private-ca", "key": "bundle.pem"},
    "postgresql": {"existingSecret": {"name": "postgres", "key": "uri"}},
    "redis": {"existingSecret": {"name": "redis"}},
    "anchor": {"claim": "anchor"},
    "engineSecret": {"name": "engine"},
    "secret": {"settings": ["KCOVER_MAIL_URL", "KCOVER_METRICS_TOKEN"]},
    "tolerations": [{"key": "cpu", "operator": "Exists"}],
    "nodeSelector": {"pool": "system"},
    "podAnnotations": {"example.com/scrape": "false"},
    "serviceAccountAnnotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/kcover"},
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    "extraVolumes": [{"name": "extra", "configMap": {"name": "extra"}}],
    "extraVolumeMounts": [{"name": "extra", "mountPath": "/etc/extra", "readOnly": True}],
    "placement": "required",
    "ingress": {"enabled": False},
    "openshift": {"enabled": True},
    "statusPort": {"enabled": True, "tokenSecret": "status", "fromNamespaces": ["default"]},
    "gateway": {"enabled": True, "parentRefs": [{"name": "public", "namespace": "gateways"}]},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "dashboards": {"enabled": True},
    "prometheusRule": {
        "enabled": True,
        "autopilot": True,
        "labels": {"release": "prometheus"},
        "runbooks": "https://docs.example.com/",
    },
    "features": {"podLogs": ["training", "default"], "nvsentinel": True, "clusterApi": True, "karpenter": True}
    | {"deviceTaints": True, "actionLease": True},
    "agent": {
        "settings": {"KCOVER_AGENT_LISTEN": "0.0.0.0:9412"},
        "podMonitor": {"enabled": True},
        "caConfigMap": "ca",
        "tokenSecret": "enrolment",
        "config": {"data": {"interval": 5}},
        "nodeSelector": {"pool": "gpu"},
        "podAnnotations": {"k8s.v1.cni.cncf.io/networks": "multi-nic"},
        "serviceAccountAnnotations": {"example.com/owner": "gpu"},
        "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
        "extraVolumes": [{"name": "crio", "hostPath": {"path": "/run/crio"}}],
        "extraVolumeMounts": [{"name": "crio", "mountPath": "/run/crio", "readOnly": True}],
    },
}
WHOLES: Final = {
    "default": LEAST,
    "trial": TRIAL,
    "trial-with-a-name": TRIAL | LEAST,
    "agent-only": AGENT_ONLY,
    "edge": AGENT_ONLY | {"kubeconfigAccount": {"create": True}},
    "everything": EVERYTHING,
    "nothing": NOTHING,
}


def texts(values: Manifest, *, name: str = "kcover", namespace: str = "kcover-system") -> dict[str, str]:
    """Each template's text by its path below ``templates/``. Raises HelmError for values that the chart refuses."""
    with helm_python.Chart.load(chart.CHART) as loaded:
        rendered = loaded.render(copy.deepcopy(values), name=name, namespace=namespace)
        return {path.split("/templates/")[1]: text for path, text in rendered.items()}


def render(values: Manifest, *, name: str = "kcover", namespace: str = "kcover-system") -> list[Manifest]:
    """The objects that the chart creates."""
    rendered = texts(values, name=name, namespace=namespace)
    rendered.pop("NOTES.txt")
    found = [one for text in rendered.values() for one in yaml.load_all(text, Loader=yaml.CSafeLoader)]
    return [one for one in found if one]


def of_kind(manifests: list[Manifest], kind: str) -> dict[str, Manifest]:
    """The objects of a kind by their names."""
    return {one["metadata"]["name"]: one for one in manifests if one["kind"] == kind}


def defaults() -> Manifest:
    """``values.yaml``."""
    with helm_python.Chart.load(chart.CHART) as loaded:
        return loaded.values
