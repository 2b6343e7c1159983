"""Writes what is made from the Helm chart and from the code: ``python -m tools.chart``.

- ``deploy/chart/values.schema.json``: the shape of ``values.yaml``, and the settings of portal and agent from the code.
- ``deploy/chart/files/numbers.json``: the limits of the portal's settings that are numbers. JSON Schema has limits for
  numbers only, and settings are texts, so a template compares them and says what the setting accepts.
- The Grafana dashboards of the chart, from ``deploy/dashboards.yaml``.
- The plain manifests of ``deploy/``: the chart with the values of ``deploy/manifests.yaml``.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import helm_python
import yaml

from agents import config
from kcover_portal.config import env, setting_values

ROOT = Path(__file__).resolve().parents[1]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "chart"
SCHEMA = CHART / "values.schema.json"
NUMBERS = CHART / "files" / "numbers.json"
RELEASE, NAMESPACE = "kcover", "kcover-system"
HEADER = "# Rendered from deploy/chart by `make manifests`, with the values of deploy/manifests.yaml.\n"
PLAIN = (
    "action-lease.yaml",
    "agent/daemonset.yaml",
    "job-change-policy.yaml",
    "node-change-policy.yaml",
    "kubelet-policy.yaml",
    "pair-test-policy.yaml",
    "machines.yaml",
    "pod-logs.yaml",
    *(f"portal/{name}.yaml" for name in ("accounts", "engine", "frontends", "network", "portal")),
    "rbac.yaml",
    "reboot-job-policy.yaml",
)
GRID_COLUMNS = 24  # of a Grafana dashboard
PANEL_SIZES = {"stat": (6, 4), "timeseries": (12, 8)}  # columns and rows
# Agent settings that have a value of their own in the chart.
AGENT_KEYS = {"NODE_NAME", "KCOVER_AGENT_URL", "KCOVER_AGENT_CLUSTER", "KCOVER_AGENT_VENDOR"}
AGENT_KEYS |= {"KCOVER_AGENT_TOKEN", "KCOVER_AGENT_TOKEN_FILE", "KCOVER_AGENT_CA_FILE"}

# Keys of kcover's and Autopilot's charts, which templates/other-keys.yaml answers with the keys of this one.
OTHERS_KEYS = ("controller", "namespace", "repeat", "PCIeBW", "annotations")

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
NAME: Schema = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"}
NAME_OR_NONE: Schema = {"type": "string", "pattern": "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$"}
DEVICES: Schema = {
    "type": "array",
    "minItems": 1,
    "items": {"type": "string", "pattern": "^[a-z0-9.-]+/[A-Za-z0-9._-]*$"},
}
NAMES: Schema = {"type": "array", "items": NAME}
ANY_TEXTS: Schema = {"type": "object", "additionalProperties": TEXT}
# resource.Quantity of Kubernetes, such as 100m, 1.5, 1e9 or 2Gi.
QUANTITY: Schema = {
    "type": ["string", "number"],
    "pattern": r"^[+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+|n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$",
}
QUANTITIES: Schema = {"type": "object", "additionalProperties": QUANTITY}
ANY_OBJECTS: Schema = {"type": "array", "items": {"type": "object"}}
NAMED_OBJECTS: Schema = {"type": "array", "items": {"type": "object", "required": ["name"]}}
ID: Schema = {"type": ["integer", "null"], "minimum": 1}  # no process runs as root
POD_SECURITY: Schema = {
    "type": "object",
    "properties": dict.fromkeys(("runAsUser", "runAsGroup", "fsGroup"), ID) | {"runAsNonRoot": {"const": True}},
}
DURATION: Schema = {"type": "string", "pattern": "^[0-9]+(s|m)$"}


def closed(properties: Mapping[str, Schema]) -> Schema:
    """The schema of an object that has these keys and no others."""
    return {"type": "object", "additionalProperties": False, "properties": dict(properties)}


def portal_settings() -> Schema:
    """The settings of the portal that are no secrets."""
    found = {}
    for one in env.VARIABLES:
        if not one.secret:
            found[one.name] = setting(one) | {"description": f"{one.about} ({one.accepts})"}
    return closed(found)


def setting(one: setting_values.Variable) -> Schema:
    """The schema of a text that this setting reads. An empty text is its default."""
    if isinstance(one.read, setting_values.Choice):
        return {"enum": [*one.read.texts, ""]}
    if one.read is setting_values.switch:
        return {"enum": ["true", "false", ""]}
    if one.read is setting_values.site:
        return TEXT | {"pattern": "^(https?://[^/?#]+/?)?$"}
    return TEXT


def numbers() -> str:
    """The text of ``files/numbers.json``."""
    made = {
        one.name: {"least": one.read.least, "most": one.read.most}
        for one in env.VARIABLES
        if isinstance(one.read, setting_values.Count)
    }
    return json.dumps(made, indent=1) + "\n"


def agent_settings() -> Schema:
    """The settings of the agent that have no value of their own."""
    names = {name for names, _ in config.SETTINGS.values() for name in names if name.startswith("KCOVER_")}
    # The probe asks at this address.
    limited = {"KCOVER_AGENT_LISTEN": TEXT | {"pattern": "^(none|.+:[0-9]{1,5})?$"}}
    return closed(dict.fromkeys(sorted(names - AGENT_KEYS), TEXT) | limited)


def special() -> dict[str, Schema]:
    """Values by path whose schema says more than the type of the default; ``*`` stands for any key."""
    return {
        "host": NAME_OR_NONE,
        "cluster": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]*$"},
        "nameOverride": {"type": "string", "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$"},
        "placement": {"enum": ["preferred", "required", "any"]},
        "settings": portal_settings(),
        "secret.settings": {"type": "array", "items": {"enum": [one.name for one in env.VARIABLES if one.secret]}},
        "pullSecrets.imagePullSecretData": {"type": "string", "pattern": "^[A-Za-z0-9+/]*={0,2}$"},
        "imagePullSecrets": NAMES,
        "ingress.annotations": ANY_TEXTS,
        "gateway.parentRefs": {"type": "array", "items": {"type": "object", "required": ["name"]}},
        "networkPolicy.storePorts": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 65535}},
        "features.podLogs": NAMES,
        "features.pairTestDevices": DEVICES,
        "statusPort.namespace": NAME_OR_NONE,
        "statusPort.tokenSecret": NAME_OR_NONE,
        "statusPort.fromNamespaces": NAMES,
        "statusPort.names": NAMES,
        "namespaces.work": NAMES,
        "agent.url": {"type": "string", "pattern": "^(https?://.+)?$"},
        "agent.vendor": {"enum": ["nvidia", "metax", "amd", ""]},
        "agent.config.data": {"type": "object"},
        "agent.config.existingConfigMap": NAME_OR_NONE,
        "agent.config.path": {"type": "string", "pattern": "^(/[A-Za-z0-9._-]+){2,}$"},
        "agent.settings": agent_settings(),
        "*.replicas": {"type": "integer", "minimum": 1},
        "*.pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
        "*.digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
        "*.claim": NAME_OR_NONE,
        "pullSecrets.name": NAME_OR_NONE,
        "ca.configMap": NAME_OR_NONE,
        "ca.secret": NAME_OR_NONE,
        "*.nodeSelector": ANY_TEXTS,
        "*.affinity": {"type": "object"},
        "*.tolerations": ANY_OBJECTS,
        "*.podAnnotations": ANY_TEXTS,
        "*.serviceAccountAnnotations": ANY_TEXTS,
        "*.podSecurityContext": POD_SECURITY,
        "*.extraEnv": NAMED_OBJECTS,
        "*.extraVolumes": NAMED_OBJECTS,
        "*.extraVolumeMounts": NAMED_OBJECTS,
        "postgresql.storage.size": QUANTITY,
        "*.resources": closed({"requests": QUANTITIES, "limits": QUANTITIES}),
        "*.labels": ANY_TEXTS,
        "*.interval": DURATION,
        "*.ingressNamespaces": NAMES,
        "*.monitoringNamespaces": NAMES,
        "jobs.name": NAME,
        "namespaces.*.name": NAME,
    }


def schema_of(value: Any, path: str = "") -> Schema:
    """The schema of a default of ``values.yaml``: the same keys with the same types."""
    known = special()
    parts = path.split(".")
    for key in (path, f"*.{parts[-1]}", ".".join(["namespaces", "*", parts[-1]]) if parts[0] == "namespaces" else ""):
        if key in known:
            return known[key]
    if isinstance(value, dict):
        return closed({key: schema_of(one, f"{path}.{key}".lstrip(".")) for key, one in value.items()})
    if isinstance(value, bool):
        return {"type": "boolean"}
    if isinstance(value, str):
        return TEXT
    raise TypeError(f"deploy/chart/values.yaml: {path} needs an entry in tools/chart.py, special()")


def schema() -> str:
    """The text of ``values.schema.json``."""
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    made = {"$schema": "https://json-schema.org/draft-07/schema#", **schema_of(values)}
    made["properties"] |= {key: {"description": "answered with what replaces it"} for key in OTHERS_KEYS}
    made["properties"]["global"] = {"type": "object"}  # Helm's own
    return json.dumps(made, indent=1) + "\n"


def manifests() -> Iterator[tuple[Path, str]]:
    """Each plain manifest: its file, and its text."""
    values = yaml.safe_load((DEPLOY / "manifests.yaml").read_text(encoding="utf-8"))
    with helm_python.Chart.load(CHART) as chart:
        rendered = chart.render(values, name=RELEASE, namespace=NAMESPACE)
        for name in PLAIN:
            yield DEPLOY / name, HEADER + tidy(rendered[f"{chart.name}/templates/{name}"])


def dashboards() -> Iterator[tuple[Path, str]]:
    """Each Grafana dashboard: its file, and its text."""
    written = yaml.safe_load((DEPLOY / "dashboards.yaml").read_text(encoding="utf-8"))
    for uid, dashboard in written.items():
        yield (
            CHART / "files" / "dashboards" / f"{uid}.json",
            json.dumps(dashboard_of(uid, **dashboard), indent=1) + "\n",
        )


def dashboard_of(uid: str, *, title: str, panels: list[dict[str, Any]]) -> dict[str, Any]:
    """A dashboard in Grafana's JSON model: four numbers a row, then two graphs a row."""
    source = {"type": "prometheus", "uid": "${datasource}"}
    made: list[dict[str, Any]] = []
    x, y, row_height = 0, 0, 0
    for number, panel in enumerate(panels, start=1):
        width, height = PANEL_SIZES[panel["type"]]
        if x + width > GRID_COLUMNS or row_height not in (0, height):
            x, y = 0, y + row_height
        queries = [
            {"refId": chr(ord("A") + index), "expr": query, "legendFormat": legend, "datasource": source}
            for index, (legend, query) in enumerate(panel["queries"].items())
        ]
        made.append(
            {
                "id": number,
                "type": panel["type"],
                "title": panel["title"],
                "datasource": source,
                "gridPos": {"x": x, "y": y, "w": width, "h": height},
                "fieldConfig": {"defaults": {"unit": panel["unit"]}, "overrides": []},
                "targets": queries,
            }
        )
        x, row_height = x + width, height
    choices = [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
        {
            "name": "cluster",
            "type": "query",
            "label": "Cluster",
            "datasource": source,
            "query": {"query": "label_values(kcover_nodes, cluster)", "refId": "clusters"},
            "refresh": 2,
            "includeAll": True,
            "allValue": ".*",
            "multi": True,
            "current": {"text": "All", "value": "$__all"},
        },
    ]
    return {
        "uid": uid,
        "title": title,
        "tags": ["kcover"],
        "schemaVersion": 39,
        "timezone": "browser",
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": choices},
        "panels": made,
    }


def tidy(text: str) -> str:
    """The text without what templates leave behind: empty lines, and spaces at the end of lines."""
    lines = [line.rstrip() for line in text.splitlines()]
    return re.sub(r"\n{2,}", "\n", "\n".join(lines)).strip("\n").removeprefix("---\n") + "\n"


def main() -> None:
    """Write the files, the schema first: Helm checks the values with it."""
    SCHEMA.write_text(schema(), encoding="utf-8")
    NUMBERS.write_text(numbers(), encoding="utf-8")
    for path, text in (*dashboards(), *manifests()):
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
