"""Label and field selectors: parsed once, matched often.

The grammar of labels is that of ``k8s.io/apimachinery/pkg/labels``: ``a=b``, ``a==b``, ``a!=b``, ``a in (x,y)``, ``a
notin (x,y)``, ``a``, ``!a``, joined by commas. ``!=`` and ``notin`` also match an object without the label.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from simulator.kubeapi import errors

Object = dict[str, Any]

_KEY = r"(?:[A-Za-z0-9.-]+/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
_SET = re.compile(rf"^({_KEY})\s+(in|notin)\s*\(([^)]*)\)$")
_EQUALS = re.compile(rf"^({_KEY})\s*(==|=|!=)\s*([A-Za-z0-9_.-]*)$")
_EXISTS = re.compile(rf"^(!?)\s*({_KEY})$")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term: ``operator`` is ``in``, ``notin``, ``exists`` or ``missing``."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether a set of labels satisfies the term."""
        if self.operator == "in":
            return self.key in labels and labels[self.key] in self.values
        if self.operator == "notin":
            return self.key not in labels or labels[self.key] not in self.values
        return (self.key in labels) == (self.operator == "exists")


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """``path`` equals ``value``, or does not (``negated``)."""

    path: str
    value: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Selection:
    """The objects that a list or a watch requests. ``namespace`` None means all of them."""

    namespace: str | None = None
    labels: tuple[Requirement, ...] = ()
    fields: tuple[FieldTerm, ...] = ()

    def matches(self, obj: Object) -> bool:
        metadata = obj["metadata"]
        if self.namespace is not None and metadata.get("namespace", "") != self.namespace:
            return False
        if self.labels:
            labels = metadata.get("labels") or {}
            if not all(term.matches(labels) for term in self.labels):
                return False
        return all((value_at(obj, term.path) == term.value) != term.negated for term in self.fields)


def _split(text: str) -> list[str]:
    """Parts between commas that are not inside parentheses."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [part.strip() for part in (*parts, text[start:])]


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """A label selector. Raises ``ApiError`` 400 if it cannot be parsed."""
    terms = []
    for part in _split(text) if text.strip() else ():
        if found := _SET.match(part):
            values = frozenset(value.strip() for value in found[3].split(","))
            terms.append(Requirement(found[1], found[2], values))
        elif found := _EQUALS.match(part):
            terms.append(Requirement(found[1], "notin" if found[2] == "!=" else "in", frozenset((found[3],))))
        elif found := _EXISTS.match(part):
            terms.append(Requirement(found[2], "missing" if found[1] else "exists"))
        else:
            raise errors.bad_request(f"unable to parse requirement: invalid label selector {part!r}")
    return tuple(terms)


_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "missing"}


def from_object(selector: Mapping[str, Any]) -> tuple[Requirement, ...]:
    """A ``LabelSelector`` object (``matchLabels``, ``matchExpressions``); an empty one selects everything."""
    terms = [Requirement(key, "in", frozenset((value,))) for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or ():
        operator = _OPERATORS[expression["operator"]]
        terms.append(Requirement(expression["key"], operator, frozenset(expression.get("values") or ())))
    return tuple(terms)


_REFERENCE = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_EVENT_FIELDS = (
    *(f"involvedObject.{name}" for name in _REFERENCE),
    "reason",
    "reportingComponent",
    "source",
    "type",
)  # fmt: skip
_SUPPORTED: dict[str, tuple[str, ...]] = {
    "Node": ("spec.unschedulable",),
    "Pod": (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
    "Namespace": ("status.phase",),
    "Secret": ("type",),
    "Job": ("status.successful",),
    "ReplicaSet": ("status.replicas",),
    "Event": _EVENT_FIELDS,
    "ResourceSlice": ("spec.nodeName", "spec.driver"),
}


def parse_fields(text: str, *, kind: str) -> tuple[FieldTerm, ...]:
    """A field selector for a kind. Raises ``ApiError`` 400 for a field that the API server does not support."""
    terms = []
    for part in text.split(",") if text.strip() else ():
        found = re.match(r"^([A-Za-z.]+)\s*(==|=|!=)(.*)$", part.strip())
        if not found:
            raise errors.bad_request(f"invalid selector: {text!r}; can't understand {part!r}")
        path, operator, value = found.groups()
        if path not in ("metadata.name", "metadata.namespace", *_SUPPORTED.get(kind, ())):
            raise errors.bad_request(f'field label not supported: "{path}"')
        terms.append(FieldTerm(path, value, operator == "!="))
    return tuple(terms)


def _event_source(obj: Object) -> str:
    return str((obj.get("source") or {}).get("component") or obj.get("reportingComponent") or "")


_COMPUTED: dict[str, Callable[[Object], str]] = {
    "source": _event_source,
    "status.successful": lambda obj: str((obj.get("status") or {}).get("succeeded", 0)),
    "spec.unschedulable": lambda obj: "true" if (obj.get("spec") or {}).get("unschedulable") else "false",
    "spec.hostNetwork": lambda obj: "true" if (obj.get("spec") or {}).get("hostNetwork") else "false",
}


def value_at(obj: Object, path: str) -> str:
    """The value that a field selector compares; an absent field is the empty string."""
    if computed := _COMPUTED.get(path):
        return computed(obj)
    value: Any = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return "" if value is None else str(value)


def select(*, kind: str, namespace: str | None = None, labels: str = "", fields: str = "") -> Selection:
    """Both selectors of a request. Raises ``ApiError`` 400."""
    return Selection(namespace, parse_labels(labels), parse_fields(fields, kind=kind))


def matching(objects: Iterable[Object], selection: Selection) -> list[Object]:
    """The ``objects`` that the selection matches."""
    return [obj for obj in objects if selection.matches(obj)]
