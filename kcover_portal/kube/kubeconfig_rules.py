"""Programs and files that a kubeconfig may make the portal run or read: only those in
``KCOVER_KUBECONFIG_COMMANDS``.
"""

import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

import yaml
from django.conf import settings

from kcover import reasons
from kcover_portal.kube import errors

# The extension of a cluster in a kubeconfig that somebody pasted into a page. Its server may only have addresses that
# ``outgoing`` allows, also when a worker calls it later.
PASTED = "kcover.io/pasted"
MAX_QUOTED = 300  # characters
MAX_DEPTH: Final = 32  # lists and mappings in each other; PyYAML takes a second for a thousand
# Keys of users and clusters that name a file of this machine.
FILES = ("tokenFile", "client-certificate", "client-key", "certificate-authority")
# What the portal honours, and what is without effect on how it connects. Others could say where to connect, or as whom.
KNOWN: Final = {
    "clusters": frozenset(
        (
            *("server", "certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify"),
            *("tls-server-name", "proxy-url", "disable-compression", "extensions", "api-version"),
        )
    ),
    "users": frozenset(
        (
            *("token", "tokenFile", "client-certificate", "client-certificate-data", "client-key", "client-key-data"),
            *("username", "password", "exec", "auth-provider", "extensions"),
        )
    ),
}
PROXY: Final = re.compile(r"https?://[\x21-\x7e]{1,1000}")


def check(kubeconfig: str) -> None:
    """Raises RefusedByServer if the text names a program or a file that is not allowed, or is not a kubeconfig."""
    try:
        if _depth(kubeconfig) > MAX_DEPTH:
            raise errors.RefusedByServer(reasons.of("kubeconfig_too_deep", most=MAX_DEPTH))
        document = yaml.safe_load(kubeconfig)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise errors.RefusedByServer(reasons.of("kubeconfig_yaml_invalid", error=str(error))) from error
    problem = next(problems(document), None)
    if problem is not None:
        raise errors.RefusedByServer(problem)


def _depth(text: str) -> int:
    """How deep lists and mappings are in each other, as far as MAX_DEPTH. Raises yaml.YAMLError or ValueError."""
    depth = deepest = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        deepest = max(depth, deepest)
        if deepest > MAX_DEPTH:
            break
    return deepest


def is_pasted(kubeconfig: str) -> bool:
    """Returns whether the text came through a page and not from a command on the portal's host."""
    return PASTED in kubeconfig


def problems(document: Any) -> Iterator[reasons.Reason]:
    """Yields what a parsed kubeconfig may not contain."""
    for section, key in (("users", "user"), ("clusters", "cluster")):
        entries = document.get(section) if isinstance(document, dict) else None
        for entry in entries if isinstance(entries, list) else ():
            found = entry.get(key) if isinstance(entry, dict) else None
            if isinstance(found, dict):
                yield from _problems(found, section)


def _problems(entry: dict[str, Any], section: str) -> Iterator[reasons.Reason]:
    yield from _connection_problems(entry, section)
    allowed = settings.KCOVER_KUBECONFIG_COMMANDS
    if "auth-provider" in entry:
        yield reasons.of("kubeconfig_auth_provider")
    if "exec" in entry:
        program = entry["exec"].get("command") if isinstance(entry["exec"], dict) else None
        if not isinstance(program, str):
            yield reasons.of("kubeconfig_program_not_text")
        elif program not in allowed:
            yield reasons.of("kubeconfig_program", program=program[:MAX_QUOTED])
    for field in FILES:
        file = entry.get(field)
        # Aliases of YAML make a value of a hundred bytes whose text fills the memory: only text is quoted.
        if file and not isinstance(file, str):
            yield reasons.of("kubeconfig_file_not_text", field=field)
        elif file and file not in allowed:
            yield reasons.of("kubeconfig_file", field=field, file=file[:MAX_QUOTED])


def _connection_problems(entry: dict[str, Any], section: str) -> Iterator[reasons.Reason]:
    """Fields without which the portal would connect elsewhere, or as somebody else."""
    for key, value in entry.items():
        if key not in KNOWN[section] and value not in (None, "", [], {}):
            yield reasons.of("kubeconfig_field_unsupported", section=section, field=str(key)[:MAX_QUOTED])
    proxy = entry.get("proxy-url")
    if proxy and not (isinstance(proxy, str) and PROXY.fullmatch(proxy) and _has_host(proxy)):
        yield reasons.of("kubeconfig_proxy")


def _has_host(address: str) -> bool:
    try:
        url = urlsplit(address)
        return bool(url.hostname) and url.port != 0
    except ValueError:
        return False
