"""The table of events in a walk: each act takes the bed and a random source, and does one thing."""

import random
from collections.abc import Callable, Sequence
from datetime import timedelta

from kcover.faults.fault import Fault
from kcover.repairs import repairs
from kcover_portal.incidents import queries as incident_queries
from kcover_portal.incidents.models import Incident
from kcover_portal.kube import port
from kcover_portal.repairs.models import Repair
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Rescue
from tests.invariants import device_rules, handed_away, people_events, source_events
from tests.invariants.gpu_names import PCI
from tests.invariants.observed_cluster import must
from tests.invariants.testbed import CODES, HANDED_AWAY, Bed

Act = Callable[[Bed, random.Random], None]
DAY = 86_400.0


def fault(bed: Bed, chance: random.Random) -> None:
    """A node's agent saw something; its clock may be a day off, and the line may be one of an earlier boot."""
    _see(bed, chance, CODES)


def handed_away_fault(bed: Bed, chance: random.Random) -> None:
    """As above, and another system or the repair desk gets the node, or a single GPU is isolated."""
    _see(bed, chance, HANDED_AWAY)


def _see(bed: Bed, chance: random.Random, codes: Sequence[int]) -> None:
    name = chance.choice(bed.names)
    seen = Fault(
        kind="xid",
        code=chance.choice(codes),
        pci=chance.choice(PCI),
        source="kmsg",
        sequence=chance.choice((None, chance.randint(1, 30))),
        count=chance.choice((1, 1, 3)),
        drill=chance.random() < 0.05,
        seen_at=bed.now + timedelta(seconds=chance.choice((0.0, -DAY, DAY))),
    )
    boot = chance.choice(bed.boots[name]) if chance.random() < 0.2 else ""
    bed.agent(name, seen, boot_id=boot, skew=chance.choice((0.0, 0.0, -DAY, DAY)))


def resend(bed: Bed, chance: random.Random) -> None:
    """A batch comes again: nothing changes (invariant 2)."""
    if not bed.sent:
        return
    before = _incidents()
    [answer] = bed.deliver(chance.choice(bed.sent))
    must(answer.accepted == 0 and _incidents() == before, 2, f"a resent batch changed something: {answer}")


def _incidents() -> list[tuple[int, int, str]]:
    return list(Incident.objects.order_by("pk").values_list("pk", "count", "state"))


def heartbeat(bed: Bed, chance: random.Random) -> None:
    """An agent reports that it is there, and does what it is asked."""
    bed.agent(chance.choice(bed.names))


def kubelets(bed: Bed, _chance: random.Random) -> None:
    """Machines do what they were told."""
    bed.kubelets()


def time(bed: Bed, chance: random.Random) -> None:
    """Time passes."""
    bed.now += timedelta(seconds=chance.choice((0.5, 1, 5, 15, 31, 61, 301, 700, 4000)))


def watch(bed: Bed, _chance: random.Random) -> None:
    """The watch brings rows in step."""
    bed.sync()


def work(bed: Bed, chance: random.Random) -> None:
    """A worker does what is due."""
    bed.worker(chance)


def watch_and_work(bed: Bed, chance: random.Random) -> None:
    """The usual course of things for a few seconds."""
    for _ in range(3):
        bed.kubelets()
        bed.sync()
        bed.worker(chance)
        bed.now += timedelta(seconds=1)


def quiet(bed: Bed, chance: random.Random) -> None:
    """Machines and agents do what they should for a minute."""
    for _ in range(8):
        bed.kubelets()
        bed.agents()
        bed.sync()
        bed.worker(chance)
        bed.now += timedelta(seconds=8)


def return_of_node(bed: Bed, chance: random.Random) -> None:
    """A node fails, and all behave for two minutes: it may be back by then, on probation."""
    name = chance.choice(bed.names)
    bed.agent(name, Fault(kind="xid", code=62, pci=PCI[0], source="kmsg"))
    for _ in range(15):
        bed.kubelets()
        bed.agents()
        bed.sync()
        bed.worker(chance)
        bed.now += timedelta(seconds=8)


def worker_dies(bed: Bed, chance: random.Random) -> None:
    """A worker is killed at one of its first writes or calls."""
    bed.worker(chance, dies_at=chance.randint(1, 40))


def meanwhile(bed: Bed, chance: random.Random) -> None:
    """While a worker is in a call, somebody else does something, or another worker looks."""
    act = chance.choice(MEANWHILE)
    bed.worker(chance, meanwhile=lambda: act(bed, chance))


def again(bed: Bed, _chance: random.Random) -> None:
    """The broker delivers everything there ever was once more."""
    for pk in Incident.objects.order_by("pk").values_list("pk", flat=True):
        services.decide(pk, now=bed.now)
    for pk in Rescue.objects.filter(state__in=("succeeded", "failed", "cancelled")).values_list("pk", flat=True):
        before = Rescue.objects.filter(pk=pk).values().get()
        services.run(pk, clock=bed.clock)
        must(
            Rescue.objects.filter(pk=pk).values().get() == before, 12, f"a message about closed rescue {pk} changed it"
        )


def other_worker(bed: Bed, _chance: random.Random) -> None:
    """A second worker looks at everything, due or not."""
    for pk, _ in incident_queries.due_for_decision(now=bed.now):
        services.decide(pk, now=bed.now)
    for pk in Rescue.objects.order_by("pk").values_list("pk", flat=True):
        services.run(pk, clock=bed.clock)
    bed.end_probations()


def api_faults(bed: Bed, chance: random.Random) -> None:
    """The API server conflicts, is busy, breaks, is cut off, before or after the effect; or gets well."""
    if chance.random() < 0.3:
        bed.kube.heal_api()
        return
    verb = chance.choice(
        (
            *("apply_node", "apply_node", "evict", "ensure_job", "get_node", "list_pods", "delete_job", "job_state"),
            *("emit", "delete_object", "delete_object", "custom_objects", "create_object", "create_object"),
        )
    )
    error, after = chance.choice(
        (
            (port.Conflict("409"), False),
            (port.Unavailable("429", retry_after=chance.choice((None, 7.0))), False),
            (port.Unavailable("503"), False),
            (port.Unavailable("timed out", ambiguous=True), False),
            (port.Unavailable("timed out", ambiguous=True), True),
            (port.Unavailable("timed out", ambiguous=True), True),
        )
    )
    bed.kube.fail(verb, error, times=chance.choice((1, 1, 2, 5)), after=after)


def machine(bed: Bed, chance: random.Random) -> None:
    """A node reboots by itself, stops being Ready, or comes back."""
    name = chance.choice(bed.names)
    if not bed.there(name):
        return
    what = chance.choice(("reboot", "down", "up"))
    if what == "reboot":
        bed.restart(name)
    else:
        bed.kube.set_ready(name, what == "up")


def come_and_go(bed: Bed, chance: random.Random) -> None:
    """A node is deleted, or made anew under its name."""
    name = chance.choice(bed.names)
    if bed.there(name):
        bed.kube.delete_node(name)
    else:
        bed.make_node(name)


def claims(bed: Bed, chance: random.Random) -> None:
    """A cluster autoscaler removes a machine, or somebody makes, moves or loses the object of one."""
    name = chance.choice(bed.names)
    if not bed.there(name):
        return
    provider = bed.live(name)["spec"]["providerID"]
    mine = [one for one in bed.kube.list_claims() if one.provider_id == provider]
    what = chance.choice(("remove", "second", "lose", "anew", "back"))
    if what == "remove" and mine:
        bed.kube.delete_claim(mine[0])
    elif what == "second":
        bed.claim(f"{name}-second", chance.choice(bed.names), provider)
    elif mine and what in ("lose", "anew"):
        bed.kube.remove_custom_object(port.NODE_CLAIM, mine[0].name)
        if what == "anew":  # under its name, with another uid
            bed.claim(mine[0].name, chance.choice((name, name, *bed.names)), provider)
    elif what == "back":
        for one in mine:
            bed.kube.remove_custom_object(port.NODE_CLAIM, one.name)
        bed.claim(f"{name}-back", name, provider)


def pods(bed: Bed, chance: random.Random) -> None:
    """Work comes, is protected, or is replaced under its name."""
    what = chance.choice(("add", "add", "add", "protect", "free", "replace"))
    if what == "add":
        bed.add_pod(chance.choice(bed.names))
    elif what == "protect" and bed.kube.objects.find("PodDisruptionBudget", "default", "keep") is None:
        bed.kube.add_budget("default", "keep", match={"app": "train"})
    elif what == "free" and bed.kube.objects.find("PodDisruptionBudget", "default", "keep") is not None:
        bed.kube.objects.remove("PodDisruptionBudget", "default", "keep")
    elif what == "replace":
        running = [pod["metadata"]["name"] for pod in bed.kube.objects.list("Pod", "default")]
        if running:
            bed.kube.replace_pod("default", chance.choice(running))


def sweep(bed: Bed, _chance: random.Random) -> None:
    """The sweep: what was not answered in time expires."""
    bed.sweep()


def isolated_gpu(bed: Bed, chance: random.Random) -> None:
    """One GPU of a node fails and is isolated, then the other one, for which the node is drained and returned."""
    name = chance.choice(bed.names)
    for code, pci in ((123, PCI[0]), (62, PCI[1])):
        bed.agent(name, Fault(kind="xid", code=code, pci=pci, source="kmsg"))
        quiet(bed, chance)


def devices(bed: Bed, chance: random.Random) -> None:
    """A DRA driver publishes a GPU split, twice, or not at all, or as before; somebody deletes or makes a rule."""
    name, rules = chance.choice(bed.names), bed.kube.rules.all()
    what = chance.choice(("publish", "publish", "split", "lose", "delete", "take"))
    if what == "delete" and rules:
        bed.kube.rules.hands_delete(chance.choice(rules)["metadata"]["name"])
    elif what == "take" and rules:  # somebody's own rule under the name
        rule = chance.choice(rules)
        bed.kube.rules.hands_delete(rule["metadata"]["name"])
        bed.kube.put_custom_object(device_rules.RULES, rule["metadata"]["name"], rule["spec"])
    elif what in ("publish", "split", "lose") and bed.there(name):
        found = bed.gpus(name)
        if what == "split":
            found.append(device_rules.device(PCI[0], "part", uuid="MIG-1"))
        bed.publish(name, *(found[1:] if what == "lose" else found))


def other_system(bed: Bed, chance: random.Random) -> None:
    """The other system answers otherwise, or hands nodes back; or an operator takes nodes over."""
    what = chance.choice(("answer", "call back", "call back", "take over"))
    if what == "answer":
        bed.away.behave(chance.choice((204, 204, 500, 503, 409)), cut=chance.random() < 0.1)
    elif what == "call back":
        handed_away.call_back(bed.away, chance=chance, now=bed.now)
    else:
        handed_away.take_over(now=bed.now)


def repair_desk(bed: Bed, chance: random.Random) -> None:
    """A repair goes on, is refused, or its machine is validated."""
    rows = list(Repair.objects.exclude(state="closed").select_related("cluster", "node").order_by("pk"))
    if not rows:
        return
    row = chance.choice(rows)
    if chance.random() < 0.2:
        handed_away.go_on(row, repairs.Move.REFUSE, now=bed.now)
    elif chance.random() < 0.4:
        handed_away.validate(row, now=bed.now)
    else:
        handed_away.go_on(row, handed_away.VERBS[repairs.State(row.state)], now=bed.now)


ACTS: dict[str, tuple[int, Act]] = {
    "fault": (10, fault),
    "handed_away_fault": (4, handed_away_fault),
    "resend": (2, resend),
    "tell": (10, source_events.tell),
    "condition": (5, source_events.condition),
    "heartbeat": (6, heartbeat),
    "kubelets": (5, kubelets),
    "all_clear": (4, people_events.all_clear),
    "time": (10, time),
    "watch": (4, watch),
    "work": (10, work),
    "watch_and_work": (10, watch_and_work),
    "quiet": (4, quiet),
    "return_of_node": (4, return_of_node),
    "worker_dies": (8, worker_dies),
    "meanwhile": (8, meanwhile),
    "again": (2, again),
    "steer": (6, people_events.steer),
    "answer": (2, people_events.answer),
    "request": (3, people_events.request),
    "give_back": (6, people_events.give_back),
    "mode": (3, people_events.mode),
    "exclude": (2, people_events.exclude),
    "kubectl": (6, people_events.kubectl),
    "api_faults": (6, api_faults),
    "machine": (3, machine),
    "come_and_go": (1, come_and_go),
    "claims": (2, claims),
    "limits": (2, people_events.limits),
    "driver": (1, people_events.driver),
    "probation": (3, people_events.probation),
    "burn_in": (4, people_events.burn_in),
    "pods": (8, pods),
    "sweep": (2, sweep),
    "isolated_gpu": (2, isolated_gpu),
    "devices": (3, devices),
    "other_system": (4, other_system),
    "repair_desk": (4, repair_desk),
}
# What may happen in the middle of a worker's call; none takes longer than its lease.
MEANWHILE: tuple[Act, ...] = (
    people_events.steer,
    people_events.steer,
    people_events.request,
    people_events.kubectl,
    people_events.probation,
    people_events.burn_in,
    people_events.exclude,
    machine,
    fault,
    people_events.mode,
    other_worker,
    watch,
    pods,
    come_and_go,
    claims,
    claims,
    devices,
)
