"""Reads the active policies, as rows and as rules."""

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from django.db.models import F, OuterRef, QuerySet, Subquery
from django.db.models.functions import MD5

from kcover.decisions import match
from kcover.policy import document
from kcover_portal.lib.prepared import Prepared
from kcover_portal.policies.models import Policy, Revision

log = logging.getLogger(__name__)

_Key = tuple[tuple[int, int, str], ...]


@dataclass(frozen=True, slots=True)
class _Cached:
    """The active rules, and of those that a cluster keeps as objects, the cluster by the policy's name."""

    key: _Key
    rules: tuple[match.Candidate, ...]
    clusters: Mapping[str, int]
    by_cluster: dict[int, tuple[match.Candidate, ...]] = field(default_factory=dict)

    def rules_in(self, cluster: int) -> tuple[match.Candidate, ...]:
        """The rules that hold in a cluster; the same tuple each time."""
        if cluster not in self.by_cluster:
            held = (one for one in self.rules if self.clusters.get(one.policy, cluster) == cluster)
            self.by_cluster[cluster] = tuple(held)
        return self.by_cluster[cluster]


_cached = _Cached((), (), {})
_names: dict[str, Callable[[], Iterable[str]]] = {}  # by attribute

OF_CLUSTER = "cluster:"  # the author of a revision that a cluster keeps as an object
RESCUE, STANDBY = Policy.Kind.RESCUE.value, Policy.Kind.STANDBY.value


def policies(kind: str = RESCUE) -> QuerySet[Policy]:
    """Returns the active policies of a kind, by name."""
    return Policy.objects.filter(kind=kind, revision__gt=0).order_by("name")


def in_force(kind: str = RESCUE) -> QuerySet[Revision]:
    """Returns the active revision of each policy of a kind, by the policy's name."""
    rows = Revision.objects.filter(policy__kind=kind, policy__revision__gt=0, number=F("policy__revision"))
    return rows.select_related("policy__cluster").order_by("policy__name")


def archived(kind: str = RESCUE) -> QuerySet[Revision]:
    """Returns the newest revision of each disabled policy of a kind, by the policy's name."""
    newest = Revision.objects.filter(policy=OuterRef("policy")).order_by("-number").values("number")[:1]
    rows = Revision.objects.filter(policy__kind=kind, policy__revision=0, number=Subquery(newest))
    return rows.select_related("policy").order_by("policy__name")


def revision(policy: Policy) -> Revision | None:
    """Returns the policy's active revision, or None if it is disabled."""
    return policy.revisions.filter(number=policy.revision).first()


def name_by(attribute: str, function: Callable[[], Iterable[str]]) -> None:
    """Registers the function that returns what an attribute of actions may name. Apps do so at start."""
    _names[attribute] = function


def names() -> dict[str, frozenset[str]]:
    """What attributes of actions may name, by attribute, such as the channels of ``notify``."""
    return {attribute: frozenset(function()) for attribute, function in _names.items()}


def candidates(cluster: int | None = None) -> tuple[match.Candidate, ...]:
    """Returns all active rules, as the core matches them; with ``cluster`` (its key), those that hold there.

    The rules are cached, and one query tells whether they changed. A revision that this version cannot read (written by
    a newer one) is skipped and logged, so that the other policies keep working.
    """
    global _cached
    key: _Key = tuple(_KEY.rows())
    cached = _cached
    if key != cached.key:
        _cached = cached = _Cached(key, *_read())
    return cached.rules if cluster is None or not cached.clusters else cached.rules_in(cluster)


_KEY = Prepared(lambda: in_force().annotate(sum=MD5("text")).values_list("pk", "policy_id", "sum"))


def cluster_of(candidate: match.Candidate) -> int | None:
    """Returns the cluster (its key) that keeps the rule's policy as an object; None for the portal's own policies."""
    return _cached.clusters.get(candidate.policy)


def revision_numbered(policy: str, number: int) -> Revision | None:
    """Returns a revision of a rescue policy, active or not; None if there is none."""
    rows = Revision.objects.filter(policy__kind=RESCUE, policy__name=policy, number=number)
    return rows.select_related("policy").first()


def candidates_of(policy: str, number: int) -> tuple[match.Candidate, ...]:
    """Returns the rules of one revision, active or not, as the core matches them; empty if there is none."""
    row = revision_numbered(policy, number)
    return tuple(_rules_of(row)) if row is not None else ()


def _read() -> tuple[tuple[match.Candidate, ...], Mapping[str, int]]:
    rules: list[match.Candidate] = []
    clusters: dict[str, int] = {}
    for row in _IN_FORCE.rows():
        rules += _rules_of(row)
        if row.policy.cluster_id is not None:
            clusters[row.policy.name] = row.policy.cluster_id
    return tuple(rules), clusters


_IN_FORCE = Prepared(in_force)


def _rules_of(row: Revision) -> Iterator[match.Candidate]:
    policy = _parse(row)
    if not isinstance(policy, document.Policy):
        return
    added = row.author.startswith(OF_CLUSTER)  # of this revision: the name may have had another owner
    source = hashlib.sha256(row.text.encode()).hexdigest()
    for rule in policy.rules:
        yield match.Candidate(
            policy=row.policy.name,
            revision=row.number,
            created_at=row.policy.created_at,
            rule=rule,
            source=source,
            added=added,
        )


def standby_rules(cluster: int | None = None) -> tuple[document.StandbyRule, ...]:
    """Returns the rules of the active WarmStandbyPolicy in order; empty without such a policy.

    ``cluster``: the key of the cluster in which they are to hold; None: anywhere.
    """
    for row in in_force(STANDBY):
        if None not in (cluster, row.policy.cluster_id) and row.policy.cluster_id != cluster:
            continue
        policy = _parse(row)
        if isinstance(policy, document.StandbyPolicy):
            return policy.matches
    return ()


def _parse(row: Revision) -> document.Policy | document.StandbyPolicy | None:
    try:
        return document.read(row.document)
    except document.PolicyInvalid as error:
        log.error("policy %s revision %s cannot be read and is ignored: %s", row.policy.name, row.number, error)
        return None


def rules_naming(attribute: str, name: str) -> list[str]:
    """Returns the rules in force, as ``policy#1``, of which an action names this channel or source, sorted."""
    found = []
    for row in in_force():
        policy = _parse(row)
        for rule in policy.rules if isinstance(policy, document.Policy) else ():
            if name in {value for _index, value in rule.named(attribute)}:
                found.append(f"{row.policy.name}#{rule.index + 1}")
    return found


def effective(
    *,
    kind: str,
    code: str,
    labels: Mapping[str, str],
    cause: int | None = None,
    fatal: bool | None = None,
    application: bool = False,
    seen_within: Mapping[int, int] | None = None,
) -> tuple[match.Candidate | None, tuple[match.TriedRule, ...]]:
    """Returns the active rule that matches the fault on a node with these labels, and the rules evaluated before it."""
    return match.match(
        candidates(),
        kind=kind,
        code=code,
        cause=cause,
        labels=labels,
        fatal=fatal,
        application=application,
        seen_within=seen_within,
    )
