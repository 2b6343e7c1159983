"""The end of an episode: people and machines behave correctly, all work finishes, and the remaining state is
checked.
"""

import random
from datetime import datetime, timedelta

from django.db.models import Min, QuerySet

from kcover.nodes import marks, probation_mark, readiness_taint
from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident, Occurrence
from kcover_portal.kube import port
from kcover_portal.ledger import queries as ledger
from kcover_portal.rescue import queries
from kcover_portal.rescue.models import Probation, Rescue, Step
from kcover_portal.rescue.queries import capacity
from tests import proofs
from tests.invariants import handed_away
from tests.invariants.observed_cluster import must
from tests.invariants.testbed import Bed

RUNS = ("waiting", "running")
# The limits that a person sets who has seen to the cause.
CALM = {
    "storm": {"enabled": False},
    "rate": {"enabled": False},
    "breaker": {"enabled": False},
    "budget": {"limit": None, "scopes": []},
    "floor": {"percent": None},
}


def settle(bed: Bed, chance: random.Random) -> None:
    """People and machines behave, and time passes, until nothing is due any more."""
    bed.kube.heal_api()
    for name in bed.names:
        if not bed.there(name):
            bed.make_node(name)
        bed.kube.label_node(name, {"kcover.io/exclude": None})
        bed.kube.set_ready(name, True)
    for budget in bed.kube.objects.list("PodDisruptionBudget"):
        bed.kube.objects.remove("PodDisruptionBudget", budget["metadata"]["namespace"], budget["metadata"]["name"])
    for cluster in (None, bed.cluster):
        fleet.resume(cluster=cluster, reason="", actor="user:ann", now=bed.now, mode="enforce")
    cluster_settings.set_guards(bed.cluster, CALM, actor="user:ann", reason="", now=bed.now)
    for storm in Incident.objects.filter(node=None, state="open"):
        incidents.close_by_hand(storm, actor="user:ann", reason="seen to", now=bed.now)
    bed.away.behave(204)
    for _ in range(1_000):
        bed.kubelets()
        bed.agents()
        handed_away.finish(bed.away, chance=chance, now=bed.now)
        bed.sync()
        if not capacity.eligible(bed.cluster).exists():  # people free new nodes: none is in service (invariant 30)
            for name in bed.names:
                bed.kube.hands_taint(name, port.Taint(*readiness_taint.TAINT), there=False)
        bed.sweep()
        bed.worker(chance)
        bed.check()
        unrest = Rescue.objects.filter(state__in=("waiting", "running")).exists() or queries.at_odds()
        unrest = unrest or _probations().exists()
        if not unrest and not Step.objects.exclude(withdraw_at=None).exists():
            break
        bed.now = _next(bed)
    _check_end(bed)


def _probations() -> QuerySet[Probation]:
    """Those that end by themselves; one that is planned waits for its rescue."""
    return Probation.objects.filter(ended_at=None).exclude(began_at=None, rescue__state__in=("held", *RUNS))


def _next(bed: Bed) -> datetime:
    """When something is due next; a lease counts too. A rescue that waits for a doubt has a day until it is over."""
    rows = Rescue.objects.filter(state__in=RUNS).exclude(because__code="verify_waits_for_doubt")
    found = rows.aggregate(due=Min("due_at"), lease=Min("lease_until"))
    found["probation"] = _probations().aggregate(at=Min("due_at"))["at"]
    found["doubt"] = Occurrence.objects.aggregate(at=Min("doubt_until"))["at"]
    found["withdraw"] = Step.objects.aggregate(at=Min("withdraw_at"))["at"]
    later = [moment for moment in found.values() if moment is not None and moment > bed.now]
    return max(min(later, default=bed.now), bed.now + timedelta(seconds=1))


def _check_end(bed: Bed) -> None:
    left = Rescue.objects.filter(state__in=("waiting", "running"))
    must(not left.exists(), 14, f"never ends: {[(one.pk, one.state, str(one.why)) for one in left]}")
    must(not Step.objects.exclude(withdraw_at=None).exists(), 14, "something is withdrawn for ever")
    must(not _probations().exists(), 50, f"probations never end: {list(_probations())}")
    for rescue in Rescue.objects.filter(outcome="healed"):
        must(not rescue.marks, 19, f"{rescue} healed the node and has marks {rescue.marks}")
    for name in bed.names:
        _check_node(bed, name)
    bed.kube.rules.check_end({name: bed.live(name) for name in bed.names})
    must(ledger.verify("c1").intact, 46, "the ledger does not verify")
    for rescue in Rescue.objects.all():
        reported = ledger.replay("c1", rescue=rescue.pk)
        row = (rescue.state, rescue.outcome, rescue.needs_human)
        must(
            (reported.state, reported.outcome, reported.needs_human) == row,
            46,
            f"{rescue} is {row}, the ledger says {reported}",
        )
        must(not (broken := proofs.broken_claim(rescue)), 46, f"the proof of {rescue} is not valid: {broken}")


def _check_node(bed: Bed, name: str) -> None:
    """What is on the node is what the portal knows of, and is held by somebody."""
    node, row = bed.live(name), bed.node(name)
    mark = node["metadata"]["annotations"].get(probation_mark.ANNOTATION, "")
    must(
        not mark and row.probation_until is None, 50, f"{name} keeps {mark}, {row.probation_until} after its probation"
    )
    if queries.open_on(row) is not None:
        return  # it is held: whoever has the next word finds out
    known = queries.marked_on(row)
    mark = node["metadata"]["annotations"].get(marks.ANNOTATION, "")
    must(bool(mark) == (known is not None), 19, f"{name} carries mark {mark!r}, the portal knows of {known}")
    if not mark:
        must(not bed.kube.account(name).taints, 19, f"{name} keeps {bed.kube.account(name).taints}")
        return
    shown = marks.read(marks.parse(mark))
    assert shown is not None
    cordoned = bool(node["spec"].get("unschedulable"))
    must(cordoned or not (shown.cordon or shown.foreign_cordon), 20, f"{name} is uncordoned and carries a mark")
