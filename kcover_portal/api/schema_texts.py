"""The sentences of the OpenAPI document in the reader's language: kinds of records, operations, parameters and fields.

The docstring of an operation is its text: the first sentence becomes the summary, the rest the description. These
texts are not marked in the code, so ``make messages`` collects them from the document (``tools/api_texts.py``).
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from django.utils.translation import gettext, gettext_noop
from drf_spectacular.hooks import postprocess_schema_enums

Document = dict[str, Any]

# What each kind of record is. A test compares the names with the tags of the document.
TAGS: Final = {
    "account": gettext_noop("Your own password and second factor"),
    "approvals": gettext_noop("Answers of people to rescues that asked for approval"),
    "audit": gettext_noop("The audit log and the verification of its hash chains"),
    "audit-sinks": gettext_noop("Systems that receive the audit log or tickets of repairs"),
    "changes": gettext_noop("Changes that wait for a second admin"),
    "channels": gettext_noop("Channels for notifications"),
    "check-runs": gettext_noop("Runs of health checks on several nodes"),
    "checks": gettext_noop("Latest results of health checks"),
    "clusters": gettext_noop("Clusters with their modes, settings and guards"),
    "decisions": gettext_noop("Decisions about faults, with their reasons"),
    "deliveries": gettext_noop("Notifications on their way to channels"),
    "events": gettext_noop("Single occurrences of faults"),
    "gpus": gettext_noop("GPUs of the nodes"),
    "incidents": gettext_noop("Incidents: faults of nodes, jobs and storms"),
    "jobs": gettext_noop("Training jobs, restarted and stopped as a whole"),
    "ledger": gettext_noop("Public keys that sign the audit log"),
    "maintenance": gettext_noop("Maintenance windows"),
    "namespace-routes": gettext_noop("Namespaces whose owners are notified about their jobs"),
    "needs": gettext_noop("Causes of what needs attention, with what people did about them"),
    "needs-person": gettext_noop("What needs attention, by kind"),
    "nodes": gettext_noop("Nodes, their history, and actions on one of them"),
    "parts": gettext_noop("Parts by serial number"),
    "pause": gettext_noop("Pause of all automation"),
    "placements": gettext_noop("Where parts are and have been"),
    "policies": gettext_noop("Rescue policies: publish, compare, try and roll back"),
    "preflight": gettext_noop("Preflight reports and pair tests"),
    "profiles": gettext_noop("Profiles of validations"),
    "repairs": gettext_noop("Repairs of machines, and what vendors say about them"),
    "reports": gettext_noop("Reliability and lemon nodes"),
    "rescue-actions": gettext_noop("Plans of decision systems"),
    "rescues": gettext_noop("Rescues with their steps, proofs and evidence"),
    "resume": gettext_noop("Resumption of automation"),
    "roles": gettext_noop("Built-in and custom roles"),
    "routes": gettext_noop("Which events go to which channel"),
    "scopes": gettext_noop("What a selection of nodes contains"),
    "sources": gettext_noop("Other systems that report faults"),
    "standby-policies": gettext_noop("The policy for warm standbys"),
    "standbys": gettext_noop("Warm standbys of the clusters"),
    "status": gettext_noop("Health checks with the interface of Autopilot"),
    "tokens": gettext_noop("Tokens of programs"),
    "validations": gettext_noop("Validations of nodes before they return to service"),
    "views": gettext_noop("Saved views of lists"),
}

OF_DJANGO_FILTER: Final = gettext_noop("Multiple values may be separated by commas.")  # it has no Chinese text

PARAGRAPHS: Final = "\n\n"  # stands between them
VALUES: Final = "* `"  # begins the list of a field's values, which drf-spectacular writes
_FIRST_SENTENCE = re.compile(r"(.+?)\.(?:\s+|$)(.*)", re.DOTALL)


def postprocess(result: Document, generator: Any, **given: Any) -> Document:
    """The hook of drf-spectacular: its own hook for enumerations, then the texts."""
    return localize(postprocess_schema_enums(result, generator, **given))  # type: ignore[no-untyped-call]


def localize(result: Document) -> Document:
    """Splits and translates the texts of a document."""
    names = {tag for operation in _operations(result) for tag in operation["tags"]}
    result["tags"] = [{"name": name, "description": gettext(TAGS[name])} for name in sorted(names & TAGS.keys())]
    for operation in _operations(result):
        summary, rest = _split(operation.pop("description", ""))
        said = {key: _translated(text) for key, text in (("summary", summary), ("description", rest)) if text}
        others = dict(operation)
        operation.clear()
        operation |= {"operationId": others["operationId"]} | said | others
        for parameter in _described(operation):
            parameter["description"] = gettext(parameter["description"])
    for described in _fields(result):
        described["description"] = PARAGRAPHS.join(map(gettext, _paragraphs(described["description"])))
    return result


def texts(document: Document) -> set[str]:
    """The summaries of operations, and the paragraphs of their descriptions."""
    found = (operation.get(key, "") for operation in _operations(document) for key in ("summary", "description"))
    return {paragraph for text in found for paragraph in text.split(PARAGRAPHS) if paragraph}


def parameter_texts(document: Document) -> set[str]:
    """The descriptions of parameters."""
    return {parameter["description"] for operation in _operations(document) for parameter in _described(operation)}


def field_texts(document: Document) -> set[str]:
    """The paragraphs about bodies and their fields. Lists of the values that one may have say nothing else."""
    found = (paragraph for one in _fields(document) for paragraph in _paragraphs(one["description"]))
    return {paragraph for paragraph in found if paragraph and not paragraph.startswith(VALUES)}


def _fields(document: Document) -> Iterator[Document]:
    """The bodies and fields that have a description, however deep they are in others."""
    found: list[Any] = [document.get("components", {}).get("schemas", {})]
    while found:
        one = found.pop()
        if isinstance(one, dict):
            if isinstance(one.get("description"), str):
                yield one
            found += one.values()
        elif isinstance(one, list):
            found += one


def _paragraphs(text: str) -> list[str]:
    """The paragraphs, each in one line; a list of values keeps its lines."""
    found = text.strip().split(PARAGRAPHS)
    return [one if one.startswith(VALUES) else " ".join(one.split()) for one in found]


def _translated(text: str) -> str:
    return PARAGRAPHS.join(gettext(paragraph) for paragraph in text.split(PARAGRAPHS))


def _described(operation: Document) -> list[Document]:
    return [one for one in operation.get("parameters", ()) if one.get("description")]


def _operations(document: Document) -> Iterator[Document]:
    for methods in document["paths"].values():
        yield from methods.values()


def _split(text: str) -> tuple[str, str]:
    """The first sentence, as plain text without its full stop, and the rest in Markdown with whole lines."""
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.strip().split(PARAGRAPHS)]
    found = _FIRST_SENTENCE.fullmatch(PARAGRAPHS.join(paragraphs))
    summary, rest = found.groups() if found else (paragraphs[0], PARAGRAPHS.join(paragraphs[1:]))
    return summary.replace("``", ""), rest
