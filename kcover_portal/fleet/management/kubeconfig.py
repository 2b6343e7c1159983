"""Makes a kubeconfig independent of its machine: one context, with the files that it refers to embedded."""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from kcover_portal.kube import kubeconfig_rules

MAX_BYTES = 1024 * 1024
LOOPBACK = ("localhost", "127.0.0.1", "::1")
# key with a path -> key with the base64 content, as in kubectl
CLUSTER_FILES = {"certificate-authority": "certificate-authority-data"}
USER_FILES = {"client-certificate": "client-certificate-data", "client-key": "client-key-data"}


class KubeconfigInvalid(ValueError):
    """The file cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """One context as YAML text, its name, the server's address, and warnings for the operator."""

    text: str
    context: str
    server: str
    warnings: tuple[str, ...]


def read(path: Path, *, context: str = "") -> Kubeconfig:
    """Reads a context; "" is the file's current one. Raises KubeconfigInvalid."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise KubeconfigInvalid(f"cannot read {path}: {error.strerror}") from error
    if len(raw) > MAX_BYTES:
        raise KubeconfigInvalid(f"{path} has {len(raw)} bytes; the limit is {MAX_BYTES}")
    try:
        content = yaml.safe_load(raw)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise KubeconfigInvalid(f"{path} is not valid YAML: {error}") from error
    if not isinstance(content, dict):
        raise KubeconfigInvalid(f"{path} is not a kubeconfig; clusters, contexts and users are required")
    contexts = _named(content, "contexts", "context")
    chosen = context or content.get("current-context") or (next(iter(contexts)) if len(contexts) == 1 else "")
    if not chosen:
        raise KubeconfigInvalid(f"no current context; choose one of {', '.join(contexts)}")
    if not isinstance(chosen, str) or chosen not in contexts:
        raise KubeconfigInvalid(f"unknown context {chosen!r}; choose one of {', '.join(contexts)}")
    cluster = _entry(content, "clusters", "cluster", contexts[chosen].get("cluster"), chosen)
    user = _entry(content, "users", "user", contexts[chosen].get("user"), chosen)
    server = cluster.get("server")
    if not isinstance(server, str) or not server.startswith(("https://", "http://")):
        raise KubeconfigInvalid(f"the cluster of context {chosen!r} has no server (https://...)")
    warnings = [*_inline(cluster, CLUSTER_FILES, path), *_inline(user, USER_FILES, path), *_warnings(cluster, user)]
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": chosen,
        "clusters": [{"name": contexts[chosen]["cluster"], "cluster": cluster}],
        "contexts": [{"name": chosen, "context": contexts[chosen]}],
        "users": [{"name": contexts[chosen]["user"], "user": user}],
    }
    problem = next(kubeconfig_rules.problems(document), None)
    if problem is not None:
        raise KubeconfigInvalid(f"{path}: {problem}")
    return Kubeconfig(yaml.safe_dump(document, sort_keys=False), chosen, server, tuple(warnings))


def _named(content: dict[str, Any], section: str, key: str) -> dict[str, dict[str, Any]]:
    """Returns a section's entries by name."""
    entries = content.get(section)
    if not isinstance(entries, list) or not entries:
        raise KubeconfigInvalid(f"not a kubeconfig: {section} is missing or empty")
    return {
        entry["name"]: dict(entry.get(key) or {})
        for entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("name"), str) and isinstance(entry.get(key) or {}, dict)
    }


def _entry(content: dict[str, Any], section: str, key: str, name: object, context: str) -> dict[str, Any]:
    entries = _named(content, section, key)
    if not isinstance(name, str) or name not in entries:
        raise KubeconfigInvalid(f"context {context!r} refers to {key} {name!r}, which is not in the file")
    return entries[name]


def _inline(entry: dict[str, Any], files: dict[str, str], path: Path) -> list[str]:
    """Embeds the files that the entry refers to; returns warnings about relative paths."""
    warnings = []
    for key, data_key in files.items():
        named = entry.pop(key, None)
        if named is None or data_key in entry:
            continue
        file = Path(str(named))
        if not file.is_absolute():
            warnings.append(f"{key} {named} is relative; it was read from the kubeconfig's folder")
            file = path.parent / file
        try:
            entry[data_key] = base64.b64encode(file.read_bytes()).decode("ascii")
        except OSError as error:
            raise KubeconfigInvalid(f"cannot read {key} {file}: {error.strerror}") from error
    return warnings


def _warnings(cluster: dict[str, Any], user: dict[str, Any]) -> list[str]:
    warnings = []
    if isinstance(user.get("exec"), dict):
        program = user["exec"].get("command", "?")
        warnings.append(f"the user's credentials come from the program {program}; install it wherever the portal runs")
    if "tokenFile" in user:
        warnings.append(f"the token is read from {user['tokenFile']}; the file must exist wherever the portal runs")
    server = urlsplit(str(cluster.get("server")))
    if server.scheme == "http" and server.hostname not in LOOPBACK:
        warnings.append("the API server is called over plain HTTP: everybody on the way reads and changes the calls")
    if cluster.get("insecure-skip-tls-verify"):
        warnings.append("the API server's certificate is not verified (insecure-skip-tls-verify)")
    return warnings
