"""What the search box and the command palette find by a text: at most ten queries, each for a few rows."""

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.urls import reverse
from django.utils.translation import gettext as _

from kcover.faults import catalog
from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import User, Verb
from kcover_portal.console import action_labels
from kcover_portal.console.fault_names import KINDS, incident_name, of_rescue
from kcover_portal.console.reads import spoken_acts
from kcover_portal.console.reads.domain_labels import DomainLabels
from kcover_portal.fleet.models import Gpu, Node
from kcover_portal.incidents.models import Incident, JobSeen
from kcover_portal.parts.models import Placement
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import needs_person

MAX_NODES = 8
MAX_HITS = 5  # of each other kind
MAX_RACKS = 100  # that are looked at
MIN_TEXT = 3  # characters, for what is found by a part of its name
MIN_ACT = 2  # characters of an act's word; Chinese words have two
MAX_TEXT = 200
NUMBERED: Final = re.compile(r"(?:(rescue|incident|xid|sxid)\s*#?|#)?\s*([0-9]{1,18})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Hit:
    """Something of this name: ``kind`` for programs, ``icon``, ``label`` and ``detail`` for people.

    ``asks``: the page is a preview or a form, which the palette opens as a dialog. ``sure``: the text names this and
    nothing else, so that Enter may mean it.
    """

    kind: str
    icon: str
    label: str
    detail: str
    page: str
    asks: bool = False
    sure: bool = True


def find(user: User, text: str) -> list[Hit]:
    """What the text may mean, within the person's scope and rights.

    Nodes, racks, GPUs, parts, jobs, rescues, incidents, codes, and acts on a node (``drain gpu-0040``).
    """
    text = text.replace("\0", "").strip()[:MAX_TEXT]
    if not text:
        return []
    if numbered := list(_numbered(user, text)):
        return [*numbered, *_nodes(user, text), *_named(user, text), *_meanings(text)]
    acts = [*_questions(user, text), *_acts(user, text)]
    return [*acts, *_nodes(user, text), *_named(user, text, racks=not acts), *_meanings(text)]


def as_json(hits: list[Hit]) -> list[dict[str, Any]]:
    return [asdict(hit) for hit in hits]


def _nodes(user: User, text: str) -> Iterator[Hit]:
    rows = accounts.visible(user, Node.objects.filter(gone_at=None, name__icontains=text), node="").order_by("name")
    for cluster, name in rows.values_list("cluster__name", "name")[:MAX_NODES]:
        yield Hit("node", "server", name, cluster, _node(cluster, name))


def _acts(user: User, text: str) -> Iterator[Hit]:
    for act, cluster, name, sure in spoken_acts.said(user, text):
        yield Hit("act", act.icon, f"{act.label} {name}", cluster, act.page(cluster, name), asks=True, sure=sure)


def _questions(user: User, text: str) -> Iterator[Hit]:
    """The requests for approval that a word such as "approve" may mean; each opens the dialog of the answer."""
    wanted = text.lower()
    for verb in ("approve", "reject"):
        look = action_labels.verb(verb)
        if len(wanted) < MIN_ACT or not any(str(word).lower().startswith(wanted) for word in (verb, look.label)):
            continue
        rows = accounts.visible(user, needs_person.awaiting_approval(), needed=Verb.APPROVE)
        for rescue in rows.select_related("node", "cluster").order_by("expires_at", "pk")[:MAX_HITS]:
            label = f"{look.label} · {rescue.node.name}"
            page = reverse("console:rescue-act", args=(rescue.pk, verb))
            yield Hit("act", look.icon, label, of_rescue(rescue), page, asks=True, sure=False)


def _racks(user: User, text: str) -> Iterator[Hit]:
    """Racks by name, each as the list of its nodes, the shortest name first."""
    seen = accounts.scope(user)
    labels = DomainLabels(seen, "rack")
    rows = labels.read(seen.rows(Node.objects.filter(gone_at=None), node="")).filter(labels.having(text)).order_by()
    found = set()
    for cluster, pk, *values in rows.values_list("cluster__name", "cluster_id", *labels.names).distinct()[:MAX_RACKS]:
        label = labels.of(pk, values)
        if label is not None and text.lower() in label[1].lower():
            found.add((cluster, label))
    for cluster, label in sorted(found, key=lambda one: (len(one[1][1]), one[1][1], one[0]))[:MAX_HITS]:
        query = urlencode({"cluster": cluster, "label": "=".join(label)})
        detail = _("Rack in %(cluster)s") % {"cluster": cluster}
        yield Hit("rack", "layout-grid", label[1], detail, f"{reverse('console:nodes')}?{query}")


def _named(user: User, text: str, *, racks: bool = True) -> Iterator[Hit]:
    if len(text) >= MIN_TEXT:
        if racks:  # they cost the most: each node's labels are read
            yield from _racks(user, text)
        yield from _gpus(user, text)
        yield from _parts(user, text)
        yield from _jobs(user, text)


def _gpus(user: User, text: str) -> Iterator[Hit]:
    rows: QuerySet[Gpu] = accounts.visible(user, Gpu.objects.filter(uuid__icontains=text), "node__cluster", "node")
    for uuid, index, cluster, name in rows.order_by("uuid").values_list(
        "uuid", "index", "node__cluster__name", "node__name"
    )[:MAX_HITS]:
        detail = _("GPU %(index)d of %(node)s") % {"index": index, "node": name}
        yield Hit("gpu", "cpu", uuid, detail, _node(cluster, name))


def _parts(user: User, text: str) -> Iterator[Hit]:
    """Parts by serial number, by their newest placement that the person sees."""
    rows: QuerySet[Placement] = accounts.visible(user, Placement.objects.filter(part__serial__icontains=text))
    found: dict[int, Hit] = {}
    for row in rows.select_related("part").order_by("-since", "-pk")[: 4 * MAX_HITS]:
        detail = f"{row.part.get_kind_display()}, {row.node_name}"
        page = reverse("console:part", args=(row.part_id,))
        found.setdefault(row.part_id, Hit("part", "cpu", row.part.serial, detail, page))
    yield from list(found.values())[:MAX_HITS]


def _jobs(user: User, text: str) -> Iterator[Hit]:
    """Jobs that had pods on nodes with faults. Others are only in the clusters, and are on the page of jobs."""
    rows: QuerySet[JobSeen] = accounts.visible(
        user, JobSeen.objects.filter(job__icontains=text).exclude(job=""), "node__cluster", "node"
    )
    jobs = rows.order_by("node__cluster__name", "job").values_list("node__cluster__name", "job").distinct()
    for cluster, job in jobs[:MAX_HITS]:
        query = urlencode({"cluster": cluster, "namespace": job.partition("/")[0]})
        yield Hit("job", "stack", job, cluster, f"{reverse('console:jobs')}?{query}")


def _numbered(user: User, text: str) -> Iterator[Hit]:
    """The rescue, the incident, and the Xid and SXid codes with this number."""
    match = NUMBERED.fullmatch(text)
    if match is None:
        return
    word, number = (match[1] or "").lower(), int(match[2])
    if word in ("", "rescue"):
        rescues: QuerySet[Rescue] = accounts.visible(user, Rescue.objects.filter(pk=number))
        for rescue in rescues.select_related("node"):
            label = _("Rescue %(number)d") % {"number": number}
            detail = f"{of_rescue(rescue)} · {rescue.node.name}"
            yield Hit("rescue", "heart-rate-monitor", label, detail, reverse("console:rescue", args=(number,)))
    for kind in ("xid", "sxid"):
        entry = catalog.describe(kind, number) if word in ("", kind) else None
        if entry is not None:
            yield _code(kind, number, _(entry.title))
    if word in ("", "incident"):
        incidents: QuerySet[Incident] = accounts.visible(user, Incident.objects.filter(pk=number))
        for incident in incidents.select_related("node", "cluster"):
            label = _("Incident %(number)d") % {"number": number}
            detail = f"{incident_name(incident)} · {incident.where}"
            yield Hit("incident", "alert-triangle", label, detail, reverse("console:incident", args=(number,)))


def _meanings(text: str) -> list[Hit]:
    """Codes whose title, in the reader's language, or whose name in NVIDIA's headers has the text."""
    if len(text) < MIN_TEXT:
        return []
    wanted, found = text.lower(), []
    for kind in ("xid", "sxid"):
        for code, entry in catalog.entries(kind).items():
            title = _(entry.title)
            if wanted in title.lower() or wanted in (entry.mnemonic or "").lower().replace("_", " "):
                found.append(_code(kind, code, title))
    return found[:MAX_HITS]


def _code(kind: str, code: int, title: str) -> Hit:
    page = f"{reverse('console:incidents')}?{urlencode({'kind': kind, 'code': code})}"
    return Hit("code", "book", f"{KINDS[kind]} {code}", title, page)


def _node(cluster: str, name: str) -> str:
    return reverse("console:node", args=(cluster, name))
