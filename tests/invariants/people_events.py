"""The actions of people in a walk: each act takes the bed and a random source, and does one thing."""

import contextlib
import random
import uuid
from collections.abc import Callable
from datetime import timedelta

from kcover.nodes import probation_mark, readiness_taint
from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.kube import port
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Rescue
from tests.invariants.testbed import Bed

PEOPLE = ("user:ann", "user:bob", "user:cid")
OPEN = ("held", "waiting", "running")


def all_clear(bed: Bed, chance: random.Random) -> None:
    """A person closes an incident."""
    row = _one(Incident.objects.filter(state="open").order_by("pk"), chance)
    if row is not None:
        incidents.close_by_hand(row, actor=chance.choice(PEOPLE), reason="seen to", now=bed.now)


def steer(bed: Bed, chance: random.Random) -> None:
    """A person steers a rescue."""
    act = chance.choice(
        (
            services.cancel,
            services.retry,
            services.retry,
            services.skip,
            services.approve,
            services.approve,
            services.reject,
        )
    )
    rescue = _one(Rescue.objects.filter(state__in=OPEN).order_by("pk"), chance)
    if rescue is not None:
        _may(lambda: act(rescue, actor=chance.choice(PEOPLE), reason="so", now=bed.now))


def answer(bed: Bed, chance: random.Random) -> None:
    """As many people as it takes say yes to what waits for it; that is taken up at once, or after it has run out."""
    rescue = _one(Rescue.objects.filter(state="held", hold="approval").order_by("pk"), chance)
    if rescue is None:
        return
    for who in chance.sample(PEOPLE, rescue.approvers):
        _may(lambda who=who: services.approve(rescue, actor=who, reason="so", now=bed.now))
    bed.now += timedelta(seconds=chance.choice((0, 0, 4000)))


def request(bed: Bed, chance: random.Random) -> None:
    """A person asks for an act on a node."""
    verb = chance.choice(("cordon", "uncordon", "drain", "reboot", "offline", "release", "release"))
    node = bed.node(chance.choice(bed.names))
    _may(lambda: services.request(node, verb, actor=chance.choice(PEOPLE), reason="so", now=bed.now))


def give_back(bed: Bed, chance: random.Random) -> None:
    """A person who has seen to a node that was left to people gives it back."""
    marked = (
        Rescue.objects.exclude(marks={}).exclude(state__in=OPEN).order_by("pk").values_list("node__name", flat=True)
    )
    names = sorted(set(marked))
    if names:
        node = bed.node(chance.choice(names))
        _may(lambda: services.request(node, "release", actor=chance.choice(PEOPLE), reason="seen to", now=bed.now))


def mode(bed: Bed, chance: random.Random) -> None:
    """A person pauses, resumes, or sets a mode; more often lets it go on than not, or little else would ever happen."""
    if chance.random() < 0.25:
        fleet.pause(cluster=chance.choice((None, bed.cluster)), reason="look first", actor="user:ann", now=bed.now)
    else:
        named = chance.choice((None, "enforce", "enforce", "enforce", "enforce", "approve", "shadow"))
        for cluster in chance.choice(((None, bed.cluster), (None, bed.cluster), (None,), (bed.cluster,))):
            fleet.resume(cluster=cluster, reason="", actor="user:ann", now=bed.now, mode=named)
        if named == "approve":
            type(bed.cluster).objects.update(isolate_before_approval=chance.random() < 0.7)
    bed.cluster.refresh_from_db()


def exclude(bed: Bed, chance: random.Random) -> None:
    """Somebody says hands off, or takes it back: by the portal or with kubectl."""
    name = chance.choice(bed.names)
    if chance.random() < 0.5:
        verb = chance.choice(("exclude", "end_exclusion", "end_exclusion"))
        _may(lambda: services.request(bed.node(name), verb, actor=chance.choice(PEOPLE), reason="so", now=bed.now))
    elif bed.there(name):
        bed.kube.label_node(name, {"kcover.io/exclude": chance.choice(("true", None, None))})


def kubectl(bed: Bed, chance: random.Random) -> None:
    """Somebody cordons, uncordons, taints, labels with kubectl."""
    name = chance.choice(bed.names)
    if not bed.there(name):
        return
    what = chance.choice(("cordon", "cordon", "uncordon", "uncordon", "taint", "label", "annotate"))
    if what == "cordon":
        bed.kube.hands_cordon(name)
    elif what == "uncordon":
        bed.kube.hands_uncordon(name)
    elif what == "taint":
        bed.kube.hands_taint(name, port.Taint("team", "a", "NoSchedule"), there=chance.random() < 0.6)
    elif what == "label":
        bed.kube.label_node(name, {"team": chance.choice(("a", "b"))})
    else:
        patch = {"metadata": {"annotations": {"team/note": chance.choice(("ours", "theirs", 'x"{\n'))}}}
        bed.kube.objects.merge("Node", "", name, patch)


def limits(bed: Bed, chance: random.Random) -> None:
    """A person changes the guards."""
    patch = {
        "storm": {"enabled": chance.random() < 0.2},
        "rate": {"enabled": chance.random() < 0.2},
        "breaker": {"enabled": chance.random() < 0.3, "limit": chance.randint(1, 3)},
        "budget": {
            "limit": chance.choice((None, None, None, 1, 2, "50%")),
            "scopes": chance.choice(([], [], [{"limit": 1, "labels": ["team=a"]}])),
        },
        "floor": {"percent": chance.choice((None, None, None, None, 50))},
        "cooldown": chance.choice((0, 0, 60)),
        "hold_down": chance.choice((0, 10)),
    }
    cluster_settings.set_guards(bed.cluster, patch, actor="user:ann", reason="", now=bed.now)


def driver(bed: Bed, chance: random.Random) -> None:
    """A person changes how nodes are rebooted."""
    changes = {"reboot": chance.choice(("job", "agent", "auto"))}
    cluster_settings.set_cluster(bed.cluster, changes, actor="user:ann", reason="", now=bed.now)


def probation(bed: Bed, chance: random.Random) -> None:
    """A person ends a probation, or somebody removes or adds its taint with kubectl."""
    name = chance.choice(bed.names)
    if chance.random() < 0.5:
        _may(lambda: services.end_probation(bed.node(name), actor="user:ann", reason="so", now=bed.now))
    elif bed.there(name):
        bed.kube.hands_taint(name, port.Taint(*probation_mark.TAINT), there=chance.random() < 0.3)


def burn_in(bed: Bed, chance: random.Random) -> None:
    """Burn-ins are switched on or off, a new machine joins, or somebody adds or removes the readiness taint."""
    name, taint = chance.choice(bed.names), port.Taint(*readiness_taint.TAINT)
    what = chance.choice(("switch", "join", "join", "add", "remove"))
    if what == "switch":
        changes = {"burn_in": chance.choice(("off", "tainted", "new", "new")), "burn_in_profile": "light"}
        cluster_settings.set_cluster(bed.cluster, changes, actor="user:ann", reason="", now=bed.now)
    elif not bed.there(name):
        return
    elif what == "join":
        bed.kube.delete_node(name)
        machine = str(uuid.UUID(int=chance.getrandbits(120)))
        bed.make_node(name, machine=machine, taints=(taint,) if chance.random() < 0.5 else ())
    else:
        bed.kube.hands_taint(name, taint, there=what == "add")


def _one(rows, chance: random.Random):
    found = list(rows)
    return chance.choice(found) if found else None


def _may(act: Callable[[], object]) -> None:
    """A person may be refused; that is an answer."""
    with contextlib.suppress(services.RescueRefused):
        act()
