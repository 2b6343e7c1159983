"""Programs and files that a kubeconfig may make the portal run or read: only those in
``KCOVER_KUBECONFIG_COMMANDS``.
"""

from collections.abc import Iterator
from typing import Any

import yaml
from django.conf import settings

from kcover_portal.kube import errors

MAX_QUOTED = 300  # characters
# Keys of users and clusters that name a file of this machine.
FILES = ("tokenFile", "client-certificate", "client-key", "certificate-authority")


def check(kubeconfig: str) -> None:
    """Raises RefusedByServer if the text names a program or a file that is not allowed, or is not a kubeconfig."""
    try:
        document = yaml.safe_load(kubeconfig)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise errors.RefusedByServer(f"kubeconfig: not valid YAML: {error}") from error
    problem = next(problems(document), None)
    if problem is not None:
        raise errors.RefusedByServer(f"kubeconfig: {problem}")


def problems(document: Any) -> Iterator[str]:
    """Yields what a parsed kubeconfig may not contain, as sentences for an administrator."""
    for section, key in (("users", "user"), ("clusters", "cluster")):
        entries = document.get(section) if isinstance(document, dict) else None
        for entry in entries if isinstance(entries, list) else ():
            found = entry.get(key) if isinstance(entry, dict) else None
            if isinstance(found, dict):
                yield from _problems(found)


def _problems(entry: dict[str, Any]) -> Iterator[str]:
    allowed = settings.KCOVER_KUBECONFIG_COMMANDS
    if "auth-provider" in entry:
        yield "auth-provider is not supported; use a service account's token"
    if "exec" in entry:
        program = entry["exec"].get("command") if isinstance(entry["exec"], dict) else None
        if program not in allowed:
            advice = _advice(program, "the program")
            yield f"the credentials come from the program {_quoted(program)}; use a service account's token{advice}"
    for name in FILES:
        if entry.get(name) and entry[name] not in allowed:
            file = entry[name]
            yield f"{name} names the file {_quoted(file)}; embed its content{_advice(file, 'the file')}"


def _advice(value: object, what: str) -> str:
    """How to allow a program or file, if the value can name one."""
    if not isinstance(value, str):
        return "; KCOVER_KUBECONFIG_COMMANDS cannot allow a value that is not text"
    return f", or allow {what} with KCOVER_KUBECONFIG_COMMANDS={_quoted(value)}"


def _quoted(value: object) -> str:
    """The text, or its type: aliases of YAML make a value of a hundred bytes whose text fills the memory."""
    return value[:MAX_QUOTED] if isinstance(value, str) else f"({type(value).__name__})"
