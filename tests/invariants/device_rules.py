"""The rules that isolate single GPUs, as an observer sees them, and what people do to them (invariant 54)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kcover.nodes import marks
from kcover_portal.incidents.models import Incident
from kcover_portal.kube import port, values
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue.models import Rescue, Step
from tests.invariants import gpu_names
from tests.invariants.gpu_names import PCI
from tests.kube_fake.objects import Objects

Manifest = dict[str, Any]
Must = Callable[[object, int, str], None]
SLICES, RULES = port.RESOURCE_SLICES[0], port.DEVICE_TAINT_RULES[0]
KEY = f"{RULES.kind}.{RULES.group}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """Where the portal's rule isolates what."""

    node: str
    pci: str


def device(pci: str, name: str = "", *, uuid: str = "") -> Manifest:
    """A GPU as its driver publishes it; its name says where it is."""
    given = {"uuid": uuid, "pcieBusID": f"{pci}.0"}
    return {"name": name or f"gpu-{pci[5:7]}", "attributes": {key: {"string": value} for key, value in given.items()}}


class DeviceRules:
    """Follows every rule of the cluster, independently of the portal's marks and rows."""

    def __init__(self, objects: Objects, must: Must) -> None:
        self._objects, self._must = objects, must
        self.made: dict[str, Made] = {}

    def all(self) -> list[Manifest]:
        """All rules there are."""
        return list(self._objects.list(KEY))

    def creating(self, name: str, spec: Mapping[str, Any], rescue: Rescue, entry: Entry, node: Manifest | None) -> None:
        """Checks the entry that precedes the creation of a rule."""
        wanted = entry.data.get("wanted", {})
        self._must(
            (entry.verb, wanted.get("rule")) == ("taint_device.begun", name), 54, f"{entry.verb} creates rule {name}"
        )
        self._must(rescue.state == "running", 12, f"rule {name} is created for {rescue}, which is {rescue.state}")
        if node is None:
            return
        self._must(name in named_by(node), 54, f"the mark of {entry.node} does not name {name}, which is created")
        self._must(rescue.node_uid == node["metadata"]["uid"], 43, f"a GPU of another machine named {entry.node}")
        selector = spec["deviceSelector"]
        self._must(selector["pool"] == entry.node, 54, f"a rule for {entry.node} selects {selector}")
        [pci] = [pci for pci in PCI if device(pci)["name"] == selector["device"]]
        faults = Incident.objects.filter(node__name=entry.node, kind="xid").values_list("device", flat=True)
        self._must(pci in map(gpu_names.owner_of, faults), 54, f"{selector} is isolated, and had no fault")
        self.made[name] = Made(node=entry.node, pci=pci)

    def deleting(self, name: str, uid: str, rescue: Rescue, entry: Entry, node: Manifest | None) -> None:
        """Checks the entry and the rule before its deletion."""
        self._must(entry.data["wanted"]["uid"] == uid, 54, f"{name} is deleted with another uid than was recorded")
        found = self._objects.find(KEY, "", name)
        if found is None or found["metadata"]["uid"] != uid or node is None:
            return
        self._must(is_own(found, node), 54, f"{rescue} deletes {name}, which is not the portal's for {entry.node}")
        made = self.made[name]
        if rescue.origin == Rescue.Origin.MANUAL or made.pci == cause_of(rescue):
            return
        own = Step.objects.filter(rescue=rescue, name="quarantine_device", progress__rule=name)
        self._must(own.exists(), 54, f"{rescue} deletes the rule of another rescue for {made}")

    def compare(self, before: Manifest, after: Manifest, rescue: Rescue, entry: Entry) -> None:
        """No own rule is left that the node's mark does not name any more, and no fault of an isolated GPU closed."""
        left, name = named_by(after), after["metadata"]["name"]
        for rule in named_by(before) - left:
            found = self._objects.find(KEY, "", rule)
            lost = found is not None and is_own(found, after)
            self._must(not lost, 54, f"{entry.verb} lost {rule} from the mark of {name}, and it is there")
        if entry.verb != "uncordon.begun" or rescue.origin == Rescue.Origin.MANUAL:
            return
        for made in (self.made[rule] for rule in left if rule in self.made):
            closed = Incident.objects.filter(node__name=name, closed_because__code="incident_verified", state="closed")
            own = [one for one in closed if gpu_names.owner_of(one.device) == made.pci]
            by = [one for one in own if one.closed_because["params"]["rescue"] == str(rescue.pk)]
            mine = [(one.pk, one.kind, one.device, one.gpu_uuid) for one in by]
            self._must(not mine, 54, f"{rescue} closed {mine} of {made}, which stays isolated")

    def check_end(self, nodes: Mapping[str, Manifest]) -> None:
        """Each rule of the portal is named by the mark of its node."""
        for rule in self.all():
            owners = {one["uid"] for one in rule["metadata"].get("ownerReferences", [])}
            node = next((node for node in nodes.values() if node["metadata"]["uid"] in owners), None)
            if node is not None and is_own(rule, node):
                name = rule["metadata"]["name"]
                self._must(name in named_by(node), 54, f"{name} is left of {self.made.get(name)}")

    def hands_delete(self, name: str) -> None:
        """Somebody deletes a rule."""
        self._objects.remove(KEY, "", name)


def named_by(node: Manifest) -> set[str]:
    """The rules that the node's mark names."""
    found = marks.read(marks.parse(node["metadata"].get("annotations", {}).get(marks.ANNOTATION, "")))
    return {rule for rule, _ in found.devices} if found is not None else set()


def is_own(rule: Manifest, node: Manifest) -> bool:
    """Returns whether the portal made the rule for this machine."""
    metadata = rule["metadata"]
    owners = {one["uid"] for one in metadata.get("ownerReferences", [])}
    managed = metadata.get("labels", {}).get("app.kubernetes.io/managed-by") == values.COMPONENT
    return managed and node["metadata"]["uid"] in owners


def cause_of(rescue: Rescue) -> str:
    """The GPU, by its PCI address, whose fault opened the rescue; "" if none did."""
    fault = rescue.decision.incident if rescue.decision is not None else None
    owner = gpu_names.owner_of(fault.device) if fault is not None else ""
    return owner if owner in PCI else ""
