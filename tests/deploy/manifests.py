"""deploy/portal, deploy/agent and deploy/rbac.yaml as data."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "portal"


def documents(*files):
    """The documents of the files, by libyaml: each worker reads them when it collects the tests."""
    return [one for file in files for one in yaml.load_all(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)]


MANIFESTS = documents(*sorted(FOLDER.glob("*.yaml")))
RBAC = documents(ROOT / "deploy" / "rbac.yaml")
AGENT = documents(ROOT / "deploy" / "agent" / "daemonset.yaml")
DEPLOYMENTS = {
    one["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/component"]: one["spec"]
    for one in MANIFESTS
    if one["kind"] == "Deployment"
}
PODS = {name: spec["template"]["spec"] for name, spec in DEPLOYMENTS.items()}


def of_kind(kind):
    return [manifest for manifest in MANIFESTS if manifest["kind"] == kind]


def only(found):
    (one,) = found
    return one


def all_containers(pod):
    return [*pod["initContainers"], *pod["containers"]]


SETTINGS = only(of_kind("ConfigMap"))["data"]
INGRESS = only(of_kind("Ingress"))


def given(folder):
    """The ConfigMap's variables with the Secret's files, which are written to a folder here."""
    key = "only-for-tests-8bdfc9d2a4e64fd6a1f8"
    written = {"database_url": "postgres://k:p@db/k", "redis_url": "redis://r/0", "secret_key": key}
    for name, text in written.items():
        (folder / name).write_text(text + "\n")
    mounts = PODS["web"]["containers"][0]["volumeMounts"]
    mounted = only(mount["mountPath"] for mount in mounts if mount.get("readOnly"))
    return {name: re.sub(f"^{mounted}/", f"{folder}/", value) for name, value in SETTINGS.items()}


def options(words):
    """A command's options with their values, and its other words."""
    named, others, words = {}, [], list(words)
    while words:
        word = words.pop(0)
        if word.startswith("-"):
            named[word] = words.pop(0) if words and not words[0].startswith("-") else None
        else:
            others.append(word)
    return named, others
