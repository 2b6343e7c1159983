"""Makes a kubeconfig independent of its machine: one context, with the files that it refers to embedded."""

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from kcover import reasons
from kcover_portal.fleet.services import kubeconfig_yaml
from kcover_portal.kube import kubeconfig_rules

MAX_BYTES = 1024 * 1024
MAX_NAMES = 20  # contexts that an error names
LOOPBACK = ("localhost", "127.0.0.1", "::1")
# key with a path -> key with the base64 content, as in kubectl
CLUSTER_FILES = {"certificate-authority": "certificate-authority-data"}
USER_FILES = {"client-certificate": "client-certificate-data", "client-key": "client-key-data"}
# What a pasted kubeconfig may contain. Everything else could make a process run a program or read a file.
PASTED_CLUSTER = (
    *("server", "certificate-authority-data", "insecure-skip-tls-verify", "tls-server-name", "disable-compression"),
)
PASTED_USER = ("token", "client-certificate-data", "client-key-data")
SWITCHES: Final = ("insecure-skip-tls-verify", "disable-compression")
VISIBLE: Final = re.compile(r"[\x21-\x7e]+")  # what a header can carry: no line break at the end, no other script
# Nothing that could be a credential: the address of a pasted kubeconfig is in the audit log.
SERVER: Final = re.compile(r"https?://[\x21-\x7e]+")
NO_PART_OF_SERVER: Final = "@?#\\"
MAX_QUOTED = 100
MAX_HOST: Final = 260


class KubeconfigInvalid(reasons.ExplainedError):
    """The kubeconfig cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """One context as YAML text, its name, the server's address, and warnings for the operator."""

    text: str
    context: str
    server: str
    warnings: tuple[reasons.Reason, ...]


def read(path: Path, *, context: str = "") -> Kubeconfig:
    """Reads a context; "" is the file's current one. Raises KubeconfigInvalid."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise _invalid("file_unreadable", file=str(path), error=str(error.strerror)) from error
    content = _parsed(raw)
    name, entry, cluster, user = _chosen(content, context)
    warnings = [*_inline(cluster, CLUSTER_FILES, path), *_inline(user, USER_FILES, path), *_warnings(cluster, user)]
    return _kubeconfig(name, entry, cluster, user, warnings)


def read_pasted(text: str, *, context: str = "") -> Kubeconfig:
    """Reads a context of a text from a page: neither files nor programs, whatever the settings allow.

    The result is marked, so that its server may only have addresses that ``outgoing`` allows. Raises KubeconfigInvalid.
    """
    name, _, cluster, user = _chosen(_parsed(text.encode("utf-8", "replace")), context)
    cluster.pop("extensions", None)
    user.pop("extensions", None)
    for section, given, known in (("cluster", cluster, PASTED_CLUSTER), ("user", user, PASTED_USER)):
        if wrong := next((key for key in given if key not in known and given[key] not in (None, "", [])), None):
            raise _invalid("kubeconfig_key_refused", section=section, key=str(wrong)[:MAX_QUOTED])
    _check_values(cluster, user)
    if not user.get("token") and not (user.get("client-certificate-data") and user.get("client-key-data")):
        raise _invalid("kubeconfig_without_credentials")
    cluster["extensions"] = [{"name": kubeconfig_rules.PASTED, "extension": {}}]
    return _kubeconfig(name, {}, cluster, user, _warnings(cluster, user))


def _check_values(cluster: Mapping[str, Any], user: Mapping[str, Any]) -> None:
    """Raises KubeconfigInvalid for values of a pasted kubeconfig that no call can carry, without quoting them."""
    for key, value in (*cluster.items(), *user.items()):
        # Programs would be text; a mapping here could be a program of a loader. The text "false" is no switch.
        if not isinstance(value, bool if key in SWITCHES else str):
            code = "kubeconfig_switch_not_bool" if key in SWITCHES else "kubeconfig_value_not_text"
            raise _invalid(code, key=str(key)[:MAX_QUOTED])
    for section, key, text in (
        ("user", "token", user.get("token")),
        ("cluster", "tls-server-name", cluster.get("tls-server-name")),
    ):
        if text and not VISIBLE.fullmatch(text):
            raise _invalid("kubeconfig_value_not_visible", section=section, key=key)
    server = cluster["server"]
    if not SERVER.fullmatch(server) or any(mark in server for mark in NO_PART_OF_SERVER):
        raise _invalid("kubeconfig_server_refused")


def _parsed(raw: bytes) -> dict[str, Any]:
    if len(raw) > MAX_BYTES:
        raise _invalid("kubeconfig_too_large", bytes=len(raw), most=MAX_BYTES)
    try:
        content = kubeconfig_yaml.load(raw)
    except kubeconfig_yaml.Refused as error:
        raise _invalid("kubeconfig_yaml_refused", line=error.line) from error
    except kubeconfig_yaml.UNREADABLE as error:
        raise _invalid("kubeconfig_yaml_invalid", error=_place_of(error)) from error
    if not isinstance(content, dict):
        raise _invalid("kubeconfig_other_document")
    return content


def _chosen(content: dict[str, Any], context: str) -> tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Returns the name of a context, the context, its cluster and its user."""
    contexts = _named(content, "contexts", "context")
    names = reasons.named(list(contexts), most=MAX_NAMES)
    chosen = context or content.get("current-context") or (next(iter(contexts)) if len(contexts) == 1 else "")
    if not chosen:
        raise _invalid("kubeconfig_no_context", names=names)
    if not isinstance(chosen, str) or chosen not in contexts:
        raise _invalid("kubeconfig_context_unknown", context=_quoted(chosen), names=names)
    cluster = _entry(content, "clusters", "cluster", contexts[chosen].get("cluster"), chosen)
    user = _entry(content, "users", "user", contexts[chosen].get("user"), chosen)
    server = cluster.get("server")
    if not isinstance(server, str) or not server.startswith(("https://", "http://")):
        raise _invalid("kubeconfig_no_server", context=_quoted(chosen))
    return chosen, contexts[chosen], cluster, user


def _kubeconfig(
    name: str,
    entry: dict[str, Any],
    cluster: dict[str, Any],
    user: dict[str, Any],
    warnings: list[reasons.Reason],
) -> Kubeconfig:
    """``entry``: the context; its names of cluster and user stay."""
    named = {"cluster": entry.get("cluster", name), "user": entry.get("user", name)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": named["cluster"], "cluster": cluster}],
        "contexts": [{"name": name, "context": {**entry, **named}}],
        "users": [{"name": named["user"], "user": user}],
    }
    problem = next(kubeconfig_rules.problems(document), None)
    if problem is not None:
        raise KubeconfigInvalid(problem)
    return Kubeconfig(
        yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False), name, cluster["server"], tuple(warnings)
    )


def server_of(text: str) -> str:
    """Returns the server's address in a text that ``read`` made; "" for no text."""
    document = yaml.load(text, Loader=yaml.CSafeLoader)  # nosec B506
    return str(document["clusters"][0]["cluster"]["server"]) if document else ""


def address_of(text: str, *, context: str) -> str:
    """Returns scheme, host and port of the server in a text that anybody may have written; "" if it has none."""
    try:
        server = urlsplit(_chosen(_parsed(text.encode("utf-8", "replace")), context)[2]["server"])
        host = f"[{server.hostname}]" if ":" in (server.hostname or "") else server.hostname or ""
        return f"{server.scheme}://{host[:MAX_HOST]}" + (f":{server.port}" if server.port else "")
    except (KubeconfigInvalid, ValueError):
        return ""


def _named(content: dict[str, Any], section: str, key: str) -> dict[str, dict[str, Any]]:
    """Returns a section's entries by name."""
    entries = content.get(section)
    if not isinstance(entries, list) or not entries:
        raise _invalid("kubeconfig_section_missing", section=section)
    return {
        entry["name"]: dict(entry.get(key) or {})
        for entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("name"), str) and isinstance(entry.get(key) or {}, dict)
    }


def _entry(content: dict[str, Any], section: str, key: str, name: object, context: str) -> dict[str, Any]:
    entries = _named(content, section, key)
    if not isinstance(name, str) or name not in entries:
        raise _invalid("kubeconfig_reference_missing", context=_quoted(context), kind=key, name=_quoted(name))
    return entries[name]


def _inline(entry: dict[str, Any], files: dict[str, str], path: Path) -> list[reasons.Reason]:
    """Embeds the files that the entry refers to; returns warnings about relative paths."""
    warnings = []
    for key, data_key in files.items():
        named = entry.pop(key, None)
        if named is None or data_key in entry:
            continue
        file = Path(str(named))
        if not file.is_absolute():
            warnings.append(reasons.of("kubeconfig_file_relative", field=key, file=str(named)))
            file = path.parent / file
        try:
            entry[data_key] = base64.b64encode(file.read_bytes()).decode("ascii")
        except OSError as error:
            raise _invalid("file_unreadable", file=f"{key} {file}", error=str(error.strerror)) from error
    return warnings


def _warnings(cluster: dict[str, Any], user: dict[str, Any]) -> list[reasons.Reason]:
    warnings = []
    if isinstance(user.get("exec"), dict):
        warnings.append(reasons.of("kubeconfig_warns_program", program=str(user["exec"].get("command", "?"))))
    if "tokenFile" in user:
        warnings.append(reasons.of("kubeconfig_warns_file", file=str(user["tokenFile"])))
    try:
        server = urlsplit(str(cluster.get("server")))
    except ValueError as error:  # half of an IPv6 address
        raise _invalid("kubeconfig_server_refused") from error
    if server.scheme == "http" and server.hostname not in LOOPBACK:
        warnings.append(reasons.of("kubeconfig_warns_http"))
    if cluster.get("insecure-skip-tls-verify"):
        warnings.append(reasons.of("kubeconfig_warns_unverified"))
    return warnings


def _invalid(code: str, **params: reasons.Value) -> KubeconfigInvalid:
    return KubeconfigInvalid(reasons.of(code, **params))


def _place_of(error: Exception) -> str:
    """The error without the lines around its place, which may be credentials."""
    mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
    return f"line {mark.line + 1}: {problem}" if mark is not None and problem else type(error).__name__


def _quoted(name: object) -> str:
    """The text of a name, cut. Aliases of YAML make other values of a hundred bytes whose text fills the memory."""
    return (
        repr(name[:MAX_QUOTED]) if isinstance(name, str) else repr(name) if name is None else f"({type(name).__name__})"
    )
