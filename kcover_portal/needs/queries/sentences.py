"""What a need is and why it waits, as reasons: the same words on pages, in REST and in messages."""

from collections.abc import Iterable, Mapping, Sequence

from kcover import need_causes, reasons
from kcover.decisions import decide
from kcover.faults import catalog, fault
from kcover.needs import Need
from kcover.sentences import shipped_policies
from kcover_portal.incidents.models import Incident
from kcover_portal.needs.queries.items import Item
from kcover_portal.rescue.models import Rescue

FAULTS: Mapping[str, str] = {
    "xid": "need_xid",
    "sxid": "need_sxid",
    "check": "need_check",
    "condition": "need_condition",
    "alert": "need_alert",
    "pod": "need_pod",
    "preflight": "need_preflight",
}


def fault_of(kind: str, code: str) -> reasons.Reason:
    """The name of a fault: Xid 79."""
    if (kind, code) == ("agent", "silent"):
        return reasons.of("need_agent_silent")
    if kind == fault.OVERFLOW:
        return reasons.of("need_overflow")
    if kind in FAULTS:
        return reasons.of(FAULTS[kind], code=code)
    return reasons.of("need_other_fault", kind=kind, code=code)


def where(nodes: Sequence[str], shared: tuple[str, str] | None) -> str | reasons.Reason:
    """The node, or how many there are and what place they share."""
    if len(nodes) == 1:
        return nodes[0]
    if shared is None:
        return reasons.of("need_on_nodes", n=len(nodes))
    domain, value = shared
    return reasons.of(f"need_on_nodes_{domain}", n=len(nodes), value=value)


def meaning(kind: str, code: str) -> tuple[str, str]:
    """(The title of a code in NVIDIA's catalog, the usual remedy), in English; "" where the catalog has none."""
    if kind not in ("xid", "sxid") or not code.isdecimal():
        return "", ""
    entry = catalog.describe(kind, int(code))
    return (entry.title if entry else ""), catalog.remedy(kind, int(code))


def tells_what_to_do(why: Iterable[reasons.Reason]) -> bool:
    """Returns whether a rule calls a person with an instruction of its own: another one beside it would contradict."""
    called = [dict(one.params)["message"] for reason in why for one in reasons.saying(reason, "escalated")]
    return any(message != shipped_policies.DEFAULT for message in called)


def what(kind: Need, item: Item, nodes: Sequence[str], shared: tuple[str, str] | None) -> reasons.Reason:
    """What needs attention. ``item``: the first of the cause."""
    row = item.row
    match kind:
        case Need.LEDGER:
            return reasons.of("need_ledger", cluster=item.cluster.name)
        case Need.STORM:
            return reasons.of("need_storm", symptom=_symptom(row), where=where(row.scope, shared))
        case Need.INCIDENT:
            return reasons.of("need_fault", fault=fault_of(row.kind, row.code), where=where(nodes, shared))
        case Need.RESCUE | Need.APPROVAL:
            return _what_of_rescue(kind, row, where(nodes, shared))
        case Need.JOB:
            return reasons.of("need_job", job=f"{row.namespace}/{row.name}")
        case Need.REPAIR:
            return reasons.of("need_repair", where=where(nodes, shared))
        case Need.PART:
            return reasons.of("need_part", serial=row.part.serial, where=where(nodes, shared))
        case Need.WATCH:
            return reasons.of("need_watch", cluster=item.cluster.name)
        case Need.SOURCE:
            return reasons.of("need_source", source=row.name)


def _what_of_rescue(kind: Need, rescue: Rescue, place: str | reasons.Reason) -> reasons.Reason:
    by_fault, by_hand = {
        Need.RESCUE: ("need_rescue", "need_manual_rescue"),
        Need.APPROVAL: ("need_approval", "need_manual_approval"),
    }[kind]
    if not rescue.fault_kind:
        return reasons.of(by_hand, where=place)
    return reasons.of(by_fault, fault=fault_of(rescue.fault_kind, rescue.fault_code), where=place)


def _symptom(storm: Incident) -> str | reasons.Reason:
    if storm.trait == "code":
        return fault_of(storm.symptom_kind, storm.symptom)
    known = {"job": "need_symptom_job", "switch": "need_symptom_switch", "agent_version": "need_symptom_version"}
    return reasons.of(known[storm.trait], value=storm.symptom) if storm.trait in known else storm.code


def why_unhandled(item: Item, stopped: Rescue | None) -> tuple[str, tuple[reasons.Reason, ...]]:
    """(What kind of reason, the reasons) why nothing is done about a fault.

    ``stopped``: the node's newest rescue, if a person denied or cancelled it.
    """
    row: Incident = item.row
    if stopped is not None and stopped.closed_at is not None and (stopped.marks or row.last_at <= stopped.closed_at):
        said, number = reasons.kept(stopped.because), str(stopped.pk)
        why = reasons.of("need_stopped", rescue=number, why=said) if said else None
        return "stopped", (why or reasons.of("need_stopped_unsaid", rescue=number), reasons.of("need_still_working"))
    if not item.why:
        return "undecided", (reasons.of("need_undecided"),)
    nature = "uncovered" if decide.says_no_rule(item.why) else "held"
    return nature, in_short(row, item.why)


def in_short(incident: Incident, why: tuple[reasons.Reason, ...]) -> tuple[reasons.Reason, ...]:
    """The reasons of a decision without the rules that do not match, and without the one that does."""
    if why and decide.says_no_rule(why):
        none = tuple(reason for reason in why if reasons.says(reason, "no_policy"))
        return none or (reasons.of("need_uncovered", fault=fault_of(incident.kind, incident.code)),)
    return decide.without_match(why) or why


def why_waiting(kind: Need, item: Item) -> tuple[reasons.Reason, ...]:
    """Why it waits, of every kind but a fault that nothing handles."""
    if kind == Need.LEDGER:
        return (reasons.of("need_ledger_why"),)
    if kind == Need.STORM:
        return (reasons.of("need_storm_why"),)
    if kind == Need.APPROVAL:
        rescue: Rescue = item.row
        if rescue.rule:
            return (reasons.of("need_asks", rule=rescue.rule),)
        return (reasons.of("need_asked_by", by=rescue.requested_by),)
    return item.why or (reasons.of("need_unexplained"),)


def severity_of(items: Sequence[Item]) -> str:
    """The worst severity of the items; "" if none has one."""
    return max((item.severity for item in items if item.severity), key=need_causes.rank, default="")
