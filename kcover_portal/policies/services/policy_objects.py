"""Policies that a cluster keeps as objects, for GitOps: read into the portal, and read-only there.

An object's policy holds in its own cluster only. It never replaces a policy of the portal, and its rules never loosen
the portal's own rules. Each object's status says whether it was accepted.
"""

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import yaml
from django.db import transaction

from kcover import reasons
from kcover.decisions import looser_rules
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import storable_values
from kcover_portal.kube import port
from kcover_portal.policies import queries
from kcover_portal.policies.models import Policy
from kcover_portal.policies.services import revisions, validation, yaml_reader

log = logging.getLogger(__name__)

MAX_OBJECTS_PER_CLUSTER = 200  # objects of a cluster
MAX_MESSAGE = 1_000
MAX_PROBLEMS = 5  # that one message lists
CONDITION = "Accepted"


class _Refusal(Exception):
    """Why an object is not accepted: a word for programs, and a sentence."""

    def __init__(self, word: str, because: reasons.Reason) -> None:
        super().__init__(word)
        self.word, self.because = word, because


def read_policy_objects(cluster: Cluster, *, now: datetime) -> int:
    """Puts the accepted objects of a cluster into force, takes others out of force, and tells each object.

    Returns how many are in force. If the cluster does not answer, nothing changes: raises port.KubeError.
    """
    client = fleet.connect(cluster)
    found = [one for kind in port.POLICY_KINDS for one in client.custom_objects(kind)]
    known = Policy.objects.filter(cluster=cluster, revision__gt=0)
    if not found and not known.exists():
        return 0
    found.sort(key=lambda one: (one.created_at or now, one.kind.group, one.kind.kind, one.name))
    with transaction.atomic():
        Cluster.objects.select_for_update(no_key=True).get(pk=cluster.pk)  # one reader at a time
        refusals: dict[str, _Refusal | None] = {}
        accepted: set[tuple[str, str]] = set()
        for number, one in enumerate(found):
            try:
                if number >= MAX_OBJECTS_PER_CLUSTER:
                    raise _Refusal("TooMany", reasons.of("policy_objects_many", most=MAX_OBJECTS_PER_CLUSTER))
                accepted.add(_publish(cluster, one, taken=accepted, now=now))
                refusals[one.uid] = None
            except _Refusal as refusal:
                refusals[one.uid] = refusal
        for row in known:
            if (row.kind, row.name) not in accepted:
                gone = reasons.of("policy_object_gone")
                revisions.delete(row.name, kind=row.kind, author=_author(cluster), because=gone, now=now, of=cluster)
    if fleet.mode_of(cluster)[0] not in fleet.MODES_WITHOUT_WRITES:
        for one in found:
            _state(client, one, refusals[one.uid], now=now)
    return len(accepted)


def _publish(
    cluster: Cluster, one: port.CustomObject, *, taken: set[tuple[str, str]], now: datetime
) -> tuple[str, str]:
    """Puts one object into force. Raises _Refusal."""
    key = one.kind.kind, one.name
    row = Policy.objects.filter(kind=key[0], name=key[1]).first()
    is_elsewhere = (
        row is not None and row.revision > 0 and row.cluster_id != cluster.pk
    )  # the name of a deleted is free
    if key in taken or is_elsewhere:
        raise _Refusal("NameTaken", reasons.of("policy_object_name", policy=one.name))
    text = _text(one)
    reading = validation.validate(text)
    if reading.problems:
        found = (
            reasons.of("parameter_invalid", parameter=problem.path or "spec", problem=problem.reason)
            for problem in reading.problems[:MAX_PROBLEMS]
        )
        raise _Refusal("Invalid", reasons.both(*found))
    own = [rule for rule in queries.candidates() if queries.cluster_of(rule) is None]
    for rule in validation.candidates(list(reading.policies)):
        if rule.revision == 0 and (looser := looser_rules.loosened_by(rule, own)) is not None:
            raise _Refusal("Loosens", reasons.of("policy_object_loosens", rule=rule.name, own=looser.name))
    try:
        because = reasons.of("policy_from_object", kind=f"{one.kind.kind} {one.kind.api_version}")
        revisions.apply(text, author=_author(cluster), reason="", because=because, now=now, of=cluster)
    except revisions.Conflict as error:
        raise _Refusal("Conflict", error.reason) from error
    return key


def _text(one: port.CustomObject) -> str:
    content: Mapping[str, Any] = {
        "apiVersion": one.kind.api_version,
        "kind": one.kind.kind,
        "metadata": {"name": one.name},
        "spec": dict(one.spec),
    }
    try:
        text = str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        unreadable = reasons.of("policy_object_unreadable", error=storable_values.error_text(error))
        raise _Refusal("Invalid", unreadable) from error
    if len(text.encode()) > yaml_reader.MAX_BYTES:
        raise _Refusal("Invalid", reasons.of("text_too_large", bytes=len(text.encode()), limit=yaml_reader.MAX_BYTES))
    return text


def _state(client: port.Cluster, one: port.CustomObject, refusal: _Refusal | None, *, now: datetime) -> None:
    """Writes whether the object was accepted, if its status says something else."""
    condition = port.StatedCondition(
        type=CONDITION,
        status="False" if refusal else "True",
        reason=refusal.word if refusal else CONDITION,
        message=str(refusal.because)[:MAX_MESSAGE] if refusal else "",
        generation=one.generation,
    )
    if one.conditions == (condition,):
        return
    try:
        client.state_condition(one.kind, one.name, version=one.version, condition=condition, at=now)
    except port.KubeError as error:
        log.warning("the status of %s %s cannot be written: %s", one.kind.kind, one.name, error)


def _author(cluster: Cluster) -> str:
    return f"cluster:{cluster.name}"
