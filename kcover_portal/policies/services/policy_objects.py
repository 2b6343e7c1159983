"""Policies that a cluster keeps as objects, for GitOps: read into the portal, and read-only there.

An object's policy holds in its own cluster only. It never replaces a policy of the portal, and its rules come after all
of the portal's own. Each object's status says whether it was accepted.
"""

import logging
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

import yaml

from kcover import actions, reasons
from kcover.actions import moved_jobs
from kcover.decisions import match, overlap
from kcover.faults import catalog, fault
from kcover.policy import document
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.fleet.services import storable_values, unread_objects
from kcover_portal.kube import bounds, port
from kcover_portal.policies import queries
from kcover_portal.policies.models import Policy
from kcover_portal.policies.services import revisions, validation, yaml_reader

log = logging.getLogger(__name__)

MAX_OBJECTS_PER_CLUSTER = 200
MAX_RULES_PER_CLUSTER = 1_000  # of all its objects
MAX_BYTES_PER_CLUSTER = 4 * 1024 * 1024  # of the specs of its objects
MAX_KEYS_PER_CLUSTER = 60_000  # of all its objects, which take two seconds of CPU; a thousand rules have about 15,000
MAX_MESSAGE = 1_000
MAX_PROBLEMS = 5  # that one message lists
CONDITION = ACCEPTED = "Accepted"
TOO_MANY = "TooMany"  # depends on the other objects, too
UNREAD = "policies"  # among the cluster's unread objects
APPLICATION_KIND = "pod"  # a container that ended with an error proves no fault of its node


@dataclass(frozen=True, slots=True)
class _Answer:
    """What an object's status says: a word for programs, and sentences."""

    word: str
    because: reasons.Reason


class _Refusal(Exception):
    """The object is not accepted."""

    def __init__(self, word: str, because: reasons.Reason) -> None:
        super().__init__(word)
        self.answer = _Answer(word, because)


@dataclass(frozen=True, slots=True)
class _Weighed:
    """What became of one object, as far as it depends on the object and the portal's own rules."""

    policies: tuple[validation.ParsedPolicy, ...]
    answer: _Answer

    @property
    def is_accepted(self) -> bool:
        return self.answer.word == ACCEPTED


@dataclass(frozen=True, slots=True)
class _LastRead:
    """What this process read last of a cluster.

    ``own``: what each of ``weighed`` depends on besides its object. ``state``: what ``told`` depends on, if the read
    changed nothing; None if it changed something, so that the next read looks at all again.
    """

    own: Hashable
    weighed: Mapping[tuple[str, int], _Weighed]  # by uid and generation
    state: Hashable
    told: Mapping[str, _Answer]  # by uid


_last_reads: dict[int, _LastRead] = {}  # by cluster


def read_policy_objects(cluster: Cluster, *, now: datetime) -> int:
    """Puts the accepted objects of a cluster into force, takes others out of force, and tells each object.

    Returns how many are in force. If the cluster does not answer, nothing changes: raises port.KubeError. One caller at
    a time, for each cluster. What did not change costs one look at the rows of policies.
    """
    client = fleet.connect(cluster)
    try:
        found = [one for kind in port.POLICY_KINDS for one in client.custom_objects(kind)]
    except bounds.TooLarge:
        size = bounds.MAX_CUSTOM_BYTES // 1024 // 1024
        unread_objects.note(cluster, UNREAD, reasons.of("policy_objects_unread", cluster=cluster.name, size=size))
        raise
    known = Policy.objects.filter(cluster=cluster, revision__gt=0)
    if not found and not known.exists():
        unread_objects.note(cluster, UNREAD, None)
        return 0
    found.sort(key=lambda one: (one.created_at or now, one.kind.group, one.kind.kind, one.name))
    own = _own_state()
    last = _last_reads.get(cluster.pk)
    state = _state_of(found, own)
    if last is not None and last.state == state:
        told = last.told
    else:
        weighed = _weigh(found, last.weighed if last is not None and last.own == own else {})
        told = _put_into_force(cluster, found, weighed, now=now)
        unchanged = _state_of(found, own) == state
        _last_reads[cluster.pk] = _LastRead(own, weighed, state if unchanged else None, told)
    unread_objects.note(cluster, UNREAD, _left_out(cluster, told))
    if fleet.mode_of(cluster)[0] not in fleet.MODES_WITHOUT_WRITES:
        for one in found:
            _state(client, one, told[one.uid], now=now)
    return sum(answer.word == ACCEPTED for answer in told.values())


def _left_out(cluster: Cluster, told: Mapping[str, _Answer]) -> reasons.Reason | None:
    """Which objects are not in force because there are too many; None if there is room for all."""
    beyond = [answer for answer in told.values() if answer.word == TOO_MANY]
    if not beyond:
        return None
    return reasons.of("policy_objects_beyond", count=len(beyond), cluster=cluster.name, why=beyond[0].because)


def _own_state() -> Hashable:
    """What the portal's own rules are, and what they may name."""
    own = (one for one in queries.candidates() if not one.added)
    standby = queries.policies(queries.STANDBY).filter(cluster=None).values_list("name", flat=True)
    rules = tuple((one.name, one.revision, one.source) for one in own)
    return rules, tuple(standby), tuple(sorted(queries.names().items()))


def _state_of(found: Sequence[port.CustomObject], own: Hashable) -> Hashable:
    rows = Policy.objects.order_by("pk").values_list("pk", "kind", "name", "cluster", "revision")
    return tuple((one.uid, one.generation, one.name) for one in found), own, tuple(rows)


def _weigh(
    found: Sequence[port.CustomObject], before: Mapping[tuple[str, int], _Weighed]
) -> dict[tuple[str, int], _Weighed]:
    """Reads the objects, outside of any transaction; those of ``before`` are not read again."""
    weighed: dict[tuple[str, int], _Weighed] = {}
    rules = size = keys = 0
    for number, one in enumerate(found):
        key = one.uid, one.generation
        try:
            if number >= MAX_OBJECTS_PER_CLUSTER:
                raise _Refusal(TOO_MANY, reasons.of("policy_objects_many", most=MAX_OBJECTS_PER_CLUSTER))
            larger, named = size + len(one.raw_spec), keys + one.raw_spec.count(b":")
            if named > MAX_KEYS_PER_CLUSTER:
                raise _Refusal(TOO_MANY, reasons.of("policy_objects_keys", most=MAX_KEYS_PER_CLUSTER))
            more = 0 if larger > MAX_BYTES_PER_CLUSTER else _rules_in(one)
            if larger > MAX_BYTES_PER_CLUSTER or rules + more > MAX_RULES_PER_CLUSTER:
                limits = {"rules": MAX_RULES_PER_CLUSTER, "size": MAX_BYTES_PER_CLUSTER // 1024 // 1024}
                raise _Refusal(TOO_MANY, reasons.of("policy_objects_large", **limits))
            rules, size, keys = rules + more, larger, named  # what is left out takes nobody's room
            known = before.get(key)
            weighed[key] = known if known is not None and known.answer.word != TOO_MANY else _read(one)
        except _Refusal as refusal:
            weighed[key] = _Weighed((), refusal.answer)
    return weighed


def _rules_in(one: port.CustomObject) -> int:
    listed = [value for value in one.spec.values() if isinstance(value, list)]
    return sum(len(value) for value in listed)


def _read(one: port.CustomObject) -> _Weighed:
    """Reads one object. Raises _Refusal."""
    validated = validation.parse(_text(one))
    if validated.problems:
        found = (
            reasons.of("parameter_invalid", parameter=problem.path or "spec", problem=problem.reason)
            for problem in validated.problems[:MAX_PROBLEMS]
        )
        raise _Refusal("Invalid", reasons.both(*found))
    beyond = [problem for policy in validated.policies for problem in _beyond(policy.policy)]
    if beyond:
        raise _Refusal("NotAllowed", reasons.both(*beyond[:MAX_PROBLEMS]))
    after = (reason for policy in validated.policies for reason in _comes_after(policy.policy))
    return _Weighed(validated.policies, _Answer(ACCEPTED, reasons.both(*islice(after, MAX_PROBLEMS))))


def _put_into_force(
    cluster: Cluster,
    found: Sequence[port.CustomObject],
    weighed: Mapping[tuple[str, int], _Weighed],
    *,
    now: datetime,
) -> dict[str, _Answer]:
    """Publishes what was accepted, each in a transaction of its own, and takes the others out of force."""
    told: dict[str, _Answer] = {}
    accepted: set[tuple[str, str]] = set()
    rows = Policy.objects.filter(revision__gt=0).exclude(cluster=cluster)
    elsewhere = set(rows.values_list("kind", "name"))  # the name of a deleted one is free
    for one in found:
        this, key = weighed[one.uid, one.generation], (one.kind.kind, one.name)
        try:
            if this.is_accepted:
                if key in accepted or key in elsewhere:
                    raise _Refusal("NameTaken", reasons.of("policy_object_name", policy=one.name))
                _publish(cluster, one, this.policies, now=now)
                accepted.add(key)
            told[one.uid] = this.answer
        except _Refusal as refusal:
            told[one.uid] = refusal.answer
    for row in Policy.objects.filter(cluster=cluster, revision__gt=0):
        if (row.kind, row.name) not in accepted:
            gone = reasons.of("policy_object_gone")
            revisions.delete(row.name, kind=row.kind, author=_author(cluster), because=gone, now=now, of=cluster)
    return told


def _publish(
    cluster: Cluster, one: port.CustomObject, policies: tuple[validation.ParsedPolicy, ...], *, now: datetime
) -> None:
    because = reasons.of("policy_from_object", kind=f"{one.kind.kind} {one.kind.api_version}")
    try:
        revisions.put(policies, author=_author(cluster), because=because, now=now, of=cluster)
    except revisions.Conflict as error:
        raise _Refusal("Conflict", error.reason) from error


def _comes_after(policy: document.Policy | document.StandbyPolicy) -> Iterator[reasons.Reason]:
    """The portal's own rules that come first for some of the same faults, each once."""
    own = match.rank(one for one in queries.candidates() if not one.added)
    for rule in policy.rules if isinstance(policy, document.Policy) else ():
        for first in own:
            fault_of_both = overlap.shared(first.rule, rule)
            if fault_of_both is not None:
                where = f"{policy.name}#{rule.index + 1}"
                yield reasons.of("policy_object_after", own=first.name, fault=fault_of_both, rule=where)


def _beyond(policy: document.Policy | document.StandbyPolicy) -> Iterator[reasons.Reason]:
    """What only the portal's own policies may say."""
    for rule in policy.rules if isinstance(policy, document.Policy) else ():
        where = f"{policy.name}#{rule.index + 1}"
        for action in _beyond_actions(rule):
            yield reasons.of("policy_object_action", rule=where, action=action)
        for kind, code in _no_node_faults(rule):
            yield reasons.of("policy_object_application", rule=where, kind=kind, code=code)


def _beyond_actions(rule: document.Rule) -> Iterator[str]:
    """The portal's requests to others, the power of machines, and what cannot be undone."""
    kinds = actions.in_policies()
    for action in rule.actions:
        if not kinds[action.name].in_objects:
            yield action.name
        # These send the author's text to a source of the portal.
        yield from (f"{action.name}.{one}" for one in (moved_jobs.QUERY, moved_jobs.SOURCE) if one in action.attribute)


def _no_node_faults(rule: document.Rule) -> Iterator[tuple[str, str]]:
    for kind, codes in rule.listed.items():
        for code in codes:
            if kind == APPLICATION_KIND or (kind in fault.NUMERIC_KINDS and catalog.is_user_fault(kind, int(code))):
                yield kind, code
    if APPLICATION_KIND in rule.kinds:
        yield APPLICATION_KIND, "*"


def _text(one: port.CustomObject) -> str:
    if len(one.raw_spec) > yaml_reader.MAX_BYTES:  # before it is decoded and written as YAML
        too_large = reasons.of("text_too_large", bytes=len(one.raw_spec), limit=yaml_reader.MAX_BYTES)
        raise _Refusal("Invalid", too_large)
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


def _state(client: port.Cluster, one: port.CustomObject, answer: _Answer, *, now: datetime) -> None:
    """Writes whether the object was accepted, if its status says something else."""
    condition = port.StatedCondition(
        type=CONDITION,
        status="True" if answer.word == ACCEPTED else "False",
        reason=answer.word,
        message=str(answer.because)[:MAX_MESSAGE],
        generation=one.generation,
    )
    if one.conditions == (condition,):
        return
    try:
        client.state_condition(one.kind, one.name, version=one.version, condition=condition, at=now)
    except port.KubeError as error:
        log.warning("the status of %s %s cannot be written: %s", one.kind.kind, one.name, error)


def _author(cluster: Cluster) -> str:
    return f"{queries.OF_CLUSTER}{cluster.name}"
