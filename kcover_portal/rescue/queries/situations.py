"""Gather the facts that decisions depend on, for several incidents of one cluster at once."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from kcover import actions
from kcover.decisions import decide, guards, match
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.incidents import queries as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.policies import queries as policies
from kcover_portal.rescue.queries import counts
from kcover_portal.rescue.queries.node_facts import node_facts
from kcover_portal.rescue.queries.past_rescues import PastRescues


def situation(
    node: Node,
    incident: Incident,
    *,
    now: datetime,
    lock: bool = False,
    rules: tuple[match.Candidate, ...] | None = None,
    external_queried: bool = False,
    mode: tuple[str, str] | None = None,
) -> decide.Situation:
    """Every fact that the decision about one incident depends on; see ``Situations``."""
    gathered = Situations(
        node.cluster, [(node, incident)], now=now, lock=lock, rules=rules, external_queried=external_queried, mode=mode
    )
    return gathered.of(node)


class Situations:
    """The facts for incidents of one cluster, at most one of each node. What they share is read once.

    ``lock``: take the cluster's lock before counting, because the caller acts on the counts. ``rules``: candidates to
    use instead of those in force. ``external_queried``: see ``decide.Situation``. ``mode``: the cluster's mode and the
    reason of a pause, if the caller has just read them with a node (``fleet.mode_beside``). For incidents whose answer
    does not depend on the guards, nothing is counted; if there are no others, nothing is locked. Without a rule, what
    is counted shows storms of the same fault only, and needs no lock. ``without_storm``: see ``counts.Counts``.
    """

    def __init__(
        self,
        cluster: Cluster,
        cases: Sequence[tuple[Node, Incident]],
        *,
        now: datetime,
        lock: bool = False,
        rules: tuple[match.Candidate, ...] | None = None,
        external_queried: bool = False,
        mode: tuple[str, str] | None = None,
        without_storm: int | None = None,
    ) -> None:
        self.cluster = cluster  # as it is under the lock, once that is held
        self._now, self._without_storm = now, without_storm
        self._counts: counts.Counts | None = None
        self._past = PastRescues([node for node, _ in cases])
        rules = policies.candidates(cluster.pk) if rules is None else rules
        settings = fleet.guards_of(cluster)
        cluster_facts = _cluster_facts(cluster, mode or fleet.mode_of(cluster))
        self._facts: dict[int, decide.Situation] = {}
        # The rules of the nodes whose answer depends on the guards, None where no rule applies.
        self._counting: dict[int, match.Candidate | None] = {}
        for node, incident in cases:
            facts = decide.Situation(
                now=now,
                fault=_fault(incident, rules, now=now),
                node=node_facts(node, incident, self._past, settings=settings, now=now),
                settings=settings,
                cluster=cluster_facts,
                rules=rules,
                external_queried=external_queried,
            )
            matched = decide.match_rules(facts)
            self._facts[node.pk] = facts = replace(facts, matched=matched)
            chosen = matched.candidate
            if _may_be_storm(facts) if chosen is None else decide.needs_counts(facts, chosen):
                self._counting[node.pk] = chosen
        if self._counting:
            self._count(cases, lock=lock)

    def of(self, node: Node) -> decide.Situation:
        """The facts for the node's incident. They include the rescues that were added before."""
        facts = self._facts[node.pk]
        if node.pk not in self._counting or self._counts is None:
            return facts
        rules = [chosen for chosen in (self._counting[node.pk],) if chosen is not None]
        fault = facts.fault
        counted = self._counts.of(
            node,
            kind=fault.kind,
            code=fault.code,
            hardware=decide.is_hardware(fault),
            rules=rules,
            code_only=not rules,
        )
        return replace(facts, counts=counted)

    def add(self, node: Node, decision: decide.Decision) -> None:
        """Counts the rescue that the caller opens for the node by this decision."""
        if self._counts is not None:
            isolates = any(actions.ACTIONS[step.name].isolates for step in decision.steps)
            self._counts.add(node, rule=decision.rule or "", isolates=isolates)

    def _count(self, cases: Sequence[tuple[Node, Incident]], *, lock: bool) -> None:
        """Counts what the guards evaluate; settings of the cluster are read again once the lock is held."""
        settings = fleet.guards_of(self.cluster)
        rules = [chosen for chosen in self._counting.values() if chosen is not None]
        locked = counts.lock(self.cluster, settings, rules) if lock and rules else None
        counted = [(node, incident) for node, incident in cases if node.pk in self._counting]
        if locked is not None:  # the previous holder of the lock may have changed the mode or the guards
            before, self.cluster = self.cluster, locked
            for node, incident in cases:
                node.cluster = incident.cluster = locked
            settings = self._read_again(before, counted, settings)
        self._counts = counts.Counts(
            self.cluster,
            settings=settings,
            now=self._now,
            nodes=[node for node, _ in counted],
            codes=[(incident.kind, incident.code) for _, incident in counted],
            without_storm=self._without_storm,
        )

    def _read_again(
        self, before: Cluster, counted: Sequence[tuple[Node, Incident]], settings: guards.Settings
    ) -> guards.Settings:
        """Brings the facts up to date with the settings of the locked cluster; returns its guards."""
        cluster, now_set = self.cluster, fleet.guards_of(self.cluster)
        if now_set != settings:
            for node, incident in counted:
                seen = node_facts(node, incident, self._past, settings=now_set, now=self._now)
                self._facts[node.pk] = replace(self._facts[node.pk], settings=now_set, node=seen)
        if _answers(cluster) != _answers(before):
            cluster_facts = _cluster_facts(cluster, fleet.mode_of(cluster))
            for node, _ in counted:
                self._facts[node.pk] = replace(self._facts[node.pk], cluster=cluster_facts)
        return now_set


def _may_be_storm(facts: decide.Situation) -> bool:
    """Returns whether a storm is looked for although no rule applies: the fault speaks against its node."""
    fault = facts.fault
    return facts.settings.storm.enabled and not (fault.application or fault.harmless or fault.drill)


def _answers(cluster: Cluster) -> tuple[str, str, str, bool, str]:
    """The settings of a cluster that a decision depends on, besides its guards."""
    own = (cluster.drills, cluster.isolate_before_approval, cluster.on_drain_timeout)
    return fleet.own_mode(cluster), cluster.decision_mode, *own


def _cluster_facts(cluster: Cluster, strictest: tuple[str, str]) -> decide.ClusterFacts:
    mode, pause_reason = strictest
    return decide.ClusterFacts(
        name=cluster.name,
        installation_mode=mode,
        mode=fleet.own_mode(cluster),
        pause_reason=pause_reason,
        decision_mode=cluster.decision_mode,
        drills=cluster.drills,
        isolate_before_approval=cluster.isolate_before_approval,
        on_drain_timeout=cluster.on_drain_timeout,
    )


def _fault(incident: Incident, rules: Sequence[match.Candidate], *, now: datetime) -> decide.FaultFacts:
    return decide.FaultFacts(
        kind=incident.kind,
        code=incident.code,
        cause=incident.cause,
        fatal=incident.line.fatal,
        count=incident.count,
        seen_within=seen_within(incident, rules, now=now),
        drill=incident.drill,
        application=incident.is_user_fault,
        harmless=incident.is_harmless,
        last_seen_at=incident.last_at,
    )


def seen_within(incident: Incident, rules: Sequence[match.Candidate], *, now: datetime) -> dict[int, int]:
    """Occurrences of the fault before ``now``, by window in seconds, for each window that a rule refers to."""
    return {seconds: incidents.seen_within(incident, seconds, now=now) for seconds in match.windows(rules)}
