"""A machine is switched off at most once without a person's word, and its boot ID shows that it came back."""

import copy
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from kcover.decisions import guards
from kcover_portal.fleet.services import cluster_settings
from kcover_portal.ledger.models import Entry
from kcover_portal.machines import services as machines
from kcover_portal.machines.drivers import redfish, webhook
from kcover_portal.machines.models import Driver
from kcover_portal.rescue import services
from kcover_portal.rescue.queries import proof
from tests import forgeries, proofs
from tests.codes import code_of, found_in
from tests.portal.machines import bmc_server
from tests.portal.machines.controllers import PASSWORD, USERNAME, Controller
from tests.portal.rescue import worker_kills
from tests.portal.rescue.other_system import OtherSystem
from tests.portal.rescue.world import HEAL, NODE, World

pytestmark = pytest.mark.django_db
REBOOT = '- {name: reboot, attribute: {unCordon: "true"}}'
CYCLE = '- {name: powerCycle, attribute: {unCordon: "true"}}'
POLICY = HEAL.replace("rescue.ksyun.com/v1", "kcover.io/v1").replace(REBOOT, CYCLE)
OFFLINE = '- {name: offline, attribute: {url: "http://127.0.0.1:9/", waittime: 2h, unCordon: "true"}}'
LADDER = POLICY.replace(CYCLE, f"{REBOOT}\n        {CYCLE}")


class Machine(World):
    """A world whose node has a controller."""

    def __init__(self, *, policy: str = POLICY, driver: bool = True) -> None:
        super().__init__(policy=policy)
        self.controller = Controller(uuid=self.kube.get_node(NODE).system_uuid)
        self.controller.switched = self._switched
        self.boots = 0
        if driver:
            self.add_driver()

    def add_driver(self, **more: Any) -> None:
        given = {"insecure": True, "off_seconds": 0, "table": {NODE: self.controller.url}, **more}
        machines.DRIVERS.make(
            Driver(name="bmc", kind="redfish", cluster=self.cluster),
            {"username": USERNAME, "password": PASSWORD, "settings": given},
            actor="user:ann",
            now=self.now,
        )

    def _switched(self, power: str) -> None:
        """The machine boots at the next tick, as the node shows."""
        self.boots += power == "On"

    def pass_time(self, seconds: float = 1) -> None:
        while self.boots:
            self.boots -= 1
            self.kube.reboot(NODE)
        super().pass_time(seconds)

    def heal(self) -> None:
        """Until the node is back. Its agent reports each second."""
        for _ in range(60):
            self.work()
            if self.rescue().state == "succeeded":
                return
            self.pass_time(2)
            self.report()
        raise AssertionError([(s.name, s.state, str(s.why)) for s in self.rescue().steps.all()])


@pytest.fixture
def machine(settings: Any) -> Iterator[Machine]:
    settings.KCOVER_OUTGOING_HOSTS = ("127.0.0.1",)
    made = Machine()
    yield made
    made.controller.stop()
    made.uninstall()


@pytest.fixture
def ladder(settings: Any) -> Iterator[Machine]:
    settings.KCOVER_OUTGOING_HOSTS = ("127.0.0.1",)
    made = Machine(policy=LADDER)
    yield made
    made.controller.stop()
    made.uninstall()


def verbs() -> list[str]:
    return list(Entry.objects.filter(verb__startswith="power_").order_by("pk").values_list("verb", flat=True))


def test_a_machine_is_switched_off_and_on_once_and_returns(machine: Machine) -> None:
    old = machine.kube.get_node(NODE).boot_id
    machine.fault(62)
    machine.heal()
    assert machine.controller.asked == ["ForceOff", "On"]
    rescue = machine.rescue()
    assert (rescue.outcome, rescue.verified) == ("healed", True)
    assert [step.name for step in rescue.steps.order_by("index")] == [
        *("cordon", "drain", "power_cycle", "ready", "verify", "uncordon")
    ]
    assert code_of(machine.step("power_cycle").because) == "reboot_confirmed"
    assert machine.kube.get_node(NODE).boot_id != old
    assert verbs() == ["power_off.begun", "power_off.done", "power_on.begun", "power_on.done"]
    wanted = Entry.objects.get(verb="power_off.begun").data["wanted"]
    assert (wanted["power"], wanted["boot_id"], wanted["driver"]) == ("off", old, "bmc")
    assert proofs.broken_claim(rescue) == ""


def test_a_machine_stays_off_for_the_time_of_its_driver(machine: Machine) -> None:
    Driver.objects.all().delete()
    machine.add_driver(off_seconds=20)
    machine.fault(62)
    for _ in range(10):
        machine.work()
        if code_of(machine.step("power_cycle").because) == "machine_off":
            break
        machine.pass_time(2)
    assert (code_of(machine.step("power_cycle").because), machine.controller.asked) == ("machine_off", ["ForceOff"])
    machine.heal()
    assert machine.controller.asked == ["ForceOff", "On"]


def test_a_proof_in_which_the_machine_is_switched_off_twice_is_refused(machine: Machine) -> None:
    machine.fault(62)
    machine.heal()
    statements = proof.unsigned(machine.rescue())
    links = statements["segment"]["links"]
    off, done = (
        next(place for place, entry in enumerate(links) if isinstance(entry, dict) and entry.get("verb") == verb)
        for verb in ("power_off.begun", "power_off.done")
    )
    links[done + 1 : done + 1] = copy.deepcopy([links[off], links[done]])
    forgeries.rewrite(statements)
    assert proofs.refusal(proofs.sign(statements)) == "power"


def test_a_dead_machine_returns(machine: Machine) -> None:
    machine.fault(62)
    machine.kube.set_ready(NODE, False)
    machine.heal()
    assert machine.controller.resets == ["ForceOff", "On"]


def test_without_a_machine_driver_the_rescue_is_held(settings: Any) -> None:
    made = Machine(driver=False)
    try:
        made.fault(62)
        assert code_of(made.until("held").because) == "machine_driver_missing"
    finally:
        made.controller.stop()
        made.uninstall()


def test_the_controller_of_another_machine_is_never_used(machine: Machine) -> None:
    machine.controller.uuid = "11111111-2222-3333-4444-555555555555"
    machine.fault(62)
    assert code_of(machine.until("held").because) == "machine_uuid_differs"
    assert machine.controller.asked == []


def test_a_controller_without_a_uuid_is_used_only_with_the_setting_of_an_admin(settings: Any) -> None:
    settings.KCOVER_OUTGOING_HOSTS = ("127.0.0.1",)
    made = Machine()
    try:
        made.controller.uuid = ""
        made.fault(62)
        assert code_of(made.until("held").because) == "machine_uuid_unknown"
        row = Driver.objects.get()
        machines.DRIVERS.change(row, {"settings": {"check_uuid": False}}, actor="user:ann", now=made.now)
        services.retry(made.rescue(), actor="user:ann", reason="", now=made.now)
        made.heal()
        assert made.controller.asked == ["ForceOff", "On"]
    finally:
        made.controller.stop()
        made.uninstall()


def test_a_machine_that_was_found_off_stays_off_until_a_person_retries(machine: Machine) -> None:
    machine.controller.power = "Off"
    machine.fault(62)
    assert code_of(machine.until("held").because) == "machine_found_off"
    assert machine.controller.asked == []
    services.retry(machine.rescue(), actor="user:ann", reason="", now=machine.now)
    machine.heal()
    assert machine.controller.asked == ["On"]
    assert proofs.broken_claim(machine.rescue()) == ""


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("status", [409, 429, 503])
def test_a_refusal_for_now_is_tried_again(machine: Machine, status: int, after: bool) -> None:
    machine.controller.statuses, machine.controller.after = [status], after
    machine.fault(62)
    machine.heal()
    assert machine.controller.resets == ["ForceOff", "On"]
    assert proofs.broken_claim(machine.rescue()) == ""


def test_a_refused_request_is_held_for_a_person(machine: Machine) -> None:
    machine.controller.statuses = [403]
    machine.fault(62)
    assert code_of(machine.until("held").because) == "machine_off_refused"
    assert machine.controller.resets == []


@pytest.mark.parametrize("how", ["500", "cut"])
def test_an_unclear_request_that_had_its_effect_goes_on(machine: Machine, how: str) -> None:
    machine.controller.after, machine.controller.cut = True, how == "cut"
    machine.controller.statuses = [] if how == "cut" else [500]
    machine.fault(62)
    machine.heal()
    assert machine.controller.asked == ["ForceOff", "On"]


@pytest.mark.parametrize("how", ["500", "cut"])
def test_inv_16_an_unclear_request_without_an_effect_is_held_for_a_person(machine: Machine, how: str) -> None:
    machine.controller.cut = how == "cut"
    machine.controller.statuses = [] if how == "cut" else [500]
    machine.fault(62)
    assert code_of(machine.until("held", seconds=10).because) == "machine_off_unclear"
    assert machine.controller.asked == ["ForceOff"]
    services.retry(machine.rescue(), actor="user:ann", reason="", now=machine.now)
    machine.heal()
    assert machine.controller.asked == ["ForceOff", "ForceOff", "On"]
    assert proofs.broken_claim(machine.rescue()) == ""


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("call", [1, 2])
def test_inv_13_a_worker_that_dies_at_a_request_never_makes_it_twice(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, call: int, after: bool
) -> None:
    real, seen = redfish.switch, []

    def dying(*args: Any) -> Any:
        seen.append(args)
        if len(seen) != call:
            return real(*args)
        if after:
            real(*args)
        raise worker_kills.Killed

    monkeypatch.setattr(redfish, "switch", dying)
    machine.fault(62)
    deaths = 0
    for _ in range(80):
        deaths += worker_kills.work(machine)
        rescue = machine.rescue() if machine.cluster.rescues.exists() else None
        if rescue is not None and rescue.state in ("succeeded", "held"):
            break
        machine.now += timedelta(seconds=5)
        machine.sync()
        while machine.boots:
            machine.boots -= 1
            machine.kube.reboot(NODE)
            machine.sync()
        machine.report()
    assert deaths == 1
    if call == 1 and not after:
        assert code_of(machine.rescue().because) == "machine_off_unclear"
        assert machine.controller.resets == []
    else:
        assert machine.rescue().state == "succeeded"
        assert machine.controller.resets == ["ForceOff", "On"]
    assert proofs.broken_claim(machine.rescue()) == ""


def test_a_machine_that_does_not_go_off_is_held_for_a_person(machine: Machine) -> None:
    machine.fault(62)
    while not machine.controller.asked:
        machine.until("waiting", step="power_cycle")
        machine.pass_time(2)
    machine.controller.power = "On"  # the controller accepted the request and did nothing
    machine.boots = 0
    assert code_of(machine.until("held", seconds=20).because) == "machine_still_on"
    assert machine.controller.asked == ["ForceOff"]


def test_a_machine_that_does_not_come_up_is_held_for_a_person(machine: Machine) -> None:
    machine.controller.switched = lambda power: None
    machine.fault(62)
    assert code_of(machine.until("held", seconds=60).because) == "power_cycle_timeout"
    assert machine.controller.asked == ["ForceOff", "On"]


def test_a_machine_that_stays_off_is_switched_on_again(machine: Machine) -> None:
    machine.fault(62)
    asked: list[str] = []

    def fails_once(power: str) -> None:
        if power == "On":
            asked.append(power)
            if len(asked) == 1:
                machine.controller.power = "Off"
            else:
                machine.boots += 1

    machine.controller.switched = fails_once
    for _ in range(40):
        machine.pass_time(5)
        machine.report()
        if machine.rescue().state == "succeeded":
            break
    assert machine.controller.asked == ["ForceOff", "On", "On"]


def test_an_unreachable_controller_is_retried_and_then_held_for_a_person(machine: Machine) -> None:
    machine.controller.broken = True
    machine.fault(62)
    machine.until("waiting", step="power_cycle")
    assert found_in(machine.step("power_cycle").because, "host_answered")
    machine.until("held", seconds=60)
    assert machine.controller.asked == []
    assert proofs.broken_claim(machine.rescue()) == ""


def test_a_controller_that_becomes_unreachable_in_between_is_waited_for(machine: Machine) -> None:
    machine.fault(62)
    machine.until("waiting", step="power_cycle")
    machine.controller.broken = True
    machine.pass_time(120)
    assert machine.rescue().state == "waiting"
    machine.controller.broken = False
    machine.heal()
    assert machine.controller.asked == ["ForceOff", "On"]


@pytest.mark.parametrize("limit", ["maintenance", "exclusion", "pause"])
def test_inv_37_exclusion_and_maintenance_are_checked_before_the_request(machine: Machine, limit: str) -> None:
    machine.controller.broken = True
    machine.fault(62)
    machine.until("waiting", step="power_cycle")
    if limit == "maintenance":
        window = {"starts_at": machine.now, "ends_at": machine.now + timedelta(hours=1)}
        cluster_settings.open_maintenance(machine.cluster, **window, reason="x", actor="user:ann", now=machine.now)
    elif limit == "exclusion":
        labels = {guards.EXCLUDE_LABEL: "true"}
        machine.kube.objects.merge("Node", "", NODE, {"metadata": {"labels": labels}})
    else:
        machine.cluster.__class__.objects.update(mode="paused")
    machine.controller.broken = False
    for _ in range(5):
        machine.pass_time(10)
    assert machine.controller.asked == []
    assert machine.step("power_cycle").state == "waiting"
    assert "off_asked_at" not in machine.step("power_cycle").progress


def test_inv_21_a_machine_whose_drain_did_not_finish_is_not_switched_off(machine: Machine) -> None:
    machine.kube.add_pod("default", "train-0", node=NODE, labels={"app": "train"})
    machine.kube.add_budget("default", "keep", match={"app": "train"})
    machine.fault(62)
    machine.until("waiting", step="drain")
    machine.rescue().steps.filter(name="drain").update(index=99)
    assert code_of(machine.until("held").because) == "not_drained_no_power_cycle"
    assert machine.controller.asked == []


def test_a_driver_that_changed_in_between_is_held_for_a_person(machine: Machine) -> None:
    machine.fault(62)
    machine.until("waiting", step="power_cycle")
    machines.DRIVERS.delete(Driver.objects.get(), actor="user:ann", now=machine.now)
    assert code_of(machine.until("held").because) == "machine_driver_missing"


def test_a_machine_is_power_cycled_by_ipmi_once(settings: Any) -> None:
    settings.KCOVER_OUTGOING_HOSTS = ("127.0.0.1",)
    made = Machine(driver=False)
    with bmc_server.running("plain", made.kube.get_node(NODE).system_uuid) as bmc:
        given = {"off_seconds": 0, "table": {NODE: bmc.url}}
        account = {"username": bmc_server.USERNAME, "password": bmc_server.PASSWORD}
        machines.DRIVERS.make(
            Driver(name="bmc", kind="ipmi", cluster=made.cluster),
            {**account, "settings": given},
            actor="user:ann",
            now=made.now,
        )
        try:
            made.fault(62)
            for _ in range(10):
                made.until("waiting", step="power_cycle")
                if "on_at" in made.step("power_cycle").progress:
                    break
                made.pass_time(2)
            made.boots = 1
            made.heal()
            assert bmc.stop() == ["off", "on"]
            assert proofs.broken_claim(made.rescue()) == ""
        finally:
            made.controller.stop()
            made.uninstall()


# --- another system that is asked


SECRET = "shared-between-two"


@pytest.fixture
def receiver() -> Iterator[OtherSystem]:
    made = OtherSystem(SECRET)
    yield made
    made.stop()


@pytest.fixture
def cloud(receiver: OtherSystem) -> Iterator[Machine]:
    made = Machine(driver=False)
    given = {"url": receiver.url, "password": SECRET, "settings": {}}
    machines.DRIVERS.make(
        Driver(name="cloud", kind="webhook", cluster=made.cluster), given, actor="user:ann", now=made.now
    )
    yield made
    made.controller.stop()
    made.uninstall()


def test_a_cloud_gets_one_signed_request(cloud: Machine, receiver: OtherSystem) -> None:
    node = cloud.kube.get_node(NODE)
    receiver.meanwhile = lambda: cloud.__setattr__("boots", 1)
    cloud.fault(62)
    cloud.heal()
    [asked] = receiver.asked
    assert (asked["action"], asked["cluster"], asked["node"]) == ("power.cycle", "c1", NODE)
    assert (asked["boot_id"], asked["system_uuid"], asked["uid"]) == (node.boot_id, node.system_uuid, node.uid)
    assert receiver.headers[0]["X-Kcover-Delivery"] == asked["delivery"]
    assert verbs() == ["power_cycle.begun", "power_cycle.done"]
    assert proofs.broken_claim(cloud.rescue()) == ""


@pytest.mark.parametrize("how", ["500", "cut"])
def test_inv_16_an_unclear_request_to_a_cloud_is_never_repeated(
    cloud: Machine, receiver: OtherSystem, how: str
) -> None:
    receiver.statuses, receiver.cut = [500], how == "cut"
    cloud.fault(62)
    assert code_of(cloud.until("held", seconds=60).because) == "machine_cycle_timeout"
    assert receiver.calls == 1
    assert proofs.broken_claim(cloud.rescue()) == ""


def test_an_unavailable_cloud_is_called_again_with_the_same_delivery_id(cloud: Machine, receiver: OtherSystem) -> None:
    receiver.statuses = [503, 202]
    cloud.fault(62)
    cloud.until("waiting", step="power_cycle")
    for _ in range(20):
        if receiver.calls == 2:
            break
        cloud.pass_time(5)
    assert len({asked["delivery"] for asked in receiver.asked}) == 1
    cloud.kube.reboot(NODE)
    cloud.heal()
    assert receiver.calls == 2
    assert proofs.broken_claim(cloud.rescue()) == ""


def test_a_cloud_that_refuses_is_held_for_a_person(cloud: Machine, receiver: OtherSystem) -> None:
    receiver.statuses = [403]
    cloud.fault(62)
    assert code_of(cloud.until("held").because) == "machine_cycle_refused"


@pytest.mark.parametrize("after", [False, True])
def test_inv_13_a_worker_that_dies_at_a_request_to_a_cloud_never_repeats_it(
    cloud: Machine, receiver: OtherSystem, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    real = webhook.ask

    def dying(*args: Any, **more: Any) -> Any:
        if after:
            real(*args, **more)
        raise worker_kills.Killed

    monkeypatch.setattr(webhook, "ask", dying)
    cloud.fault(62)
    while not worker_kills.work(cloud):
        cloud.now += timedelta(seconds=1)
    monkeypatch.setattr(webhook, "ask", real)
    assert code_of(cloud.until("held", seconds=60).because) == "machine_cycle_timeout"
    assert receiver.calls == int(after)


# --- after a reboot


def test_a_reboot_that_is_proved_needs_no_power_cycle(ladder: Machine) -> None:
    ladder.fault(62)
    ladder.until_reboot_is_asked()
    ladder.kube.reboot(NODE)
    ladder.heal()
    assert ladder.controller.asked == []
    assert ladder.step("power_cycle").state == "done"


def test_a_reboot_that_is_not_proved_is_followed_by_a_power_cycle(ladder: Machine) -> None:
    ladder.fault(62)
    job = str(ladder.until_reboot_is_asked()).rpartition("/")[2]
    ladder.kube.finish_job("kcover-jobs", job, succeeded=False)
    ladder.pass_time(365)
    assert found_in(ladder.step("reboot").because, "power_cycle_next")
    ladder.heal()
    assert ladder.controller.asked == ["ForceOff", "On"]
    assert proofs.broken_claim(ladder.rescue()) == ""


def test_a_wrong_machine_ends_the_ladder_with_a_person(settings: Any) -> None:
    settings.KCOVER_OUTGOING_HOSTS = ("127.0.0.1",)
    made = Machine(policy=POLICY.replace(CYCLE, f"{CYCLE}\n        {OFFLINE}"))
    try:
        made.controller.uuid = "11111111-2222-3333-4444-555555555555"
        made.fault(62)
        assert code_of(made.until("held").because) == "machine_uuid_differs"
        assert (made.step("power_cycle").state, made.step("offline").state) == ("failed", "pending")
    finally:
        made.controller.stop()
        made.uninstall()
