"""What needs attention, as cards: what, why it waits, what NVIDIA advises, and the next click."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from urllib.parse import urlencode

from django.db.models import Model
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext, gettext_lazy as _

from kcover import need_causes
from kcover.needs import Need
from kcover.plans import lifecycle
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import User, Verb
from kcover_portal.console import action_labels, presentation
from kcover_portal.console.badge import Badge
from kcover_portal.console.reads import guard_holds, need_hits
from kcover_portal.console.reads.wait import Wait
from kcover_portal.fleet.models import Cluster
from kcover_portal.lib import localization
from kcover_portal.needs import queries, services
from kcover_portal.rescue.models import Step

MAX_NODES = 12  # nodes that a card names; the others are behind a link
MAX_PICKED = 100  # rows of one bulk action
LOOKS: Final = {
    Need.LEDGER: Badge("", "bad", "bolt"),
    Need.STORM: presentation.of("guard", "storm"),
    Need.RESCUE: presentation.of("node", "attention"),
    Need.APPROVAL: presentation.of("node", "approval"),
    Need.INCIDENT: presentation.of("node", "faulty"),
    Need.JOB: presentation.of("node", "attention"),
    Need.REPAIR: Badge("", "ask", "tool"),
    Need.PART: Badge("", "ask", "cpu"),
    Need.WATCH: Badge("", "ask", "wifi-off"),
    Need.SOURCE: Badge("", "ask", "plug-connected-x"),
}
LABELS: Final[dict[str, tuple[str | Promise, str]]] = {
    "rescue": (_("Rescue now"), "heart-rate-monitor"),
    "add_rule": (_("Add a rule"), "plus"),
    "open_repair": (_("Report a repair"), "tool"),
    "see_repair": (_("Show the repair"), "tool"),
    "review_part": (_("Review the part"), "cpu"),
    "resolve": (_("Mark as resolved"), "check"),
    "close": (_("Close"), "check"),
    "test": (_("Test the source"), "plug"),
    "restart": (_("Restart"), "refresh"),
    "stop": (_("Stop"), "ban"),
    "decline": (_("Decline"), "x"),
}
PAGES: Final = ("add_rule", "see_repair")  # acts that open a page; the others open a dialog
# Acts on many rows at once: the list, and of a node's act the verb is in its route.
MANY: Final = {"approve": "rescues", "reject": "rescues", "rescue": "nodes", "release": "nodes"}


@dataclass(frozen=True, slots=True)
class CardAct:
    """A button of a card. ``asks``: it opens a dialog."""

    name: str
    label: str | Promise
    icon: str
    href: str
    asks: bool
    primary: bool


@dataclass(frozen=True, slots=True)
class AskedPlan:
    """What an approval is about: the titles of the steps that ran, and of those that run once it is given.

    ``isolated``: without an answer the node stays out of scheduling; else nothing was done to it.
    """

    done: Sequence[str]
    next: Sequence[str]
    isolated: bool


@dataclass(frozen=True, slots=True)
class Card:
    """One entry as it is shown. ``page``: where to read on. ``handles``: the reader may acknowledge it and so on.

    ``elsewhere``: on how many other nodes the same waits, where the card is about some of its rows only.
    """

    entry: queries.Entry
    look: Badge
    title: str
    why: str
    page: str
    acts: Sequence[CardAct]
    nodes: Sequence[tuple[str, str]]
    handles: bool
    hit: need_hits.Hit | None = None
    elsewhere: int = 0
    plan: AskedPlan | None = None

    @property
    def wait(self) -> Wait | None:
        """What ends the hold of a guard on its decision; None if none holds it back."""
        is_decision = self.entry.kind == Need.INCIDENT
        return guard_holds.of_decision(self.entry.items[0].why) if is_decision else None

    @property
    def snoozes(self) -> bool:
        """Returns whether this kind may be out of sight for a while."""
        return self.entry.kind not in need_causes.NEVER_SNOOZED

    @property
    def not_ready(self) -> int:
        """How many of its nodes Kubernetes reports as not Ready; their list has only those without a fault."""
        places = {item.place.pk: item.place for item in self.entry.items if item.place is not None}
        return sum(node.in_cluster and not node.ready for node in places.values())

    @property
    def more_nodes(self) -> int:
        """How many of its nodes are not named."""
        return max(0, len(self.entry.nodes) - MAX_NODES)

    @property
    def meaning(self) -> str:
        """What the code means, in the reader's language; "" if the catalog has nothing."""
        return gettext(self.entry.meaning) if self.entry.meaning else ""

    @property
    def advice(self) -> str:
        """The usual remedy, in the reader's language; "" if there is none."""
        return gettext(self.entry.advice) if self.entry.advice else ""


@dataclass(frozen=True, slots=True)
class Needs:
    """The cards, the snoozed ones apart. ``left_out``: rows that were too many to read, with their list."""

    cards: Sequence[Card]
    snoozed: Sequence[Card]
    left_out: Sequence[tuple[int, str]]

    @property
    def total(self) -> int:
        """How many there are: the number of the list, of its tile and of the navigation."""
        return len(self.cards)


def of(user: User, clusters: Sequence[Cluster], *, now: datetime) -> Needs:
    """Everything that needs attention in the user's part of the fleet, the worst first."""
    found = queries.entries(accounts.scope(user), clusters, now=now)
    cards = _cards(found.entries, user)
    lists = [(number, _list_of(kind)) for kind, number in found.left_out.items()]
    return Needs(
        [card for card in cards if not card.entry.snoozed], [card for card in cards if card.entry.snoozed], lists
    )


def number(user: User, *, now: datetime) -> int:
    """The number of cards on the home page."""
    scope = accounts.scope(user)
    return len(queries.entries(scope, list(scope.clusters()), now=now).open)


def about(user: User, cluster: Cluster, rows: Collection[Model], *, now: datetime) -> list[Card]:
    """The cards about these rows: a node, an incident or a rescue. Their acts are about these rows only."""
    wanted = {(type(row), row.pk) for row in rows}
    found, cards = [], []
    for entry in queries.entries(accounts.scope(user), [cluster], now=now).entries:
        items = tuple(
            item
            for item in entry.items
            if (type(item.row), item.row.pk) in wanted or (item.place and (type(item.place), item.place.pk) in wanted)
        )
        if items:
            found.append((queries.narrowed(entry, items), entry))
    for card, (_entry, whole) in zip(_cards([entry for entry, _whole in found], user), found, strict=True):
        elsewhere = len(set(whole.nodes) - set(card.entry.nodes))
        cards.append(replace(card, page=_page(whole), elsewhere=elsewhere))
    return cards


def _cards(entries: Sequence[queries.Entry], user: User) -> list[Card]:
    hits, plans = need_hits.of(entries), _plans(entries)
    return [replace(_card(entry, user), hit=hits.get(entry.id), plan=plans.get(entry.id)) for entry in entries]


def _plans(entries: Sequence[queries.Entry]) -> dict[str, AskedPlan]:
    """The plan of each request, by the entry's id; of several requests the first to expire. At most one query."""
    asked = {entry.id: entry.items[0].row for entry in entries if entry.kind == Need.APPROVAL}
    steps: dict[int, list[tuple[str, str]]] = defaultdict(list)
    rows = Step.objects.filter(rescue__in=[rescue.pk for rescue in asked.values()]).order_by("index") if asked else ()
    for step in rows:
        steps[step.rescue_id].append((presentation.step_title(step.name), step.state))
    return {
        key: AskedPlan(
            done=[title for title, state in steps[rescue.pk] if state == Step.State.DONE],
            next=[title for title, state in steps[rescue.pk] if state not in lifecycle.FINISHED_STEP],
            isolated=bool(rescue.marks),
        )
        for key, rescue in asked.items()
    }


def _card(entry: queries.Entry, user: User) -> Card:
    return Card(
        entry=entry,
        look=LOOKS[entry.kind],
        title=localization.say(entry.what).rstrip(".。"),
        why=localization.sentence(entry.why),
        page=_page(entry),
        acts=list(_acts(entry, user)),
        nodes=_nodes(entry),
        handles=all(accounts.may(user, Verb.REPAIR, place) for place in services.places_of(entry)),
    )


def _nodes(entry: queries.Entry) -> list[tuple[str, str]]:
    """The names of its nodes with their pages. A single one is named in the title."""
    if len(entry.nodes) < 2:
        return []
    return [(name, reverse("console:node", args=(entry.cluster.name, name))) for name in entry.nodes[:MAX_NODES]]


def _acts(entry: queries.Entry, user: User) -> Iterator[CardAct]:
    """One button for each act that the user may do; with many rows those that can be done to all of them at once."""
    by_name: dict[str, list[queries.NextAct]] = defaultdict(list)
    for act in queries.next_acts(entry, user):
        by_name[act.name].append(act)
    many = len(entry.items) > 1
    usable = {name: acts for name, acts in by_name.items() if not many or name in MANY or name in PAGES}
    for place, (name, acts) in enumerate(usable.items()):
        label, icon = _label(name)
        page = acts[0].page
        if many and name in MANY:
            href = _href_of_many(name, entry, str(page.args[-1]))
        elif name == "see_repair" and len(acts) > 1:
            label, href = _("Show the repairs"), _repairs_of(entry.cluster)
        elif name == "add_rule":
            fault = entry.items[0].row
            href = f"{reverse(f'console:{page.view}')}?{urlencode({'kind': fault.kind, 'code': fault.code})}"
        else:
            href = reverse(f"console:{page.view}", args=page.args)
        yield CardAct(name, label, icon, href, asks=name not in PAGES, primary=place == 0)


def _href_of_many(name: str, entry: queries.Entry, verb: str) -> str:
    rows = [item.row if MANY[name] == "rescues" else item.place for item in entry.items[:MAX_PICKED]]
    picked = ",".join(str(row.pk) for row in rows if row is not None)
    return f"{reverse('console:many', args=(MANY[name], verb))}?{urlencode({'picked': picked})}"


def _repairs_of(cluster: Cluster) -> str:
    return f"{reverse('console:repairs')}?{urlencode({'cluster': cluster.name})}"


def _label(name: str) -> tuple[str | Promise, str]:
    if name in LABELS:
        return LABELS[name]
    known = action_labels.verb(name.removeprefix("repair_"))
    return known.label, known.icon


def _page(entry: queries.Entry) -> str:
    """Where to read on about it: its row, or the list of its rows."""
    row = entry.items[0].row
    many = len(entry.items) > 1
    match entry.kind:
        case Need.INCIDENT if many:
            query = {"needs_person": "true", "cluster": entry.cluster.name, "kind": row.kind, "code": row.code}
            return f"{reverse('console:incidents')}?{urlencode(query)}"
        case Need.LEDGER | Need.STORM | Need.INCIDENT:
            return reverse("console:incident", args=(row.pk,))
        case Need.APPROVAL if many:
            return reverse("console:approvals")
        case Need.RESCUE | Need.APPROVAL:
            return f"{reverse('console:rescues')}?tab=people" if many else reverse("console:rescue", args=(row.pk,))
        case Need.JOB:
            return f"{reverse('console:jobs')}?{urlencode({'cluster': entry.cluster.name})}"
        case Need.REPAIR:
            return _list_of(Need.REPAIR) if many else reverse("console:repair", args=(row.pk,))
        case Need.PART:
            return reverse("console:part", args=(row.part_id,))
        case Need.WATCH:
            return f"{reverse('console:nodes')}?{urlencode({'cluster': entry.cluster.name})}"
        case Need.SOURCE:
            return reverse("console:sources")


def _list_of(kind: Need) -> str:
    """The list that has all rows of a kind."""
    page, query = {
        Need.RESCUE: ("rescues", "tab=people"),
        Need.APPROVAL: ("rescues", "tab=approval"),
        Need.JOB: ("jobs", ""),
        Need.REPAIR: ("repairs", "needs_person=true"),
        Need.PART: ("parts", "needs_person=true"),
        Need.WATCH: ("nodes", ""),
        Need.SOURCE: ("sources", ""),
    }.get(kind, ("incidents", f"needs_person=true&kind={kind}" if kind != Need.INCIDENT else "needs_person=true"))
    return f"{reverse(f'console:{page}')}?{query}".removesuffix("?")
