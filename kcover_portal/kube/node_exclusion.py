"""Keeps the pods that a job's controller creates from now on off some nodes, by a required node affinity.

Terms of a node affinity are alternatives, and the expressions of one term hold together, so each term gets the
expression. https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/#node-affinity
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kcover_portal.kube import errors, values

HOSTNAME: Final = "kubernetes.io/hostname"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def patch(
    known: values.WorkloadKind, spec: Mapping[str, Any], *, hosts: Sequence[str], uid: str, version: str
) -> dict[str, Any] | None:
    """Returns the merge patch that excludes ``hosts`` in every role of the job; None if they are excluded already.

    The uid and the version make the server refuse another job of that name, and a job that was changed meanwhile.
    Raises RefusedByServer if the job has no template that may be changed, or one of an unexpected form.
    """
    if not known.replicas:
        raise errors.RefusedByServer(f"{known.kind} has no pod template that may be changed")
    found: Any = {"spec": spec}
    for part in known.replicas:
        found = found.get(part) if isinstance(found, dict) else None
    if not isinstance(found, dict) or not found:
        raise errors.RefusedByServer(f"{known.kind} without {'.'.join(known.replicas)}")
    changed: dict[str, Any] = {}
    for role, one in found.items():
        terms = _terms(one, known)
        wanted = [_without(term, hosts) for term in terms or [{}]]
        if wanted != terms:
            affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": wanted}}}
            changed[role] = {"template": {"spec": {"affinity": affinity}}}
    if not changed:
        return None
    inside: dict[str, Any] = changed
    for part in reversed(known.replicas):
        inside = {part: inside}
    return {"metadata": {"uid": uid, "resourceVersion": version}, **inside}


def _terms(role: object, known: values.WorkloadKind) -> list[dict[str, Any]]:
    found: Any = role
    for part in ("template", "spec", "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms"):
        if found is not None and not isinstance(found, dict):
            raise errors.RefusedByServer(f"{known.kind} with an unreadable {part}")
        found = (found or {}).get(part)
    if found is not None and not (isinstance(found, list) and all(isinstance(term, dict) for term in found)):
        raise errors.RefusedByServer(f"{known.kind} with unreadable nodeSelectorTerms")
    return found or []


def _without(term: Mapping[str, Any], hosts: Sequence[str]) -> dict[str, Any]:
    given = term.get("matchExpressions") or []
    if not (isinstance(given, list) and all(isinstance(one, dict) for one in given)):
        raise errors.RefusedByServer("a node selector term with unreadable matchExpressions")
    of_hosts = [one for one in given if (one.get("key"), one.get("operator")) == (HOSTNAME, "NotIn")]
    missing = [host for host in hosts if not any(host in (one.get("values") or ()) for one in of_hosts)]
    if not missing:
        return dict(term)
    return {**term, "matchExpressions": [*given, {"key": HOSTNAME, "operator": "NotIn", "values": missing}]}
