"""One device is isolated by the portal's own rule, else the whole node. The step says which. Both are undone."""

from collections.abc import Iterator
from typing import Any

import pytest

from kcover.nodes import marks
from kcover_portal.fleet.models import Gpu
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.kube import port
from kcover_portal.ledger.models import Entry
from kcover_portal.ledger.queries import rescue_replay
from kcover_portal.notify.services import entry_events
from kcover_portal.reports import rescues as reports
from kcover_portal.rescue import services
from kcover_portal.rescue.models import Decision, Rescue
from kcover_portal.rescue.queries import needs_person
from tests import proofs
from tests.codes import code_of, codes_of
from tests.portal.rescue import worker_kills
from tests.portal.rescue.world import NODE, PCI, World

pytestmark = pytest.mark.django_db
POLICY = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: device}
spec:
  rules:
    - priority: 10
      errorCode: ["62"]
      actions: [{name: quarantineDevice}]
    - priority: 10
      errorCode: ["63"]
      actions: [{name: quarantineDevice, attribute: {effect: NoExecute, otherwise: hold}}]
    - priority: 10
      errorCode: ["64"]
      actions: [{name: cordon}, {name: drain}, {name: reboot, attribute: {unCordon: "true"}}]
"""
UUID = "GPU-5c2f"
SLICES, RULES = port.RESOURCE_SLICES[1], port.DEVICE_TAINT_RULES[2]


def device(name: str = "gpu-3", *, pci: str = f"{PCI}.0", **more: str) -> dict[str, Any]:
    given = {"uuid": UUID, "pcieBusID": pci, "resource.kubernetes.io/pcieRoot": "pci0000:4d", **more}
    return {"name": name, "attributes": {key: {"string": value} for key, value in given.items()}}


class Dra(World):
    """A cluster as Kubernetes 1.33 has it: slices of v1beta2, and taint rules of v1alpha3."""

    def __init__(self) -> None:
        super().__init__(policy=POLICY)
        self.kube.served |= {SLICES, RULES}
        Gpu.objects.create(node=self.node(), index=3, uuid=UUID, pci=PCI, seen_at=self.now)
        self.publish(device("gpu-2", uuid="GPU-other", pci="0000:3d:00.0"), device())

    def publish(self, *devices: dict[str, Any], generation: int = 1) -> None:
        pool = {"name": NODE, "generation": generation, "resourceSliceCount": 1}
        spec = {"driver": "gpu.nvidia.com", "nodeName": NODE, "pool": pool, "devices": list(devices)}
        self.kube.put_custom_object(SLICES, f"{NODE}-{generation}", spec)

    def rules(self) -> dict[str, port.CustomObject]:
        return {one.name: one for one in self.kube.custom_objects(RULES)}

    def set_mode(self, mode: str) -> None:
        type(self.cluster).objects.update(mode=mode)

    def heal(self, code: int = 62) -> None:
        self.fault(code)
        self.work()

    def release(self) -> port.Node:
        self.sync()
        services.request(self.node(), "release", actor="user:anna", reason="", now=self.now)
        self.work()
        return self.kube.get_node(NODE)


def open_codes() -> list[str]:
    return [fault.code for fault in Incident.objects.filter(state="open").order_by("pk")]


@pytest.fixture
def dra() -> Iterator[Dra]:
    made = Dra()
    yield made
    made.uninstall()


def test_inv_54_one_device_is_isolated_and_the_node_keeps_working(dra: Dra) -> None:
    before = dra.kube.get_node(NODE)
    dra.heal()
    (rule,) = dra.rules().values()
    assert rule.spec == {
        "deviceSelector": {"driver": "gpu.nvidia.com", "pool": NODE, "device": "gpu-3"},
        "taint": {"key": "kcover.io/unhealthy", "value": "62", "effect": "NoSchedule"},
    }
    node, rescue = dra.kube.get_node(NODE), dra.rescue()
    assert (node.unschedulable, node.taints, node.labels) == (False, before.taints, before.labels)
    assert (rescue.outcome, code_of(rescue.because)) == ("isolated", "done_part_isolated")
    step = dra.step("quarantine_device")
    assert (code_of(step.because), step.progress["isolated"], step.progress["device"]) == (
        "device_tainted",
        "device",
        "gpu-3",
    )
    wanted = Entry.objects.get(verb="taint_device.begun").data["wanted"]
    assert (wanted["rule"], wanted["device"], wanted["taint"]) == (
        rule.name,
        "gpu-3",
        "kcover.io/unhealthy=62:NoSchedule",
    )
    noted = marks.read(rescue.marks)
    assert noted is not None
    assert noted.devices == ((rule.name, "gpu-3"),)
    assert proofs.broken_claim(rescue) == ""
    assert not reports.changing(rescue.steps.all()).exists()  # the node itself stayed in service

    back = dra.release()
    assert (dra.rules(), back.annotations, back.labels) == ({}, before.annotations, before.labels)
    assert "change_device" in codes_of(dra.rescue().steps.get().because)
    assert proofs.broken_claim(dra.rescue()) == ""


@pytest.mark.parametrize(
    ("devices", "code"),
    [
        ((), "device_unpublished"),
        ((device(uuid="GPU-a", pci="0000:3d:00.0"),), "device_missing"),
        ((device(), device("gpu-3-mig-1", uuid="MIG-1", parentUUID=UUID)), "device_split"),
        ((device("gpu-3-mig-1", uuid="MIG-1", parentUUID=UUID),), "device_split"),
        ((device(uuid="GPU-another"),), "device_differs"),
    ],
)
def test_inv_54_without_a_certain_device_the_whole_node_is_isolated(dra: Dra, devices: Any, code: str) -> None:
    dra.kube.remove_custom_object(SLICES, f"{NODE}-1")
    dra.publish(*devices)
    dra.heal()
    node, step = dra.kube.get_node(NODE), dra.step("quarantine_device")
    assert (node.unschedulable, node.labels["kcover.io/state"], dra.rules()) == (True, "quarantined", {})
    assert step.progress["isolated"] == "node"
    assert reports.changing(dra.rescue().steps.all()).exists()
    assert {*codes_of(step.because)} >= {"device_node_cordoned", code}
    assert code_of(dra.rescue().because) == "done_isolated"
    assert not dra.release().unschedulable


def test_without_the_api_or_the_right_the_whole_node_is_isolated(dra: Dra) -> None:
    dra.kube.fail("create_object", port.RefusedByServer("403"))
    dra.heal()
    assert dra.kube.get_node(NODE).unschedulable
    assert {*codes_of(dra.step("quarantine_device").because)} >= {"device_node_cordoned", "device_rules_refused"}
    assert "devices" not in dra.rescue().marks["changed"]
    dra.release()
    dra.kube.served.clear()
    dra.pass_time(3600)
    dra.heal()
    assert dra.kube.get_node(NODE).unschedulable
    assert {*codes_of(dra.step("quarantine_device").because)} >= {"device_node_cordoned", "device_rules_missing"}


def test_a_rule_may_leave_it_to_a_person_and_eviction_needs_an_approval(dra: Dra) -> None:
    dra.kube.served.clear()
    dra.heal(63)
    assert (
        dra.rescue().state,
        {*codes_of(dra.rescue().because)} >= {"device_not_isolated", "device_rules_missing"},
    ) == (
        "held",
        True,
    )
    assert {call.verb for call in dra.kube.writes} == {"emit"}
    dra.kube.served |= {SLICES, RULES}
    dra.set_mode("approve")
    services.retry(dra.rescue(), actor="user:ann", reason="", now=dra.now)
    dra.work()
    assert (dra.rescue().state, dra.rescue().hold, dra.rules()) == ("held", "approval", {})


def test_inv_37_eviction_from_a_device_passes_the_guards_and_respects_an_exclusion(dra: Dra) -> None:
    real = dra.kube.apply_node

    def excluded_meanwhile(*args: Any, **more: Any) -> Any:
        answer = real(*args, **more)
        dra.kube.label_node(NODE, {"kcover.io/exclude": "true"})
        return answer

    dra.kube.apply_node = excluded_meanwhile  # type: ignore[method-assign]
    dra.heal(63)
    assert (dra.rules(), code_of(dra.rescue().because)) == ({}, "excluded")
    dra.kube.apply_node = real  # type: ignore[method-assign]
    dra.kube.label_node(NODE, {"kcover.io/exclude": None})
    dra.sync()
    dra.pass_time(30)
    (rule,) = dra.rules().values()
    assert rule.spec["taint"]["effect"] == "NoExecute"
    acts = [entry.data.get("act") for entry in Entry.objects.filter(verb="guard.passed")]
    assert "quarantine_device" in acts
    assert proofs.broken_claim(dra.rescue()) == ""


def test_inv_54_someone_elses_rule_stays(dra: Dra) -> None:
    dra.heal()
    (rule,) = dra.rules().values()
    dra.release()
    dra.kube.put_custom_object(RULES, rule.name, rule.spec)  # without the portal's label
    dra.pass_time(3600)
    dra.heal()
    assert code_of(dra.step("quarantine_device").because) == "device_tainted_already"
    dra.release()
    assert list(dra.rules()) == [rule.name]


def test_inv_54_a_deleted_device_taint_rule_is_held_for_a_person(dra: Dra) -> None:
    dra.heal()
    dra.sync()
    services.reconcile(now=dra.now)
    assert not dra.rescue().needs_human
    (rule,) = dra.rules()
    dra.kube.remove_custom_object(RULES, rule)
    dra.set_mode("paused")
    services.reconcile(now=dra.now)
    assert not dra.rescue().needs_human
    dra.set_mode("enforce")
    for _ in range(2):  # the second round says nothing new
        services.reconcile(now=dra.now)
        dra.work()
    rescue = dra.rescue()
    assert (rescue.needs_human, code_of(rescue.because), rescue.state) == (True, "device_rule_gone", "succeeded")
    assert list(needs_person.left_to_people()) == [rescue]
    entry = Entry.objects.get(verb="marks.device_rule_gone")
    assert entry.data["because"]["params"] == {"node": NODE, "rules": rule, "devices": "gpu-3"}
    (event,) = entry_events.of_entries([entry], now=dra.now)
    assert event.event.kind == "rescue.human"
    assert rescue_replay.replay("c1", rescue=rescue.pk).needs_human
    assert proofs.broken_claim(rescue) == ""
    assert dra.rules() == {}  # nothing puts it back
    dra.release()
    assert not needs_person.left_to_people().exists()


def test_a_rule_that_was_never_made_is_not_missed(dra: Dra) -> None:
    worker_kills.kill_at(dra.kube, "create_object", call=1, after=False)
    dra.fault(62)
    assert worker_kills.work(dra)
    dra.sync()
    services.cancel(dra.rescue(), actor="user:ann", reason="", now=dra.now)
    assert marks.read(dra.node().marks) is not None
    services.reconcile(now=dra.now)
    services.reconcile(now=dra.now)
    assert not dra.rescue().needs_human


def test_the_rule_goes_with_the_machine(dra: Dra) -> None:
    dra.heal()
    dra.kube.delete_node(NODE)
    assert dra.rules() == {}


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("verb", ["apply_node", "create_object"])
def test_inv_54_a_worker_that_dies_creates_one_device_taint_rule(dra: Dra, verb: str, after: bool) -> None:
    worker_kills.kill_at(dra.kube, verb, call=1, after=after)
    dra.fault(62)
    assert worker_kills.work(dra)
    dra.pass_time(120)
    dra.work()
    assert (len(dra.rules()), code_of(dra.step("quarantine_device").because)) == (1, "device_tainted")
    assert len(dra.kube.objects.list("DeviceTaintRule.resource.k8s.io")) == 1
    dra.release()
    assert (dra.rules(), dra.kube.get_node(NODE).annotations) == ({}, {})


@pytest.mark.parametrize("after", [False, True])
def test_inv_54_a_release_finds_a_rule_that_no_row_knows(dra: Dra, after: bool) -> None:
    """The person's release finds the rule by the mark of the live node, although no row knows of it."""
    worker_kills.kill_at(dra.kube, "create_object", call=1, after=after)
    dra.fault(62)
    assert worker_kills.work(dra)
    services.cancel(dra.rescue(), actor="user:ann", reason="", now=dra.now)
    services.request(dra.node(), "release", actor="user:anna", reason="", now=dra.now)
    dra.node().rescues.update(marks={})
    type(dra.node()).objects.update(marks={})
    dra.work()
    assert (dra.rules(), dra.kube.get_node(NODE).annotations) == ({}, {})


def test_shadow_mode_writes_nothing(dra: Dra) -> None:
    dra.set_mode("shadow")
    dra.heal()
    assert (dra.kube.writes, dra.rules()) == ([], {})


def test_inv_54_a_mark_that_names_another_nodes_rule_deletes_no_rule(dra: Dra) -> None:
    """The kubelet of gpu-2 may write the annotation of gpu-2."""
    dra.kube.add_node("gpu-2", gpus=8)
    dra.heal()
    (rule,) = dra.rules()
    forged = marks.Marks(rescue=dra.rescue().pk, devices=((rule, "gpu-3"),))
    dra.kube.apply_node("gpu-2", lambda _: port.NodeChange(annotations={marks.ANNOTATION: forged.render()}))
    dra.sync()
    services.request(dra.node("gpu-2"), "release", actor="user:anna", reason="", now=dra.now)
    dra.work()
    assert (list(dra.rules()), dra.kube.get_node("gpu-2").annotations) == ([rule], {})
    told = codes_of(dra.rescue("gpu-2").steps.get().because)
    assert ("device_rules_foreign" in told, "change_device" in told) == (True, False)
    dra.release()
    assert dra.rules() == {}


@pytest.mark.parametrize("pci", ["0000:5d:00", PCI])
def test_inv_54_a_rescue_of_another_gpu_keeps_the_rule(dra: Dra, pci: str) -> None:
    """The mark and the rows then name the rescue that isolated the device, as before the other rescue."""
    dra.heal()
    (rule,), first = dra.rules(), dra.rescue()
    before = dra.kube.get_node(NODE)
    dra.pass_time(3600)
    dra.fault(64, pci=pci)
    dra.until_reboot_is_asked()
    assert len(dra.rules()) == 1
    dra.reboot()
    second = dra.until("succeeded")
    node = dra.kube.get_node(NODE)
    assert (second.outcome, node.unschedulable, node.labels) == ("healed", False, before.labels)
    first.refresh_from_db()
    if pci == PCI:
        assert (dra.rules(), node.annotations, first.marks, open_codes()) == ({}, {}, {}, [])
    else:
        assert (list(dra.rules()), node.annotations, second.marks) == ([rule], before.annotations, {})
        noted = marks.read(first.marks)
        assert noted is not None
        assert (noted.rescue, noted.devices) == (first.pk, ((rule, "gpu-3"),))
        assert "change_device" not in codes_of(dra.step("uncordon").because)
        assert open_codes() == ["62"]  # nothing has proved the isolated GPU healthy
        back = dra.release()
        assert (dra.rules(), back.annotations, open_codes()) == ({}, {}, [])
    assert proofs.broken_claim(second) == ""


@pytest.mark.parametrize("is_described", [True, False])
@pytest.mark.parametrize(
    ("named", "stays"),
    [
        ({"pci": PCI}, (True, True)),
        ({"gpu_uuid": UUID}, (True, True)),
        ({"pci": PCI, "part": "link 1"}, (True, True)),
        ({"unit": "gpu 3"}, (True, True)),
        ({"pci": "0000:5d:00"}, (False, False)),
        ({"gpu_uuid": "GPU-other"}, (False, True)),  # without an inventory it may be the isolated one
        ({"unit": "nvswitch 3"}, (False, False)),
        ({}, (False, False)),
    ],
)
def test_inv_54_faults_of_the_isolated_gpu_stay_open(
    dra: Dra, named: dict[str, str], stays: tuple[bool, bool], is_described: bool
) -> None:
    """However it names the GPU, and whether or not an agent has described the GPUs."""
    if not is_described:
        Gpu.objects.all().delete()
    dra.heal()
    told = {"kind": "gpud", "code": "gpu", "source": "gpud", "severity": "fatal"}
    seen = incidents.SourceFault(**told, **named, witness="gpud", seen_at=dra.now)
    incidents.ingest_observed("gpud", [(dra.node(), seen)], [], now=dra.now)
    dra.pass_time(3600)
    dra.fault(64, pci="0000:6d:00")
    dra.until_reboot_is_asked()
    dra.reboot()
    assert dra.until("succeeded").outcome == "healed"
    assert open_codes() == (["62", "gpu"] if stays[not is_described] else ["62"])


def test_inv_54_an_uncordon_by_hand_keeps_the_rule_of_another_gpu(dra: Dra) -> None:
    dra.heal()
    (rule,) = dra.rules()
    dra.pass_time(3600)
    dra.fault(64, pci="0000:5d:00")
    dra.until_reboot_is_asked()
    dra.kube.uncordon(NODE)
    second = dra.until("cancelled")
    assert (second.marks, dra.kube.get_node(NODE).unschedulable, list(dra.rules())) == ({}, False, [rule])
    assert open_codes() == ["62"]  # nobody has vouched for the isolated GPU


def test_inv_54_skipping_the_verification_closes_only_the_faults_of_other_devices(dra: Dra) -> None:
    dra.heal()
    dra.pass_time(3600)
    dra.fault(64, pci="0000:5d:00")
    dra.until_reboot_is_asked()
    dra.kube.reboot(NODE)
    dra.until("held", seconds=30)  # its agent stays silent
    services.skip(dra.rescue(), actor="user:ann", reason="seen to", now=dra.now)
    assert open_codes() == ["62"]


@pytest.mark.parametrize(("pci", "isolated"), [(PCI, "device"), ("0000:3d:00", "node")])
def test_inv_54_the_same_fault_of_another_gpu_is_not_done_already(dra: Dra, pci: str, isolated: str) -> None:
    dra.heal()
    dra.pass_time(3600)
    dra.fault(62, pci=pci)
    dra.work()
    assert Rescue.objects.count() == (1 if isolated == "device" else 2)
    assert dra.kube.get_node(NODE).unschedulable == (isolated == "node")
    codes = {reason.code for reason in Decision.objects.latest("pk").reasons}
    assert ("done_already" in codes) == (isolated == "device")


@pytest.mark.parametrize("created", [True, False])
def test_inv_54_an_unclear_request_that_is_then_refused_loses_no_rule(dra: Dra, created: bool) -> None:
    dra.kube.fail("create_object", port.Unavailable("timeout", ambiguous=True), after=created)
    dra.heal()
    dra.kube.fail("create_object", port.RefusedByServer("403"))
    dra.pass_time(120)
    expected = ("device_tainted", False) if created else ("device_node_cordoned", True)
    assert (
        codes_of(dra.step("quarantine_device").because)[0],
        dra.kube.get_node(NODE).unschedulable,
    ) == expected
    noted = marks.read(dra.rescue().marks)
    assert noted is not None
    assert [name for _, name in noted.devices] == ["gpu-3"]
    if not created:  # the first request arrives after all
        (asked, *_) = dra.kube.called("create_object")
        dra.kube.create_object(RULES, asked.name, {}, owner=dra.kube.get_node(NODE))
    assert len(dra.rules()) == 1
    back = dra.release()
    assert (dra.rules(), back.annotations, back.unschedulable) == ({}, {}, False)
