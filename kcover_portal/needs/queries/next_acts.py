"""The acts that a caller may do next about a need, the most useful first."""

from dataclasses import dataclass

from kcover.faults import catalog
from kcover.needs import Need
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import Verb
from kcover_portal.jobs.models import JobOrder
from kcover_portal.needs.queries.causes import Entry
from kcover_portal.needs.queries.items import Item
from kcover_portal.rescue.control import voters
from kcover_portal.rescue.models import Rescue

MAX_ROWS = 50  # rows of one cause whose acts are listed
# How a rescue by hand follows the catalog's response to a code; other faults are drained.
REBOOTS = {"drain_and_reboot", "drain_and_reset", "schedule_reset_when_idle", "restart_workload_then_schedule_reset"}


@dataclass(frozen=True, slots=True)
class Route:
    """A view of the console or of REST by name, with its arguments."""

    view: str
    args: tuple[str | int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NextAct:
    """One act. ``rest``, ``page``: where to do it over REST and on the console. ``node``: of which node, or ""."""

    name: str
    needed: Verb
    method: str = "POST"
    rest: Route
    page: Route
    node: str = ""


def next_acts(entry: Entry, who: accounts.Principal) -> list[NextAct]:
    """The acts about the first ``MAX_ROWS`` rows that the caller has the roles for."""
    found = [
        act
        for item in entry.items[:MAX_ROWS]
        for act in _of_item(entry, item, who)
        if accounts.may(who, act.needed, item.place or item.cluster)
    ]
    if entry.nature == "uncovered" and accounts.may(who, Verb.WRITE_POLICIES, None):
        add = NextAct(name="add_rule", needed=Verb.WRITE_POLICIES, rest=Route("policies"), page=Route("policy-new"))
        found.insert(min(1, len(found)), add)
    return found


def _of_item(entry: Entry, item: Item, who: accounts.Principal) -> list[NextAct]:
    match entry.kind:
        case Need.LEDGER | Need.STORM:
            return [_same("close", Verb.CLOSE, "incident-close", item.row.pk)]
        case Need.APPROVAL:
            return _of_request(item, who)
        case Need.INCIDENT:
            return _of_fault(entry, item)
        case Need.RESCUE:
            return _of_rescue(entry, item)
        case Need.JOB:
            return _of_order(item)
        case Need.REPAIR:
            moves = item.row.moves
            return [_same(f"repair_{move}", Verb.HANDLE_REPAIRS, "repair-act", item.row.pk, move) for move in moves]
        case Need.PART:
            page = Route("part-review", (item.row.part_id, item.row.pk))
            rest = Route("part-review", (item.row.part_id,))
            return [NextAct(name="review_part", needed=Verb.HANDLE_REPAIRS, rest=rest, page=page, node=item.node)]
        case Need.SOURCE:
            return [_same("test", Verb.GUARD, "source-test", item.row.name)]
        case Need.WATCH:
            return []


def _same(name: str, needed: Verb, view: str, *args: str | int, node: str = "") -> NextAct:
    """An act whose views have the same name and arguments on the console and in REST."""
    return NextAct(name=name, needed=needed, rest=Route(view, args), page=Route(view, args), node=node)


def _of_node(name: str, item: Item, verb: str) -> NextAct:
    return _same(name, Verb.REPAIR, "node-act", item.cluster.name, item.node, verb, node=item.node)


def _repair(entry: Entry, item: Item) -> NextAct:
    """The open repair of the node; without one, the form that reports it."""
    known = entry.repairs.of(item.place)
    if known is not None:
        page = Route("repair", (known,))
        return NextAct(
            name="see_repair", needed=Verb.HANDLE_REPAIRS, method="GET", rest=page, page=page, node=item.node
        )
    page = Route("repair-new", (item.cluster.name, item.node))
    return NextAct(name="open_repair", needed=Verb.HANDLE_REPAIRS, rest=Route("repairs"), page=page, node=item.node)


def _of_request(item: Item, who: accounts.Principal) -> list[NextAct]:
    if voters.is_requester(item.row, accounts.actor(who)):
        return []
    return [
        _same(name, Verb.APPROVE, "rescue-act", item.row.pk, name, node=item.node) for name in ("approve", "reject")
    ]


def _of_fault(entry: Entry, item: Item) -> list[NextAct]:
    rescue = _of_node("rescue", item, verb_for(item.row.kind, item.row.code))
    resolve = _same("resolve", Verb.CLOSE, "incident-close", item.row.pk, node=item.node)
    marked = [_of_node("release", item, "release")] if entry.nature == "stopped" else []
    return [rescue, *marked, _repair(entry, item), resolve]


def verb_for(kind: str, code: str) -> str:
    """The act that rescues a node from a fault: what the catalog advises, or a drain."""
    known = catalog.describe_text(kind, code)
    return "reboot" if known is not None and known.node_response in REBOOTS else "drain"


def _of_rescue(entry: Entry, item: Item) -> list[NextAct]:
    rescue: Rescue = item.row
    if rescue.closed_at is None:
        return [_same("retry", Verb.REPAIR, "rescue-act", rescue.pk, "retry", node=item.node), _repair(entry, item)]
    return [_repair(entry, item), _of_node("release", item, "release")]


def _of_order(item: Item) -> list[NextAct]:
    order: JobOrder = item.row
    job = (item.cluster.name, order.namespace, order.kind, order.name)
    verbs = (order.action, "decline") if order.awaits_approval else (order.action,)
    return [_same(verb, Verb.REPAIR, "job-act", *job, verb) for verb in verbs]
