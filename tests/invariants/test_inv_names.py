"""Invariants 4, 6 and 42: one fault under several names and with several weights."""

import random
import uuid

import pytest

from kcover import wire
from kcover.faults.device import NONE, Device
from kcover.faults.weight import Weight
from kcover_portal.incidents import services as incidents
from kcover_portal.incidents.models import Incident
from kcover_portal.policies import services as policies
from kcover_portal.rescue.models import Rescue
from tests.invariants import gpu_names
from tests.portal.rescue.world import NODE, PCI, World

pytestmark = pytest.mark.django_db
HEALTH = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: health}
spec:
  rules:
    - priority: 10
      match: {kinds: [health], applicationFaults: false}
      actions: [{name: drain}, {name: reboot, attribute: {unCordon: "true"}}]
"""
CHECK = {"kind": "health", "check": "GpuWatch"}


@pytest.fixture
def described(world: World) -> World:
    """A world whose agent has described the GPUs."""
    report = wire.Report(
        node=NODE,
        boot_id=world.kube.get_node(NODE).boot_id,
        batch_id=str(uuid.uuid4()),
        sent_at=world.now,
        inventory=gpu_names.inventory(1),
    )
    incidents.ingest([incidents.IncomingReport.of(world.cluster, report, received_at=world.now)], now=world.now)
    return world


def tell(world: World, seen: Device, weight: Weight = Weight.NODE, *, witness: str = "nvsentinel") -> None:
    fault = incidents.SourceFault(
        kind="health",
        code="GpuWatch/lost",
        pci=seen.slot or None,
        gpu_uuid=seen.uuid or None,
        unit=seen.unit,
        part=seen.part,
        severity="info" if weight in (Weight.MONITOR, Weight.INFO) else "fatal",
        weight=weight,
        source="cloudevents",
        witness=witness,
        seen_at=world.now,
    )
    incidents.ingest_observed(witness, [(world.node(), fault)], [], now=world.now)


def by(name: str, pci: str = PCI) -> Device:
    return gpu_names.device(pci, 1, name, random.Random(1))


def test_inv_06_a_gpu_is_one_incident_under_each_of_its_names(described: World) -> None:
    for name in ("number", "uuid", "slot", "all"):
        tell(described, by(name))
        tell(described, by(name, gpu_names.PCI[1]))
        tell(described, by("switch"))
    found = dict(Incident.objects.filter(state="open").values_list("device", "count"))
    assert found == {gpu_names.PCI[0]: 4, gpu_names.PCI[1]: 4, "nvswitch 0": 4}


@pytest.mark.parametrize("name", ["number", "uuid", "slot", "all"])
def test_inv_04_an_all_clear_by_any_name_ends_the_fault_of_its_gpu_only(described: World, name: str) -> None:
    for pci in gpu_names.PCI:
        tell(described, by("slot", pci))
    over = incidents.PassedCheck(node=NODE, **CHECK, device=by(name), at=described.now)
    incidents.ingest_observed("nvsentinel", [], [(described.node(), over)], now=described.now)
    assert Incident.objects.get(state="open").device == gpu_names.PCI[1]


def test_inv_04_an_all_clear_does_not_end_a_fault_that_another_source_reported(described: World) -> None:
    for witness in ("nvsentinel", "another"):
        tell(described, by("slot"), witness=witness)
    over = incidents.PassedCheck(node=NODE, **CHECK, device=NONE, at=described.now)
    incidents.ingest_observed("nvsentinel", [], [(described.node(), over)], now=described.now)
    assert Incident.objects.get().state == "open"


@pytest.mark.parametrize("weight", list(Weight))
def test_inv_42_only_a_fault_of_the_node_starts_a_rescue(described: World, weight: Weight) -> None:
    """A rule for the whole kind; those of other weights do not count together either."""
    policies.apply(HEALTH, author="test", reason="", now=described.now)
    for name in ("slot", "number", "none"):
        tell(described, by(name), weight)
        described.work()
    assert Rescue.objects.exists() == (weight is Weight.NODE)
