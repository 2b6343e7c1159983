"""Guards on the engine: counted in SQL, evaluated by the core, evaluated again before each call that takes work
away.
"""

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from kcover import audit, reasons
from kcover.faults.fault import Fault
from kcover_portal.fleet import queries as fleet_queries, services as fleet
from kcover_portal.fleet.models import Cluster, Maintenance
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.kube import connections, port
from kcover_portal.ledger import queries as ledger
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue import services
from kcover_portal.rescue.engine import runner
from kcover_portal.rescue.models import Decision, Rescue
from kcover_portal.rescue.queries import counts
from kcover_portal.rescue.step import recheck_guards
from tests.codes import code_of, found_in, refused
from tests.portal.rescue.world import CORDON, HEAL, NODE, PCI, World

pytestmark = pytest.mark.django_db
BY_SOURCES = HEAL.replace('errorCode: ["48", "62", "64"]', "match: {kinds: [xid, health, gpud, alert]}").replace(
    "rescue.ksyun.com", "kcover.io"
)
OFF = {"storm": {"enabled": False}, "rate": {"enabled": False}, "breaker": {"enabled": False}}


@pytest.fixture
def make():
    """Makes a world of so many nodes with these guards."""
    made = []

    def world(policy: str = CORDON, *, nodes: int, **guards: object) -> World:
        one = World(policy=policy, nodes=nodes)
        made.append(one)
        cluster_settings.set_guards(one.cluster, {**OFF, **guards}, actor="test", reason="", now=one.now)
        return one

    yield world
    for one in made:
        one.uninstall()
    assert connections  # the fakes are out again


def isolated(world: World) -> list[str]:
    return sorted(node.name for node in world.kube.list_nodes().items if node.unschedulable)


def hurt(world: World, *numbers: int, code: int = 62) -> None:
    for number in numbers:
        world.fault(code, node=f"gpu-{number}")


def by_source(world: World, node: str, kind: str, code: str, *, alias: str) -> None:
    fault = incidents.SourceFault(
        kind=kind, code=code, alias=alias, pci=PCI, source=kind, witness=kind, severity="fatal", seen_at=world.now
    )
    incidents.ingest_observed(kind, [(world.node(node), fault)], [], now=world.now)


def latest_reason(world: World, code: str) -> dict[str, reasons.Value]:
    """The parameters of a reason of the newest decision."""
    return next(dict(reason.params) for reason in Decision.objects.latest("pk").reasons if reason.code == code)


class TestBreaker:
    def test_inv_29_at_most_l_nodes_are_isolated_in_the_window_and_the_rest_waits_as_held(self, make) -> None:
        world = make(nodes=8, breaker={"enabled": True, "limit": 3})
        hurt(world, 1, 2, 3, 4, 5)
        world.work()
        assert len(isolated(world)) == 3
        held = Decision.objects.filter(answer="hold")
        assert held.count() == 2
        assert held.first().reasons[-1].code == "breaker"
        world.pass_time(301)  # the window is over
        assert len(isolated(world)) == 5

    def test_inv_29_a_percentage_is_counted_over_the_eligible_nodes(self, make) -> None:
        world = make(nodes=8, breaker={"enabled": True, "limit": "25%"})
        hurt(world, 1, 2, 3)
        world.work()
        assert len(isolated(world)) == 2

    def test_inv_31_a_tripped_breaker_never_blocks_uncordon(self, make) -> None:
        world = make(nodes=4, breaker={"enabled": True, "limit": 1})
        hurt(world, 1, 2)
        world.work()
        assert len(isolated(world)) == 1
        services.request(world.node(isolated(world)[0]), "uncordon", actor="user:ann", reason="ok", now=world.now)
        world.work()
        assert isolated(world) == []

    def test_inv_32_after_a_reset_held_items_are_judged_on_the_current_state(self, make) -> None:
        world = make(nodes=4, breaker={"enabled": True, "limit": 1})
        hurt(world, 1, 2)
        world.work()
        [held] = Decision.objects.filter(answer="hold")
        incidents.close(
            [held.incident_id],
            because=reasons.of("closed_by_because", by="test", why="gone"),
            actor="test",
            now=world.now,
        )
        cluster_settings.set_guards(
            world.cluster, {"breaker": {"enabled": False}}, actor="test", reason="", now=world.now
        )
        world.pass_time(20)
        assert len(isolated(world)) == 1

    def test_inv_32_older_than_its_time_to_live_it_expires(self, make) -> None:
        world = make(nodes=4, breaker={"enabled": True, "limit": 1, "window": 200_000}, expiry=3600)
        hurt(world, 1, 2)
        world.work()
        world.pass_time(3700)
        last = Decision.objects.latest("pk")
        assert last.answer == "none"
        cluster_settings.set_guards(
            world.cluster, {"breaker": {"enabled": False}}, actor="test", reason="", now=world.now
        )
        world.pass_time(30)
        assert len(isolated(world)) == 1


class TestBudgetAndFloor:
    def test_inv_36_isolation_never_takes_a_pool_under_its_floor_unless_a_named_user_overrides(self, make) -> None:
        world = make(nodes=4, floor={"percent": 75})
        hurt(world, 1, 2)
        world.work()
        assert isolated(world) == ["gpu-1"]
        assert latest_reason(world, "floor")["floor"] == 3
        node = world.node("gpu-2")
        with refused(services.RescueRefused, "floor"):
            services.request(node, "cordon", actor="user:ann", reason="hot", now=world.now)
        made = services.request(node, "cordon", actor="user:ann", reason="hot", now=world.now, override=["floor"])
        world.work()
        assert isolated(world) == ["gpu-1", "gpu-2"]
        assert made.overrides["floor"] == "user:ann"
        opened = Entry.objects.get(verb="rescue.opened", rescue=made.pk)
        assert opened.data["overrides"]["floor"] == "user:ann"

    def test_inv_36_a_stuck_node_keeps_holding_its_slot(self, make) -> None:
        world = make(nodes=4, budget={"limit": 1})
        hurt(world, 1)
        world.work()
        assert world.rescue("gpu-1").state == "succeeded"  # isolated, and it stays so
        hurt(world, 2)
        world.work()
        world.pass_time(4000)
        assert isolated(world) == ["gpu-1"]
        services.request(world.node("gpu-1"), "release", actor="user:ann", reason="mended", now=world.now)
        world.work()
        world.sync()
        world.pass_time(20)
        assert isolated(world) == ["gpu-2"]

    @pytest.mark.parametrize("since", ["its GPUs are gone", "it is excluded"])
    @pytest.mark.parametrize("whose", ["the cluster's", "the rule's"])
    def test_inv_36_a_stuck_node_keeps_its_slot_whatever_becomes_of_it(self, make, since: str, whose: str) -> None:
        if whose == "the rule's":
            world = make(
                CORDON.replace("actions:", "budget: 1, actions:").replace("rescue.ksyun.com", "kcover.io"), nodes=4
            )
        else:
            world = make(nodes=4, budget={"limit": 1})
        hurt(world, 1)
        world.work()
        if since == "it is excluded":
            world.kube.label_node(NODE, {"kcover.io/exclude": "true"})
        else:
            world.kube.objects.merge("Node", "", NODE, {"status": {"capacity": {"nvidia.com/gpu": "0"}}})
        world.sync()
        hurt(world, 2)
        world.work()
        assert isolated(world) == ["gpu-1"]
        assert latest_reason(world, "budget")["limit"] == 1

    def test_a_manual_act_on_a_node_without_gpus_takes_no_slot(self, make) -> None:
        world = make(nodes=2, budget={"limit": 1})
        world.kube.add_node("cpu-1", gpus=0)
        world.sync()
        services.request(world.node("cpu-1"), "cordon", actor="user:ann", reason="", now=world.now)
        hurt(world, 2)
        world.work()
        assert isolated(world) == ["cpu-1", "gpu-2"]

    def test_inv_30_no_eligible_node_no_crash_no_act(self, make) -> None:
        world = make(nodes=1, budget={"limit": "50%"}, breaker={"enabled": True, "limit": "50%"})
        world.kube.apply_node(NODE, port.NodeChange(labels={"kcover.io/exclude": "true"}))
        world.sync()
        hurt(world, 1)
        world.work()
        assert isolated(world) == []


class TestStorm:
    def test_inv_33_one_symptom_on_many_nodes_is_one_storm_and_takes_no_work_away(self, make) -> None:
        world = make(HEAL, nodes=24, storm={"enabled": True})
        for number in range(1, 13):
            world.kube.add_pod("default", f"train-{number}", node=f"gpu-{number}", labels={"app": "train"})
        hurt(world, *range(1, 13))
        world.work()
        storm = Incident.objects.get(kind="storm")
        assert (storm.node, storm.state, len(storm.scope), storm.count) == (None, "open", 12, 12)
        assert (storm.trait, storm.symptom_kind, storm.symptom) == ("code", "xid", "62")
        assert len(isolated(world)) == 6  # a quarter
        full = {"taken": 6, "limit": 6, "eligible": 24}
        assert latest_reason(world, "storm_budget") == full
        world.pass_time(3600)
        assert (len(isolated(world)), world.kube.called("evict")) == (6, [])
        assert {code_of(rescue.because) for rescue in Rescue.objects.all()} == {"storm_code"}
        assert Entry.objects.filter(verb="storm.opened").count() == 1

    def test_inv_33_one_fault_under_several_names_is_one_storm(self, make) -> None:
        """Two nodes each by four systems."""
        world = make(BY_SOURCES, nodes=24, storm={"enabled": True})
        told = ("health", "SysLogsXIDError/62"), ("gpud", "accelerator-nvidia-error-xid"), ("alert", "GpuXid")
        for number, (kind, code) in enumerate((*told, *told), start=1):
            by_source(world, f"gpu-{number}", kind, code, alias="xid 62")
        hurt(world, 7, 8)
        world.work()
        storm = Incident.objects.get(kind="storm")
        assert (storm.trait, storm.symptom_kind, storm.symptom) == ("code", "xid", "62")
        assert storm.scope == [f"gpu-{number}" for number in range(1, 9)]
        assert isolated(world) == ["gpu-7", "gpu-8"]  # of the others it is not known whether they are hardware
        world.pass_time(3600)
        assert {code_of(rescue.because) for rescue in Rescue.objects.all()} == {"storm_code"}

    def test_inv_33_a_component_with_several_xids_is_one_storm_too(self, make) -> None:
        world = make(BY_SOURCES, nodes=24, storm={"enabled": True})
        for number, code in enumerate((62, 48, 79, 74, 64), start=1):
            by_source(world, f"gpu-{number}", "gpud", "accelerator-nvidia-error-xid", alias=f"xid {code}")
        world.work()
        storm = Incident.objects.get(kind="storm")
        assert (storm.symptom_kind, storm.symptom) == ("gpud", "accelerator-nvidia-error-xid")
        assert len(storm.scope) == 5

    def test_inv_33_earlier_isolations_leave_a_storm_its_share(self, make) -> None:
        world = make(HEAL, nodes=24, storm={"enabled": True})
        hurt(world, 20)
        world.work()
        for number in (21, 22, 23):
            services.request(world.node(f"gpu-{number}"), "cordon", actor="user:ann", reason="", now=world.now)
        world.pass_time(3600)
        before = isolated(world)
        assert before == ["gpu-20", "gpu-21", "gpu-22", "gpu-23"]
        hurt(world, *range(1, 13))
        world.work()
        assert len(isolated(world)) == len(before) + 6
        assert latest_reason(world, "storm_budget") == {"taken": 6, "limit": 6, "eligible": 24}
        world.pass_time(3600)  # the storm lasts, and its nodes with it
        assert len(isolated(world)) == len(before) + 6

    @pytest.mark.parametrize(("guard", "taken"), [({"budget": {"limit": 5}}, 5), ({"floor": {"percent": 90}}, 3)])
    def test_inv_33_a_storm_cordons_within_budget_and_floor(self, make, guard: dict[str, object], taken: int) -> None:
        world = make(HEAL, nodes=24, storm={"enabled": True}, **guard)
        for number in range(1, 9):
            hurt(world, number)
            world.work()
        assert isolated(world) == [f"gpu-{number}" for number in range(1, taken + 1)]

    @pytest.mark.parametrize("code", [13, 999])
    def test_inv_33_a_storm_holds_faults_that_are_not_known_to_be_hardware(self, make, code: int) -> None:
        world = make(CORDON.replace('"62"', f'"{code}"'), nodes=24, storm={"enabled": True})
        hurt(world, 1, 2, 3, code=code)
        world.work()
        assert (isolated(world), Rescue.objects.count()) == ([], 0)

    def test_inv_33_a_drill_in_a_storm_isolates_no_node(self, make) -> None:
        world = make(nodes=24, storm={"enabled": True})
        for number in (1, 2, 3):
            fault = Fault(kind="xid", code=62, pci=PCI, source="kmsg", drill=True)
            world.report(fault, node=f"gpu-{number}")
        world.work()
        assert isolated(world) == []

    @pytest.mark.parametrize(
        "action",
        [
            "{name: webhook, attribute: {url: 'https://dc.example/hook'}}",
            "{name: enableWarmStandby}",
        ],
    )
    def test_inv_33_a_storm_hands_over_no_node_and_takes_no_standby(self, make, action: str) -> None:
        policy = CORDON.replace("[{name: cordon}]", f"[{{name: cordon}}, {action}]").replace(
            "rescue.ksyun.com", "kcover.io"
        )
        world = make(policy, nodes=24, storm={"enabled": True})
        hurt(world, 1, 2, 3, 4)
        world.work()
        assert len(isolated(world)) == 4
        assert {code_of(rescue.because) for rescue in Rescue.objects.all()} == {"storm_code"}

    def test_a_storm_holds_until_a_person_closes_it(self, make) -> None:
        world = make(nodes=8, storm={"enabled": True})
        hurt(world, 1, 2, 3, 4)
        world.work()
        world.pass_time(3600)
        assert isolated(world) == ["gpu-1", "gpu-2"]
        storm = Incident.objects.get(kind="storm")
        incidents.close_by_hand(storm, actor="user:ann", reason="the driver was rolled back", now=world.now)
        world.work()
        assert isolated(world) == ["gpu-1", "gpu-2", "gpu-3", "gpu-4"]
        with pytest.raises(incidents.CloseRefused):
            incidents.close_by_hand(storm, actor="user:ann", reason="again", now=world.now)

    def test_inv_33_a_storm_needs_no_rule(self, make) -> None:
        world = make(nodes=24, storm={"enabled": True})
        hurt(world, *range(1, 10), code=74)
        world.work()
        assert {decision.answer for decision in Decision.objects.all()} == {"none"}
        storm = Incident.objects.get(kind="storm")
        assert (storm.trait, storm.symptom_kind, storm.symptom, len(storm.scope)) == ("code", "xid", "74", 9)
        assert Entry.objects.filter(verb="storm.opened").count() == 1
        assert isolated(world) == []

    def test_inv_33_different_warnings_behind_one_switch_are_no_storm(self, make) -> None:
        world = make(HEAL, nodes=10, storm={"enabled": True})
        for number in range(1, 11):
            world.kube.label_node(f"gpu-{number}", {"kcover.io/switch": "leaf-1" if number <= 5 else "leaf-2"})
        world.sync()
        for number, code in enumerate(("FanLow", "PsuLost", "ClockSkew"), start=1):
            seen = incidents.SourceFault(
                witness="am",
                seen_at=world.now,
                severity="warning",
                kind="alert",
                code=code,
                source="alertmanager",
                earliest=world.now,
            )
            incidents.ingest_observed("am", [(world.node(f"gpu-{number}"), seen)], [], now=world.now)
        world.work()
        assert not Incident.objects.filter(kind="storm").exists()
        world.now += timedelta(days=2)
        world.sync()
        hurt(world, 1)
        world.until_reboot_is_asked()

    @pytest.mark.parametrize("policy", [HEAL, ""])
    def test_the_storms_of_a_batch_are_written_in_a_fixed_order_and_before_the_incidents(self, make, policy) -> None:
        world = make(policy, nodes=24, storm={"enabled": True})
        hurt(world, 1, 2, 3, code=64)
        hurt(world, 4, 5, 6, code=62)
        due = list(Incident.objects.order_by("pk").values_list("pk", flat=True))
        with CaptureQueriesContext(connection) as captured:
            services.decide_and_run(due, clock=world.clock)
        storms = Incident.objects.filter(kind="storm").order_by("pk")
        assert [storm.symptom for storm in storms] == ["62", "64"]
        written = [query["sql"] for query in captured.captured_queries if "incidents_incident" in query["sql"]]
        inserts = [index for index, sql in enumerate(written) if sql.startswith("INSERT")]
        updates = [index for index, sql in enumerate(written) if sql.startswith("UPDATE") and "SET decided_at" in sql]
        assert max(inserts) < min(updates)

    def test_nodes_behind_one_switch_are_counted_once_in_a_batch(self, make) -> None:
        world = make(HEAL, nodes=24, storm={"enabled": True})
        for number in range(1, 25):
            world.kube.label_node(f"gpu-{number}", {"kcover.io/switch": f"leaf-{number // 13}"})
        world.sync()
        nodes = [world.node(f"gpu-{number}") for number in range(1, 25)]
        settings = fleet_queries.guards_of(world.cluster)
        counted = counts.Counts(world.cluster, settings=settings, now=world.now, nodes=nodes, codes=[("xid", "62")])
        with CaptureQueriesContext(connection) as captured:
            for node in nodes:
                counted.of(node, kind="xid", code="62")
        assert len([query for query in captured.captured_queries if "kcover.io/switch" in query["sql"]]) == 2

    def test_a_storm_is_closed_by_a_person_also_without_a_rule(self, make) -> None:
        world = make(nodes=24, storm={"enabled": True})
        hurt(world, 1, 2, 3, code=74)
        world.work()
        incidents.close_by_hand(
            Incident.objects.get(kind="storm"), actor="user:ann", reason="the switch", now=world.now
        )
        world.pass_time(600)
        hurt(world, 4, code=74)
        world.work()
        assert not Incident.objects.filter(kind="storm", state="open").exists()

    @pytest.mark.parametrize("code", [13, 31])
    def test_programs_that_fail_on_many_nodes_are_no_storm_without_a_rule(self, make, code: int) -> None:
        world = make(nodes=24, storm={"enabled": True})
        hurt(world, *range(1, 10), code=code)
        world.work()
        assert not Incident.objects.filter(kind="storm").exists()

    def test_two_nodes_are_no_storm(self, make) -> None:
        world = make(nodes=8, storm={"enabled": True})
        hurt(world, 1, 2)
        world.work()
        assert isolated(world) == ["gpu-1", "gpu-2"]
        assert not Incident.objects.filter(kind="storm").exists()


class TestBeforeTheCall:
    def test_an_unlikely_number_of_faulty_nodes_is_cordoned_but_not_drained_or_rebooted(self, make) -> None:
        world = make(HEAL, nodes=8, rate={"enabled": True})
        world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
        hurt(world, 1, 2, 3)
        world.work()
        assert isolated(world) == ["gpu-1", "gpu-2", "gpu-3"]
        assert world.kube.called("evict") == []
        drain = world.step("drain", node="gpu-1")
        assert (drain.state, drain.started_at) == ("waiting", None)
        assert dict(found_in(drain.because, "rate").params)["act"] == reasons.of("act_drain")
        cluster_settings.set_guards(world.cluster, {"rate": {"enabled": False}}, actor="test", reason="", now=world.now)
        world.pass_time(301)
        assert len(world.kube.called("evict")) == 1

    def test_inv_31_no_guard_holds_an_uncordon(self, make) -> None:
        world = make(nodes=4, rate={"enabled": True}, budget={"limit": 1})
        hurt(world, 1)
        services.request(world.node(), "cordon", actor="user:ann", reason="", now=world.now)
        world.work()
        hurt(world, 2, 3)
        ends = world.now + timedelta(hours=1)
        cluster_settings.open_maintenance(
            world.cluster, starts_at=world.now, ends_at=ends, reason="", actor="u", now=world.now
        )
        assert isolated(world) == [NODE]
        services.request(world.node(), "uncordon", actor="user:ann", reason="", now=world.now)
        world.work()
        assert isolated(world) == []

    def test_inv_37_an_exclusion_that_only_the_live_node_shows_stops_the_drain(self, make) -> None:
        world = make(HEAL, nodes=1)
        world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
        world.kube.add_budget("default", "keep", match={"app": "train"})
        hurt(world, 1)
        world.until("waiting", step="drain")
        world.kube.objects.remove("PodDisruptionBudget", "default", "keep")
        asked = len(world.kube.called("evict"))
        world.kube.label_node(NODE, {"kcover.io/exclude": "true"})  # and the watch is late
        for _ in range(5):
            world.now += timedelta(seconds=60)
            world.work()
        assert len(world.kube.called("evict")) == asked
        assert code_of(world.step("drain").because) == "excluded"

    def test_a_refusal_before_a_call_is_in_the_ledger_once_for_each_answer(self, make) -> None:
        world = make(HEAL, nodes=8, rate={"enabled": True})
        world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
        hurt(world, 1, 2, 3)
        world.work()
        for _ in range(20):
            world.pass_time(5)

        def reported() -> list[reasons.Reason]:
            rows = Entry.objects.filter(verb="guard.refused", rescue=world.rescue().pk).order_by("pk")
            return [audit.GuardRefused.of_entry(row).because for row in rows]

        assert len(reported()) == 1
        assert reported()[0].code == "rate"
        fleet.pause(cluster=world.cluster, reason="lunch", actor="user:ann", now=world.now)
        for _ in range(5):
            world.pass_time(60)
        assert reported()[1:] == [reasons.of("paused_because", why="lunch")]
        assert ledger.verify("c1").intact

    def test_inv_37_exclusion_is_checked_again_right_before_the_reboot(self, make) -> None:
        world = make(HEAL, nodes=2)
        world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
        world.fault(62)
        world.work()  # cordoned, evicted, waiting for the pod to go
        world.kube.apply_node(NODE, port.NodeChange(labels={"kcover.io/exclude": "true"}))
        for _ in range(20):
            world.pass_time()
        assert world.kube.called("ensure_job") == []
        assert "excluded" in (code_of(world.rescue().because), code_of(world.step("reboot").because))

    def test_maintenance_holds_back_and_its_end_lets_go(self, make) -> None:
        world = make(nodes=2)
        cluster_settings.open_maintenance(
            world.cluster,
            starts_at=world.now,
            ends_at=world.now + timedelta(minutes=10),
            reason="new switches",
            actor="user:ann",
            now=world.now,
        )
        world.fault(62)
        world.work()
        assert isolated(world) == []
        assert latest_reason(world, "maintenance_because")["why"] == "new switches"
        world.pass_time(601)
        world.pass_time(1)
        assert isolated(world) == ["gpu-1"]

    def test_a_window_of_another_node_holds_nothing_back(self, make) -> None:
        world = make(nodes=2)
        ends = world.now + timedelta(hours=1)
        Maintenance.objects.create(
            cluster=world.cluster, node="gpu-2", starts_at=world.now, ends_at=ends, reason="x", created_by="t"
        )
        hurt(world, 1, 2)
        world.work()
        assert isolated(world) == ["gpu-1"]


def test_a_rule_asks_for_a_number_of_occurrences_in_a_window(make) -> None:
    often = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: often}
spec:
  rules:
    - {priority: 10, errorCode: ["62"], match: {minCount: 3, within: 10min}, actions: [{name: cordon}]}
"""
    world = make(often, nodes=2)
    for sequence in range(3):
        assert isolated(world) == []
        world.report(Fault(kind="xid", code=62, pci="0000:4e:00", source="kmsg", sequence=sequence))
        world.work()
        world.pass_time(6)
    assert isolated(world) == ["gpu-1"]


def test_a_pause_between_the_decision_and_its_call_holds_the_cordon_back(make, monkeypatch) -> None:
    world = make(nodes=2)
    world.fault(62)
    go_on = runner.go_on

    def paused_first(*args: object, **more: object) -> None:
        fleet.pause(cluster=world.cluster, reason="stop", actor="user:ann", now=world.now)
        go_on(*args, **more)

    monkeypatch.setattr(runner, "go_on", paused_first)
    services.decide_and_run([Incident.objects.get().pk], clock=world.clock)
    assert isolated(world) == []
    assert [call for call in world.kube.calls if call.wrote] == []
    assert Entry.objects.filter(verb="cordon.failed").count() == 1


def test_a_drain_that_was_held_back_does_not_count_as_drained(make) -> None:
    policy = HEAL.replace("rescue.ksyun.com/v1", "kcover.io/v1").replace(
        "errorCode: [", "onDrainTimeout: proceed\n      errorCode: ["
    )
    world = make(policy, nodes=2)
    world.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    world.kube.fail("evict", port.Unavailable("busy", retry_after=None), times=1)
    world.fault(62)
    world.work()
    fleet.pause(cluster=world.cluster, reason="stop", actor="user:ann", now=world.now)
    world.pass_time(5)
    world.pass_time(3600)
    fleet.resume(cluster=world.cluster, reason="go", actor="user:ann", now=world.now)
    world.pass_time(10)
    drain = world.step("drain")
    assert world.kube.called("ensure_job") == []
    assert code_of(drain.because) == "drain_leaving"


def test_inv_15_no_action_runs_for_a_fault_that_a_reboot_has_ended(make) -> None:
    world = make(HEAL, nodes=2)
    fleet.pause(cluster=world.cluster, reason="stop", actor="user:ann", now=world.now)
    world.fault(62)
    world.work()
    world.pass_time(60)
    world.kube.reboot(NODE)
    world.pass_time(1)
    world.report()  # the agent is back, under another boot
    fleet.resume(cluster=world.cluster, reason="go", actor="user:ann", now=world.now)
    world.pass_time(60)
    assert isolated(world) == []
    assert latest_reason(world, "rebooted_since")["node"] == NODE
    world.pass_time(1)
    world.fault(62)  # and if it comes back, it is acted on
    world.work()
    assert isolated(world) == [NODE]


class TestBeginningLate:
    """What the guards said when a rescue was opened is not acted on for ever: they are asked again (29, 36)."""

    def approved(self, world: World, *numbers: int) -> None:
        """Rescues in approve mode that were opened one by one, and are approved together, long after."""
        fleet.resume(cluster=world.cluster, reason="", actor="user:ann", now=world.now, mode="approve")
        Cluster.objects.update(isolate_before_approval=False)
        for number in numbers:
            hurt(world, number)
            world.work()
            world.pass_time(400)  # beyond the breaker's window: each alone is within the limit
        assert Rescue.objects.filter(state="held", hold="approval").count() == len(numbers)
        for rescue in Rescue.objects.order_by("pk"):
            services.approve(rescue, actor="user:bob", reason="", now=world.now)

    def test_inv_29_rescues_approved_at_once_begin_within_the_breaker(self, make) -> None:
        world = make(nodes=8, breaker={"enabled": True, "limit": 2})
        self.approved(world, 1, 2, 3, 4, 5)
        world.work()
        assert len(isolated(world)) == 2
        held = Rescue.objects.filter(state="waiting").first()
        tripped = dict(found_in(held.because, "breaker").params)
        assert (held.hold, tripped["isolated"], tripped["eligible"]) == ("guard", 2, 8)
        assert held.steps.get(name="cordon").started_at is None
        world.pass_time(400)
        assert len(isolated(world)) == 4
        world.pass_time(400)
        assert len(isolated(world)) == 5

    def test_inv_36_a_floor_that_would_be_broken_now_holds_an_approved_cordon(self, make) -> None:
        world = make(nodes=4, floor={"percent": 75})
        self.approved(world, 1)
        world.kube.cordon("gpu-2")
        world.sync()
        world.work()
        assert isolated(world) == ["gpu-2"]
        assert dict(found_in(world.rescue("gpu-1").because, "floor").params)["floor"] == 3
        world.kube.uncordon("gpu-2")
        world.pass_time(20)
        assert isolated(world) == ["gpu-1"]

    def test_rescues_held_by_a_lowered_budget_begin_one_by_one(self, make) -> None:
        world = make(nodes=8, budget={"limit": 3})
        self.approved(world, 1, 2, 3)
        cluster_settings.set_guards(world.cluster, {"budget": {"limit": 1}}, actor="user:ann", reason="", now=world.now)
        world.work()
        assert isolated(world) == ["gpu-1"]
        assert dict(found_in(world.rescue("gpu-2").because, "budget").params)["scope"] == reasons.of(
            "scope_cluster", name="c1"
        )
        for number in (1, 2):
            name = f"gpu-{number}"
            services.request(world.node(name), "release", actor="user:ann", reason="mended", now=world.now)
            world.work()
            world.sync()
            world.pass_time(20)
            assert isolated(world) == [f"gpu-{number + 1}"]

    def test_a_pause_between_the_decision_and_its_call_evaluates_the_guards_again(self, make) -> None:
        world = make(nodes=8, breaker={"enabled": True, "limit": 1})
        world.kube.fail("apply_node", port.Unavailable("away"), times=1)
        hurt(world, 1)
        world.work()
        fleet.pause(cluster=world.cluster, reason="stop", actor="user:ann", now=world.now)
        world.pass_time(400)
        fleet.resume(cluster=world.cluster, reason="go", actor="user:ann", now=world.now)
        hurt(world, 2)
        world.work()
        assert isolated(world) == ["gpu-2"]  # the other one is asked for again, and the place is taken
        world.pass_time(10)
        assert code_of(world.rescue("gpu-1").because) == "breaker"
        world.pass_time(400)
        assert isolated(world) == ["gpu-1", "gpu-2"]

    def test_inv_37_a_node_that_was_excluded_since_the_approval_is_not_cordoned(self, make) -> None:
        world = make(nodes=4)
        self.approved(world, 1)
        world.kube.label_node("gpu-1", {"kcover.io/exclude": "true"})
        world.sync()
        world.work()
        assert isolated(world) == []
        assert code_of(world.rescue("gpu-1").because) == "excluded"

    def test_a_storm_lets_an_approved_rescue_begin_within_a_quarter(self, make) -> None:
        world = make(nodes=8, storm={"enabled": True})
        self.approved(world, 1)
        hurt(world, 2, 3, 1)
        world.work()
        assert isolated(world) == ["gpu-1"]

    def test_a_rescue_that_begins_at_once_evaluates_the_guards_once(self, make, monkeypatch) -> None:
        world = make(nodes=8, breaker={"enabled": True, "limit": 1})
        asked: list[object] = []
        monkeypatch.setattr(recheck_guards, "isolation", lambda *a, **k: asked.append(a) or ())
        hurt(world, 1)
        world.work()
        assert (isolated(world), asked) == (["gpu-1"], [])


class TestPassedOver:
    """What a named person really passed over is on record, with its figures; what they might have is not the same."""

    def test_an_override_of_a_guard_that_did_not_hold_is_not_recorded(self, make) -> None:
        world = make(nodes=4, breaker={"enabled": True, "limit": 3})
        made = services.request(world.node("gpu-1"), "cordon", actor="user:ann", reason="", now=world.now)
        world.work()
        made.refresh_from_db()
        assert made.overrides == {"breaker": "user:ann", "rate": "user:ann"}
        assert made.passed_over == []
        assert "passed_over" not in Entry.objects.get(verb="rescue.opened").data

    def test_inv_11_overridden_guards_of_a_request_are_stored_with_it(self, make) -> None:
        world = make(nodes=4, breaker={"enabled": True, "limit": 1})
        hurt(world, 1)
        world.work()
        made = services.request(world.node("gpu-2"), "cordon", actor="user:ann", reason="", now=world.now)
        [row] = made.passed_over
        assert (row["step"], row["guard"], row["by"]) == ("", "breaker", "user:ann")
        opened = audit.RescueOpened.of_entry(Entry.objects.get(verb="rescue.opened", rescue=made.pk))
        [passed] = opened.passed_over
        assert (passed.code, dict(passed.params)["guard"]) == ("overridden", reasons.of("guard_breaker"))
        assert dict(passed.params)["why"].code == "breaker"

    def test_an_overridden_guard_before_a_call_is_recorded_with_the_call(self, make) -> None:
        world = make(nodes=8, rate={"enabled": True})
        for number in (1, 2):
            world.kube.add_pod("default", f"train-{number}", node="gpu-3", labels={"app": "train"})
        made = services.request(world.node("gpu-3"), "drain", actor="user:ann", reason="", now=world.now)
        hurt(world, 1, 2, 4)  # from here on more nodes are faulty than chance explains
        world.work()
        assert len(world.kube.called("evict")) == 2
        made.refresh_from_db()
        [row] = made.passed_over
        assert (row["step"], row["guard"], row["by"]) == ("drain", "rate", "user:ann")
        begun = Entry.objects.filter(verb="evict.begun", rescue=made.pk)
        assert begun.count() == 2
        for entry in begun:
            [passed] = audit.ClusterCallBegun.of_entry(entry).passed_over
            assert (passed.code, dict(passed.params)["guard"]) == ("overridden", reasons.of("guard_rate"))
        assert "passed_over" not in Entry.objects.get(verb="cordon.begun", rescue=made.pk).data


def test_no_guard_is_counted_where_a_pause_decides_before_the_guards(make) -> None:
    world = make(nodes=3, breaker={"enabled": True, "limit": 1})
    fleet.pause(cluster=world.cluster, reason="look first", actor="test", now=world.now)
    hurt(world, 1)
    world.work()
    paused = Decision.objects.latest("pk")
    assert (paused.answer, paused.facts["counts"]) == ("hold", None)
    fleet.resume(cluster=world.cluster, reason="", actor="test", now=world.now)
    world.pass_time(16)
    assert Decision.objects.latest("pk").facts["counts"]["eligible"] == 3
    assert isolated(world) == ["gpu-1"]


class TestOneJob:
    """One training job on all of the nodes that fail is a storm (invariant 33), whatever their codes."""

    def world(self, make, **more: object) -> World:
        world = make(HEAL, nodes=8, storm={"enabled": True}, **more)
        for number in range(1, 9):
            job = "llm" if number <= 4 else f"other-{number}"
            world.kube.add_pod(
                "train", f"{job}-{number}", node=f"gpu-{number}", labels={port.KUBEFLOW_JOB_LABEL: job}, gpus=8
            )
        return world

    def judge(self, world: World, *faults: tuple[int, int]) -> None:
        for number, code in faults:
            hurt(world, number, code=code)
            services.decide_and_run([Incident.objects.latest("pk").pk], clock=world.clock)

    def test_inv_33_nodes_of_one_job_that_fail_with_different_codes_are_one_storm(self, make) -> None:
        world = self.world(make)
        self.judge(world, (1, 48), (2, 62), (3, 64), (4, 48))
        assert isolated(world) == ["gpu-1", "gpu-2"]  # two are no storm yet
        storm = Incident.objects.get(kind="storm")
        assert (storm.code, storm.scope) == ("job train/llm", ["gpu-1", "gpu-2", "gpu-3", "gpu-4"])
        assert latest_reason(world, "storm_budget") == {"taken": 2, "limit": 2, "eligible": 8}

    def test_failures_of_different_jobs_are_no_storm(self, make) -> None:
        world = self.world(make)
        self.judge(world, (1, 48), (5, 62), (6, 64))
        assert not Incident.objects.filter(kind="storm").exists()

    def test_a_job_that_a_drain_moved_away_still_counts_for_the_storm(self, make) -> None:
        world = self.world(make)
        self.judge(world, (1, 48))
        assert len(world.kube.called("evict")) == 1
        world.kube.finish_deletions()
        self.judge(world, (2, 62), (3, 64))
        assert Incident.objects.get(kind="storm").scope == ["gpu-1", "gpu-2", "gpu-3"]

    def test_a_single_fault_lists_no_pods(self, make) -> None:
        world = make(CORDON, nodes=8, storm={"enabled": True})
        self.judge(world, (1, 62))
        assert world.kube.called("list_pods") == []
        world.pass_time(301)  # and neither does one that comes when the other is no news any more
        self.judge(world, (2, 62))
        assert world.kube.called("list_pods") == []

    def test_the_pods_of_each_node_are_listed_once(self, make) -> None:
        world = make(CORDON, nodes=8, storm={"enabled": True})
        self.judge(world, (1, 48), (2, 62), (3, 64), (4, 79))
        assert len(world.kube.called("list_pods")) == 4
        assert not Incident.objects.filter(kind="storm").exists()

    def test_an_unanswered_pod_list_does_not_delay_a_decision(self, make) -> None:
        world = make(CORDON, nodes=8, storm={"enabled": True})
        world.kube.fail("list_pods", port.Unavailable("away"), times=100)
        self.judge(world, (1, 62), (2, 62))
        assert isolated(world) == ["gpu-1", "gpu-2"]


class TestOtherLabels:
    """What was settled because of a node's labels is judged again when they change (invariant 15)."""

    def test_removing_an_exclusion_lets_the_fault_be_decided_again(self, make) -> None:
        world = make(nodes=2)
        world.kube.label_node(NODE, {"kcover.io/exclude": "true"})
        world.sync()
        hurt(world, 1)
        world.work()
        assert Decision.objects.get().answer == "none"
        world.pass_time(3600)
        assert isolated(world) == []
        world.kube.label_node(NODE, {"kcover.io/exclude": None})
        world.pass_time(1)
        assert isolated(world) == [NODE]

    def test_a_label_that_a_rule_selects_by_lets_the_fault_be_decided_again(self, make) -> None:
        selecting = CORDON.replace(
            'errorCode: ["62"],', 'errorCode: ["62"], nodeSelector: {operator: all, labels: {team: a}},'
        )
        world = make(selecting, nodes=2)
        hurt(world, 1)
        world.work()
        assert isolated(world) == []
        world.kube.label_node(NODE, {"team": "a"})
        world.pass_time(1)
        assert isolated(world) == [NODE]

    def test_an_irrelevant_change_of_the_node_repeats_no_decision(self, make) -> None:
        world = make(nodes=2)
        hurt(world, 1, code=999)
        world.work()
        for number in range(5):
            world.kube.label_node(NODE, {"kcover.io/state": f"s{number}"})
            world.kube.set_ready(NODE, number % 2 == 0)
            world.pass_time(60)
        assert Decision.objects.get().count == 1
        world.kube.label_node(NODE, {"team": "b"})
        world.pass_time(1)
        world.pass_time(60)
        assert Decision.objects.get().count == 2

    def test_a_closed_fault_is_not_decided_again(self, make) -> None:
        world = make(nodes=2)
        hurt(world, 1, code=999)
        world.work()
        incidents.close(
            [Incident.objects.get().pk],
            because=reasons.of("closed_by_because", by="test", why="gone"),
            actor="test",
            now=world.now,
        )
        world.kube.label_node(NODE, {"team": "b"})
        world.pass_time(1)
        assert Incident.objects.get().decide_at is None
