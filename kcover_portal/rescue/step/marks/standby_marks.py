"""The changes of a standby when it is reserved, put into service and given back: one patch each, mark included.

Each patch is computed from the live node and from the mark on it, not from a row that may be older.
"""

from collections.abc import Collection, Mapping
from datetime import datetime

from kcover import reasons
from kcover.decisions import guards, standby
from kcover.nodes import marks as core_marks
from kcover.policy import document
from kcover_portal.fleet import queries as fleet
from kcover_portal.kube import port
from kcover_portal.lib import doorbell
from kcover_portal.rescue.models import Assignment
from kcover_portal.rescue.step import recheck_guards
from kcover_portal.rescue.step.errors import WriteForbidden
from kcover_portal.rescue.step.marks import probation_marks

# Pool labels that people chose. Labels with a prefix belong to a platform, which uses them to identify machines.
ROLE_KEYS = tuple(key for key in fleet.POOL_LABELS if "/" not in key)
STATE = core_marks.STATE_LABEL


class StandbyUnfit(WriteForbidden):
    """The standby cannot take the role (any more)."""


def promised(assignment: Assignment) -> port.DesiredChange:
    """Labels the standby as reserved. The patch raises StandbyUnfit if the live node is not a free, healthy standby."""

    def wanted(node: port.Node) -> port.NodeChange:
        _check(node, assignment)
        if _mark(node, assignment) is not None:
            return port.NodeChange()
        mark = standby.StandbyMark(
            assignment=assignment.pk,
            rescue=assignment.rescue_id,
            origin=assignment.origin.name,
            before={STATE: node.labels.get(STATE)},
            after={STATE: standby.RESERVED},
        )
        return port.NodeChange(labels=mark.after, annotations={standby.ANNOTATION: mark.render()})

    return wanted


def in_service(
    assignment: Assignment,
    origin: port.Node,
    *,
    rules: Collection[document.StandbyRule],
    ours: core_marks.Marks,
) -> port.DesiredChange:
    """Hands the role over: labels and taints, and the standby takes work. Raises StandbyUnfit as ``promised`` does.

    ``ours``: what the rescue itself changed on the origin, which is not part of the role.
    """
    labels = _without(origin.labels, ours)

    def wanted(node: port.Node) -> port.NodeChange:
        mark = _mark(node, assignment)
        if mark is None:
            raise StandbyUnfit(reasons.of("standby_mark_gone", standby=node.name))
        if mark.active:
            return port.NodeChange()
        _check(node, assignment)
        change = standby.handover(
            labels=labels,
            taints=_plain(origin.taints),
            standby_labels=node.labels,
            standby_taints=_plain(node.taints),
            keys=ROLE_KEYS,
            rule=standby.rule_met(rules, labels=labels, standby_labels=node.labels),
            ours=ours.taints,
        )
        after: dict[str, str | None] = {**change.labels, **dict.fromkeys(change.drop_labels)}
        state = {STATE: mark.before.get(STATE)} if node.labels.get(STATE) == standby.RESERVED else {}
        done = standby.StandbyMark(
            assignment=mark.assignment,
            rescue=mark.rescue,
            origin=mark.origin,
            active=True,
            uncordoned=node.unschedulable,
            before={key: node.labels.get(key) for key in after},
            after=after,
            added=change.add_taints,
            dropped=change.drop_taints,
        )
        # Before the call, because only what the row states is reverted.
        Assignment.objects.filter(pk=assignment.pk).update(marks_begun=done.to_json())
        return port.NodeChange(
            cordon=False,
            labels={**state, **after},
            annotations={standby.ANNOTATION: done.render()},
            add_taints=_taints(change.add_taints),
            remove_taints=_taints(change.drop_taints),
        )

    return wanted


def given_back(assignment: Assignment) -> port.DesiredChange:
    """Makes it a standby again: reverts what was changed, unless someone has changed it since."""

    def wanted(node: port.Node) -> port.NodeChange:
        mark = _mark(node, assignment)
        if mark is None:
            return port.NodeChange()
        present = {(taint.key, taint.effect) for taint in node.taints}
        return port.NodeChange(
            cordon=True if mark.uncordoned else None,
            labels={key: mark.before.get(key) for key, given in mark.after.items() if node.labels.get(key) == given},
            annotations={standby.ANNOTATION: None},
            add_taints=_taints([dropped for dropped in mark.dropped if (dropped[0], dropped[2]) not in present]),
            remove_taints=_taints(mark.added),
        )

    return wanted


def mark_json(node: port.Node, assignment: Assignment) -> dict[str, object]:
    """The assignment's mark on the node as JSON, as far as its row proves it; empty for none."""
    mark = _mark(node, assignment)
    return mark.to_json() if mark else {}


def note_given_back(assignment: Assignment, *, because: reasons.Reason, now: datetime) -> None:
    """Closes the assignment's row after the node has been reverted."""
    rows = Assignment.objects.filter(pk=assignment.pk).exclude(state=Assignment.State.RELEASED)
    rows.update(state=Assignment.State.RELEASED, because=because.to_json(), marks={}, marks_begun={}, released_at=now)
    doorbell.publish("node", assignment.spare_id, cluster=assignment.spare.cluster.name)


def _check(node: port.Node, assignment: Assignment) -> None:
    mark = standby.read_mark(node.annotations.get(standby.ANNOTATION, ""))
    if mark is not None and mark.assignment != assignment.pk:
        raise StandbyUnfit(reasons.of("standby_other_mark", standby=node.name, assignment=str(mark.assignment)))
    if node.labels.get(standby.LABEL) != "true":
        raise StandbyUnfit(reasons.of("standby_no_longer", standby=node.name))
    keys = {taint.key for taint in node.taints}
    doubt = standby.doubt_of(node.name, labels=node.labels, taint_keys=keys, unschedulable=node.unschedulable)
    if doubt is not None:
        raise StandbyUnfit(doubt)
    if node.labels.get(guards.EXCLUDE_LABEL) == "true":
        raise StandbyUnfit(recheck_guards.excluded(node.name))
    if core_marks.parse(node.annotations.get(core_marks.ANNOTATION, "")):
        raise StandbyUnfit(reasons.of("standby_marked_by_rescue", standby=node.name))
    if probation_marks.on(node) is not None:
        raise StandbyUnfit(reasons.of("node_on_probation", node=node.name))
    if not node.ready:
        raise StandbyUnfit(reasons.of("standby_not_ready", standby=node.name))


def _mark(node: port.Node, assignment: Assignment) -> standby.StandbyMark | None:
    """The assignment's mark on the node, as far as its row proves it: the node's kubelet may write there."""
    mark = standby.read_mark(node.annotations.get(standby.ANNOTATION, ""))
    if mark is None or mark.assignment != assignment.pk:
        return None
    stored = Assignment.objects.filter(pk=assignment.pk).values_list("marks", "marks_begun").first() or ({}, {})
    known = [standby.mark_of(content) for content in stored if content]
    return mark.proved([one for one in known if one is not None])


def _without(labels: Mapping[str, str], own: core_marks.Marks) -> dict[str, str]:
    back = {**labels, **own.labels_to_restore(labels)}
    return {key: value for key, value in back.items() if value is not None}


def _plain(taints: Collection[port.Taint]) -> tuple[standby.Taint, ...]:
    return tuple((taint.key, taint.value, taint.effect) for taint in taints)


def _taints(taints: Collection[standby.Taint]) -> tuple[port.Taint, ...]:
    return tuple(port.Taint(*taint) for taint in taints)
