"""Keeps the pods that a job's controller creates from now on off some nodes, by a required node affinity.

Terms of a node affinity are alternatives, and the expressions of one term hold together, so each term gets the
expression. https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#node-affinity
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kcover import reasons
from kcover_portal.kube import errors, values

HOSTNAME: Final = "kubernetes.io/hostname"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def patch(
    known: values.WorkloadKind, spec: Mapping[str, Any], *, hosts: Sequence[str], uid: str, version: str
) -> dict[str, Any] | None:
    """Returns the merge patch that excludes ``hosts`` in every role of the job; None if they are excluded already.

    The uid and the version make the server refuse another job of that name, and a job that was changed meanwhile.
    Terms without any requirement match no node and stay as they are.
    Raises RefusedByServer if the job has no template that may be changed, or one of an unexpected form.
    """
    if not hosts:
        return None
    changed: dict[str, Any] = {}
    for role, one in _roles(known, spec).items():
        terms = _terms(one, known)
        wanted = [_without(term, hosts) if any(term.values()) else term for term in terms] or [_without({}, hosts)]
        if wanted != terms:
            affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": wanted}}}
            changed[role] = {"template": {"spec": {"affinity": affinity}}}
    if not changed:
        return None
    inside: dict[str, Any] = changed
    for part in reversed(known.replicas):
        inside = {part: inside}
    return {"metadata": {"uid": uid, "resourceVersion": version}, **inside}


def excluded(known: values.WorkloadKind, spec: Mapping[str, Any]) -> frozenset[str]:
    """Returns the hosts that every role of the job excludes; none if its template has an unexpected form."""
    found: list[frozenset[str]] = []
    try:
        for role in _roles(known, spec).values():
            terms = _terms(role, known)
            found += [frozenset(_hosts(term)) for term in terms if any(term.values())] if terms else [frozenset()]
    except errors.RefusedByServer:
        return frozenset()
    return frozenset.intersection(*found) if found else frozenset()


def _roles(known: values.WorkloadKind, spec: Mapping[str, Any]) -> dict[str, Any]:
    if not known.replicas:
        raise errors.RefusedByServer(reasons.of("job_template_fixed", kind=known.kind))
    found: Any = {"spec": spec}
    for part in known.replicas:
        found = found.get(part) if isinstance(found, dict) else None
    if not isinstance(found, dict) or not found:
        raise errors.RefusedByServer(reasons.of("job_field_missing", kind=known.kind, field=".".join(known.replicas)))
    return found


def _terms(role: object, known: values.WorkloadKind) -> list[dict[str, Any]]:
    found: Any = role
    for part in ("template", "spec", "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms"):
        if found is not None and not isinstance(found, dict):
            raise errors.RefusedByServer(reasons.of("job_field_unreadable", kind=known.kind, field=part))
        found = (found or {}).get(part)
    if found is not None and not (isinstance(found, list) and all(isinstance(term, dict) for term in found)):
        raise errors.RefusedByServer(reasons.of("job_field_unreadable", kind=known.kind, field=part))
    return found or []


def _without(term: Mapping[str, Any], hosts: Sequence[str]) -> dict[str, Any]:
    known = _hosts(term)
    missing = [host for host in hosts if host not in known]
    if not missing:
        return dict(term)
    given = term.get("matchExpressions") or []
    return {**term, "matchExpressions": [*given, {"key": HOSTNAME, "operator": "NotIn", "values": missing}]}


def _hosts(term: Mapping[str, Any]) -> list[str]:
    """The hosts that a term excludes. Raises RefusedByServer for a term of an unexpected form."""
    given = term.get("matchExpressions") or []
    if not (isinstance(given, list) and all(isinstance(one, dict) for one in given)):
        raise errors.RefusedByServer(reasons.of("selector_term_unreadable", field="matchExpressions"))
    found = [one.get("values") for one in given if (one.get("key"), one.get("operator")) == (HOSTNAME, "NotIn")]
    if not all(isinstance(hosts, list) and all(isinstance(host, str) for host in hosts) for hosts in found):
        raise errors.RefusedByServer(reasons.of("selector_term_unreadable", field="values"))
    return [host for hosts in found for host in hosts]
