"""Reads gpud on each node. A node that does not answer delays no other, and its events are read later.

The address has ``{node}`` or ``{address}`` in it, which stand for the name of a node and its internal address. An
address without them is the gpud of one node.

The position: when the round before began (``since``) and the present one (``round``), the last node that was read in it
(``after``), and of each node (``nodes``) the states that are not healthy, a digest of all of them, the boot in which
they were read, and since when it has not answered.
"""

import ipaddress
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from django.db import transaction
from django.db.models import Q

from kcover import reasons
from kcover.sources import gpud
from kcover.sources.observation import Unreadable
from kcover_portal.fleet.models import Gpu, Node
from kcover_portal.incidents import queries as incidents
from kcover_portal.sources.models import Source
from kcover_portal.sources.services import intake, pull_position, source_faults, source_settings
from kcover_portal.sources.services.pull_position import Clock
from kcover_portal.sources.services.pull_request import NotRead, ask, headers_of

STATES, EVENTS = "/v1/states", "/v1/events"
PLACES: Final = ("{node}", "{address}")
SECONDS: Final = 3.0  # for one request to a node
LATENESS: Final = timedelta(seconds=60)  # each reading of events begins so long before the end of the last one
TOGETHER: Final = 8  # nodes that are asked at a time
NODES_PER_WRITE: Final = 64  # nodes whose answers are stored together
MAX_TURN: Final = timedelta(seconds=20)
TESTED: Final = 20  # nodes that a test asks

Answer = gpud.NodeAnswer | reasons.Reason  # what the node says, or why it says nothing
State = dict[str, Any]


def read(source: Source, *, clock: Clock) -> bool:
    """Reads the nodes after the last one that was read, for MAX_TURN. Returns whether there are more of them.

    Raises NotRead if no node gave an answer.
    """
    started = clock()
    state: State = {"after": "", "nodes": {}, **source.cursor}
    if not state["after"]:
        begun = started.isoformat()
        state |= {"since": state.get("round", begun), "round": begun}
    nodes = [node for node in _nodes(source) if node.name > state["after"]]
    for some in _slices(nodes):
        now = clock()
        _remember(source, some, state)
        answers = _ask_all(source, some, state, now=now)
        state["after"] = some[-1].name
        _store(source, some, answers, state, now=now)
        if clock() - started > MAX_TURN and some[-1] is not nodes[-1]:
            return True
    names = {node.name for node in _nodes(source)}
    state |= {"after": "", "nodes": {name: kept for name, kept in state["nodes"].items() if name in names}}
    pull_position.store(source, state)
    _note_silent(source, state, total=len(names), now=clock())
    return False


def _nodes(source: Source) -> list[Node]:
    """The nodes with GPUs, by name; of an address without a place for the node, its one node. Raises NotRead."""
    has_gpus = Q(gpus__gt=0) | Q(pk__in=Gpu.objects.values("node"))
    found = Node.objects.filter(cluster=source.cluster, in_cluster=True)
    if any(place in source.url for place in PLACES):
        return list(found.filter(has_gpus).order_by("name"))
    if name := source.settings.get("node"):
        return list(found.filter(name=name))
    only = list(found.filter(has_gpus)[:2])
    if len(only) != 1:
        raise NotRead(reasons.of("source_gpud_node", places=" / ".join(PLACES), setting="node"))
    return only


def _slices(nodes: Sequence[Node]) -> Iterator[Sequence[Node]]:
    return (nodes[at : at + NODES_PER_WRITE] for at in range(0, len(nodes), NODES_PER_WRITE))


def _remember(source: Source, nodes: Sequence[Node], state: State) -> None:
    """Of nodes that the position does not know: the components about which this source has an open incident.

    Without them a component that is healthy at the first reading would end nothing.
    """
    names = [node.name for node in nodes if "components" not in state["nodes"].get(node.name, {})]
    told = incidents.open_codes(source.cluster, names, "gpud", witness=source.name) if names else set()
    for name, component, _ in sorted(told):
        kept = state["nodes"].setdefault(name, {})
        kept["shown"] = {f"{component}\t": "", **kept.get("shown", {})}


def _ask_all(source: Source, nodes: Sequence[Node], state: State, *, now: datetime) -> dict[str, Answer]:
    ask_one = partial(
        _ask_node,
        headers=headers_of(source),
        verify=not source.settings.get("insecure", False),
        state=state,
        now=now,
    )
    with ThreadPoolExecutor(TOGETHER, thread_name_prefix="gpud") as pool:
        answers = pool.map(ask_one, [(_address(source.url, node), node) for node in nodes])
        return dict(zip((node.name for node in nodes), answers, strict=True))


def _ask_node(
    place: tuple[str | None, Node], *, headers: dict[str, str], verify: bool, state: State, now: datetime
) -> Answer:
    """What the gpud of a node says. Runs in a thread, without the database."""
    url, node = place
    if url is None:
        return reasons.of("host_without_address", host=node.name)
    kept = state["nodes"].get(node.name, {})
    since = max(datetime.fromisoformat(kept.get("since", state["since"])), now - source_faults.MAX_AGE)
    call = partial(ask, url, headers=headers, seconds=SECONDS, verify=verify)
    try:
        states = call(STATES, {})  # first: the event of a state that is read is in the store already
        events = call(EVENTS, {"startTime": str(int((since - LATENESS).timestamp()))})
        shown, components = kept.get("shown", {}), kept.get("components", "")
        read_at = since if components else None  # without them the node was never read
        is_booted = read_at is not None and (kept.get("boot") or node.boot_id) != node.boot_id
        if read_at is not None and is_booted:
            read_at -= LATENESS  # its row may have been older than its answers: they were of the boot before
        return gpud.read(
            states,
            events,
            node=node.name,
            runtime=node.runtime,
            shown=shown,
            components=components,
            read_at=read_at,
            is_booted=is_booted,
            now=now,
        )
    except (NotRead, Unreadable) as error:
        return error.reason


def _address(url: str, node: Node) -> str | None:
    """The address of a node's gpud; None without a valid address of the node, which its kubelet sets."""
    if "{address}" in url:
        try:
            found = ipaddress.ip_address(node.address.partition("%")[0])
        except ValueError:
            return None
        url = url.replace("{address}", f"[{found}]" if found.version == 6 else str(found))
    return url.replace("{node}", node.name)


def _store(source: Source, nodes: Sequence[Node], answers: dict[str, Answer], state: State, *, now: datetime) -> None:
    """Stores what the nodes say, with the position behind it."""
    said, boots = [], {node.name: node.boot_id for node in nodes}
    for name, answer in answers.items():
        kept = state["nodes"].pop(name, {})
        if isinstance(answer, reasons.Reason):
            since = kept.get("since", state["since"])
            state["nodes"][name] = {**kept, "since": since, "why": answer.to_json()}
            continue
        said.append(answer.batch)
        shown = {"shown": answer.shown} if answer.shown else {}
        state["nodes"][name] = {"components": answer.components, "boot": boots[name], **shown}
    with transaction.atomic():
        for batch in said:
            if batch.observations or batch.rejected:
                intake.take(source, batch, now=now)
        pull_position.store(source, state)


def _note_silent(source: Source, state: State, *, total: int, now: datetime) -> None:
    """Tells which nodes did not answer. Raises NotRead if none did."""
    silent = {name: kept["why"] for name, kept in sorted(state["nodes"].items()) if "why" in kept}
    if not silent:
        if reasons.stored_saying(source.error, "source_nodes_silent"):
            source_settings.note_error(source, None, now=now)
        return
    node, why = next(iter(silent.items()))
    numbers = {"count": len(silent), "total": total}
    reason = reasons.of("source_nodes_silent", node=node, why=reasons.from_json(why), **numbers)
    if len(silent) == total:
        raise NotRead(reason)
    source_settings.note_error(source, reason, now=now)


def seen(source: Source, *, since: timedelta, now: datetime) -> int:
    """The number of faults that the first nodes show since then. Raises NotRead if none of them answers."""
    state = {"since": (now - since).isoformat(), "nodes": {}}
    answers = list(_ask_all(source, _nodes(source)[:TESTED], state, now=now).values())
    batches = [answer.batch for answer in answers if not isinstance(answer, reasons.Reason)]
    if answers and not batches:
        raise NotRead(next(answer for answer in answers if isinstance(answer, reasons.Reason)))
    return sum(len(batch.observations) for batch in batches)
