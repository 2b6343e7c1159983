"""What needs attention, on the home page: nothing is missing, the worst comes first, and no node hides another."""

from datetime import timedelta

import pytest
from django.utils import timezone

from kcover.needs import Need
from kcover_portal import needs_person
from kcover_portal.accounts.models import User
from kcover_portal.accounts.queries import Scope
from kcover_portal.console.reads import fleet as tiles, needs, overview
from kcover_portal.fleet import services as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents.models import Incident
from kcover_portal.needs.queries import causes
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Rescue, Step
from kcover_portal.shared_reads import filtersets, node_status
from tests.portal.rescue.world import CORDON, World

pytestmark = pytest.mark.django_db

NO_STORMS = {"storm": {"enabled": False}}


def listed(world: World) -> list[str]:
    return [node for entry in found(world).entries for node in entry.nodes]


def found(world: World) -> causes.Found:
    return causes.entries(Scope.of(world.cluster), [world.cluster], now=world.now)


def counted(world: World) -> int:
    return sum(needs_person.counts([world.cluster], now=world.now).values())


@pytest.mark.parametrize(("escalate", "has_advice"), [("Look at the power leads.", False), ("true", True)])
def test_the_usual_remedy_is_left_out_where_a_rule_says_what_to_do(make, escalate: str, has_advice: bool):
    policy = CORDON.replace("rescue.ksyun.com/v1", "kcover.io/v1").replace(
        "actions:", f"escalate: {escalate}, actions:"
    )
    world = make(policy=policy)
    world.fault(62)
    world.work()
    [entry] = found(world).entries
    assert (entry.kind, bool(entry.meaning), bool(entry.advice)) == (Need.RESCUE, True, has_advice)


@pytest.fixture
def denied(make):
    """A node whose rescue was rejected before anything was done: it still takes work."""
    world = make(policy=CORDON)
    Cluster.objects.update(isolate_before_approval=False)
    fleet.resume(cluster=world.cluster, reason="", actor="user:ann", now=world.now, mode="approve")
    world.fault(62)
    world.work()
    services.reject(world.rescue(), actor="user:ann", reason="not tonight", now=world.now)
    return world


def test_a_node_whose_rescue_was_denied_stays_in_the_list(denied: World):
    assert listed(denied) == ["gpu-1"]
    for _ in range(4):  # the fault is decided again, and held back each time
        denied.pass_time(60)
        services.sweep(now=denied.now)
        denied.work()
        assert (listed(denied), counted(denied)) == (["gpu-1"], 1)


def test_a_denied_node_whose_fault_comes_back_stays_in_the_list_until_a_rescue_opens(denied: World):
    fleet.pause(cluster=denied.cluster, reason="", actor="user:ann", now=denied.now)
    denied.pass_time(120)
    denied.fault(62)
    denied.work()
    [entry] = found(denied).entries
    assert (entry.nodes, entry.nature) == (("gpu-1",), "held")
    assert "need_stopped" not in [reason.code for reason in entry.why]
    fleet.resume(cluster=denied.cluster, reason="", actor="user:ann", now=denied.now, mode="approve")
    denied.pass_time(120)
    services.sweep(now=denied.now)
    denied.work()
    assert [entry.kind for entry in found(denied).entries] == [Need.APPROVAL]


def test_a_denied_node_that_takes_no_work_is_not_in_the_list(denied: World):
    denied.kube.cordon("gpu-1")
    for _ in range(2):
        denied.pass_time(60)
        services.sweep(now=denied.now)
        denied.work()
    assert listed(denied) == []


def test_a_denial_is_the_reason_at_once(denied: World):
    [entry] = found(denied).entries
    assert [reason.code for reason in entry.why] == ["need_stopped", "need_still_working"]
    assert "rejected_because" in [reason.code for reason in dict(entry.why[0].params)["why"].parts]
    nobody = User.objects.create_user("nobody")
    assert needs.about(nobody, denied.cluster, [denied.node()], now=denied.now) == []


def test_every_faulty_node_is_listed_worst_first(make):
    world = make(policy="", nodes=20)
    Cluster.objects.update(guards=NO_STORMS)
    for number in range(1, 20):
        world.fault(94, node=f"gpu-{number}")
        world.now += timedelta(seconds=1)
    world.fault(79, node="gpu-20")
    world.work()
    assert [entry.nodes for entry in found(world).entries] == [
        ("gpu-20",),
        tuple(f"gpu-{number}" for number in range(1, 20)),
    ]


def test_a_card_on_a_nodes_page_speaks_of_this_node_and_says_that_others_wait(make, person):
    world = make(policy="", nodes=4)
    Cluster.objects.update(guards=NO_STORMS)
    for number in (1, 2, 3):
        world.fault(94, node=f"gpu-{number}")
    world.fault(62, node="gpu-2")
    world.work()
    row = Incident.objects.get(node__name="gpu-3")
    user = User.objects.get(username=person("admin", name="ann") and "ann")
    [card] = needs.about(user, world.cluster, [row], now=world.now)
    assert (card.entry.nodes, card.elsewhere, card.entry.others) == (("gpu-3",), 1, 0)
    assert dict(card.entry.what.params)["where"] == "gpu-3"
    assert "needs_person=true" in card.page
    assert [act.href for act in card.acts if act.name == "rescue"] == ["/nodes/c1/gpu-3/reboot/"]


def test_a_node_with_many_faults_counts_once_with_its_worst(make):
    world = make(policy="", nodes=2)
    world.fault(62, node="gpu-2")
    world.now += timedelta(seconds=1)
    for slot in range(40):
        world.fault(94, pci=f"0000:{slot:02x}:00")
    world.fault(79)
    world.work()
    by_node = {entry.nodes: entry for entry in found(world).entries}
    assert set(by_node) == {("gpu-1",), ("gpu-2",)}
    entry = by_node["gpu-1",]
    assert (entry.items[0].row.code, entry.others) == ("79", 40)


def test_entries_beyond_the_limit_are_counted_and_linked(make, monkeypatch, person):
    monkeypatch.setattr(causes, "MAX_READ", 3)
    world = make(policy="", nodes=5)
    Cluster.objects.update(guards=NO_STORMS)
    for number in range(1, 6):
        world.fault(79, node=f"gpu-{number}")
    world.work()
    result = found(world)
    assert (len(result.entries), dict(result.left_out)) == (1, {"incident": 2})
    page = person("viewer").get("/").content.decode()
    assert "/incidents/?needs_person=true" in page


def test_the_same_card_is_on_the_node_and_on_the_incident(make, person):
    world = make(policy="", nodes=2)
    for node in ("gpu-1", "gpu-2"):
        world.fault(79, node=node)
    world.work()
    [entry] = found(world).entries
    client = person("operator")
    for page in ("/", "/nodes/c1/gpu-1/", f"/incidents/{Incident.objects.get(node__name='gpu-1').pk}/"):
        assert f'id="need-{entry.id}"' in client.get(page).content.decode()
    node = client.get("/nodes/c1/gpu-1/").content.decode()
    assert "/nodes/c1/gpu-1/reboot/" in node
    assert "/many/nodes/" not in node
    assert "/many/nodes/" in client.get("/").content.decode()
    assert f"needs/{entry.id}" not in person("viewer").get("/").content.decode()


def test_an_acknowledged_or_assigned_need_changes_page_and_badge_alike(make, person):
    world = make(policy="", nodes=2)
    world.fault(79)
    world.fault(62, node="gpu-2")
    world.work()
    [entry, _other] = found(world).entries
    client = person("operator", name="ann")

    def numbers() -> tuple[int, int]:
        page, badge = client.get("/"), client.get("/needs/count/")
        return page.context["needs"].total, badge.context["number"]

    assert numbers() == (2, 2)
    posts = {"acknowledge": {}, "assign": {"assignee": "ann"}, "note": {"text": "cable"}, "snooze": {"hours": "4"}}
    for verb, body in posts.items():
        assert client.get(f"/needs/{entry.id}/{verb}/").status_code == 200
        assert client.post(f"/needs/{entry.id}/{verb}/", body).status_code == 302, verb
    card = client.get("/").context["needs"].snoozed[0]
    withdraw = f"/needs/{entry.id}/unacknowledge/"
    assert withdraw in client.get("/").content.decode()
    handling = card.entry.handling
    assert (handling.acknowledged_by, handling.assigned_to, handling.snoozed_by) == ("user:ann",) * 3
    assert [note.text for note in handling.notes] == ["cable"]
    assert numbers() == (1, 1)
    assert [client.post(withdraw).status_code for _ in range(2)] == [302, 422]
    assert client.get("/").context["needs"].snoozed[0].entry.handling.acknowledged_by == ""
    assert client.post(f"/needs/{entry.id}/note/", {"text": ""}).status_code == 422
    assert person("viewer").get(f"/needs/{entry.id}/note/").status_code == 403
    assert client.get(f"/needs/{entry.id}/explode/").status_code == 404


def test_tiles_add_up_and_open_the_lists_that_they_count(make, person):
    world = make(nodes=9)
    world.kube.add_node("cpu-1", gpus=0)
    world.kube.cordon("gpu-2")
    world.kube.set_ready("gpu-3", False)
    world.sync()
    world.fault(95, node="gpu-4")
    world.fault(62, node="gpu-5")
    world.work()
    for name, more in (("gpu-6", {"state": "held", "hold": "approval"}), ("gpu-7", {"state": "held"})):
        Rescue.objects.create(
            cluster=world.cluster,
            node=world.node(name),
            origin="manual",
            requested_by="user:x",
            opened_at=world.now,
            **more,
        )
    Rescue.objects.create(
        cluster=world.cluster,
        node=world.node("gpu-8"),
        origin="manual",
        requested_by="user:x",
        opened_at=world.now,
        closed_at=world.now,
        state="failed",
        marks={"cordon": True},
    )
    away = Rescue.objects.create(
        cluster=world.cluster,
        node=world.node("gpu-9"),
        origin="manual",
        requested_by="user:x",
        opened_at=world.now,
        state="waiting",
    )
    Step.objects.create(rescue=away, index=0, name="repair", state="waiting")
    client = person("viewer")
    page = client.get("/")
    counts = {count.state: count.number for count in page.context["counts"]}
    assert sum(counts.values()) == page.context["total"] == 9
    for count in page.context["counts"]:
        listed = client.get(f"/nodes/?{count.query}").context["page"].paginator.count
        assert (count.state, listed) == (count.state, count.number)
    assert {state for state, number in counts.items() if number} >= {
        *("attention", "faulty", "approval", "held", "healing", "repair", "not-ready", "cordoned", "healthy"),
    }
    assert list(node_status.STATUSES) == list(tiles.URGENCY)
    assert filtersets.NodeFilter({"status": "no-such"}).is_valid() is False


def test_rescues_that_healed_in_the_last_hour_are_counted(make, person):
    world, now = make(), timezone.now()
    for minutes, verified in ((10, True), (70, True), (5, False)):
        ended = now - timedelta(minutes=minutes)
        Rescue.objects.create(
            cluster=world.cluster,
            node=world.node(),
            origin="policy",
            requested_by="policy:x",
            opened_at=ended,
            closed_at=ended,
            state="succeeded",
            verified=verified,
        )
    assert person("viewer").get("/").context["healed"].number == 1


def test_a_fault_that_no_rule_covers_leads_those_who_may_to_a_rule_for_it(make, person):
    world = make()
    world.fault(79)
    world.work()
    link = "/policies/edit/?kind=xid&amp;code=79"
    for page in ("/", "/nodes/c1/gpu-1/", f"/incidents/{Incident.objects.get().pk}/"):
        assert link in person("admin").get(page).content.decode()
        assert link not in person("operator").get(page).content.decode()


@pytest.mark.parametrize("number", [1, 3])
def test_nodes_that_were_rebooted_twice_in_the_last_hour_are_named(make, number, django_assert_num_queries):
    world, now = make(nodes=8), timezone.now()

    def rescue(node: str, *reboots: int, step: str = "reboot", state: str = "done") -> None:
        ended = now - timedelta(minutes=1)
        shown = {"origin": "policy", "requested_by": "policy:x", "state": "failed", "closed_at": ended}
        row = Rescue.objects.create(cluster=world.cluster, node=world.node(node), opened_at=ended, **shown)
        for index, minutes in enumerate(reboots):
            at = now - timedelta(minutes=minutes)
            Step.objects.create(rescue=row, index=index, name=step, state=state, started_at=at, finished_at=at)

    for index in range(1, number + 1):
        rescue(f"gpu-{index}", 30, 5)  # the second round of one rescue
        rescue(f"gpu-{index + 3}", 40)  # two rescues
        rescue(f"gpu-{index + 3}", 5, step="power_cycle")
    rescue("gpu-7", 90, 5)
    rescue("gpu-8", 20, 10, state="failed")
    with django_assert_num_queries(1):
        found = overview.rebooted_again(Scope.of(world.cluster), now=now)
    wanted = sorted(f"gpu-{index + more}" for index in range(1, number + 1) for more in (0, 3))
    assert found == [("c1", name) for name in wanted]


def test_a_second_reboot_is_on_the_home_page_also_if_nothing_was_healed(make, person):
    world, now = make(nodes=2), timezone.now()
    client = person("viewer")
    assert "rebooted-again" not in client.get("/").content.decode()
    row = Rescue.objects.create(
        cluster=world.cluster, node=world.node(), origin="manual", requested_by="user:x", opened_at=now, state="running"
    )
    for index in range(2):
        Step.objects.create(rescue=row, index=index, name="reboot", state="done", finished_at=now)
    page = client.get("/").content.decode()
    assert 'id="rebooted-again"' in page
    assert "nodes healed in the last hour" not in page
    other = Cluster.objects.create(name="c2", created_at=world.now)
    assert "rebooted-again" not in person("viewer", cluster=other).get("/").content.decode()


def test_a_request_comes_before_faults_and_equal_recent_incidents_are_one_row(make, person):
    world = make(policy="", nodes=5)
    Cluster.objects.update(guards=NO_STORMS)
    for number in (1, 2, 3):
        world.fault(94, node=f"gpu-{number}")
    world.fault(62, node="gpu-4")
    world.work()
    recent = person("viewer").get("/").context["recent"]
    assert [(one.newest.code, one.nodes) for one in recent] == [("62", 1), ("94", 3)]
    assert causes.ORDER.index(Need.APPROVAL) < causes.ORDER.index(Need.STORM)


def test_the_card_of_a_request_says_what_was_done_and_what_an_answer_leads_to(make, person):
    world = make()
    fleet.resume(cluster=world.cluster, reason="", actor="user:ann", now=world.now, mode="approve")
    world.fault(62)
    world.work()
    [card] = person("viewer").get("/").context["needs"].cards
    steps = list(world.rescue().steps.all())
    assert card.plan.isolated == bool(world.rescue().marks)
    assert len(card.plan.done) == sum(step.state == "done" for step in steps)
    assert len(card.plan.done) + len(card.plan.next) == len(steps)
