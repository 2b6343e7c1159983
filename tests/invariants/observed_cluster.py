"""A cluster that observes the portal: every write is checked against the forbidden writes.

It records the changes of people and of the portal to a node separately, so that the portal's marks are verified. People
write through ``hands_*``; every other write is the portal's.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec

from kcover.decisions import guards
from kcover.nodes import marks, probation_mark, readiness_taint
from kcover_portal.checks.models import ValidatedNode
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents.models import Incident
from kcover_portal.kube import port
from kcover_portal.kube.wire import custom_objects as wire
from kcover_portal.ledger.models import Entry
from kcover_portal.repairs.models import Repair
from kcover_portal.rescue.models import Probation, Rescue, Step
from tests.deploy.admission import AdmissionPolicy
from tests.invariants import device_rules
from tests.kube_fake import Call, FakeCluster

WRITES = ("apply_node", "evict", "delete_pod", "ensure_job", "delete_job", "emit", "label_workload", "delete_object")
WRITES += ("create_object",)
NODE_CHANGES = AdmissionPolicy.of_file("node-change-policy.yaml")
DESTRUCTIVE = ("evict", "delete_pod", "ensure_job", "delete_object")
OURS = (marks.STATE_LABEL, probation_mark.LABEL)  # labels that the portal may write
ANNOTATIONS = (marks.ANNOTATION, probation_mark.ANNOTATION)
STOPPED = ("paused", "shadow")
EXCLUSIONS = ("exclude", "end_exclusion")

Manifest = dict[str, Any]


class Violation(AssertionError):
    """An invariant does not hold; the message begins with its number."""


def must(holds: object, number: int, message: str) -> None:
    """Raises Violation unless it holds."""
    if not holds:
        raise Violation(f"invariant {number:02}: {message}")


@dataclass(slots=True)
class Account:
    """What is known of a node beside its manifest. ``theirs``: its cordon is somebody else's; None: nobody can tell."""

    theirs: bool | None = False
    taints: set[tuple[str, str, str]] = field(default_factory=set)  # that the portal added
    state: str | None = None  # the state label before the portal's mark came


class ObservedCluster(FakeCluster):
    """A fake cluster that refuses to be mistreated. ``moment`` is told of each call before and after its effect."""

    def __init__(self, *, clock: Callable[[], datetime]) -> None:
        super().__init__(clock=clock)
        self.moment: Callable[[str, str], None] = lambda _when, _verb: None
        self.hands_off: set[str] = set()  # nodes that were excluded before the worker began
        self.accounts: dict[str, Account] = {}
        self.heard: dict[tuple[str, str], list[datetime]] = {}  # when the agent of a node told of a boot
        self.booted: dict[str, list[datetime]] = {}
        self.asked_uid = ""
        self.asked_spec: Mapping[str, Any] = {}
        self.rules = device_rules.DeviceRules(self.objects, must)
        self._flying: set[str] = set()
        self._begun: set[int] = set()

    # What people do

    def hands_cordon(self, name: str) -> None:
        """Somebody cordons; under the portal's mark nobody can say afterwards whose cordon it is."""
        node = self.objects.get("Node", "", name)
        if not node["spec"].get("unschedulable"):
            self.account(name).theirs = None if _mark(node) else True
        self.cordon(name)

    def hands_uncordon(self, name: str) -> None:
        """Somebody uncordons."""
        self.account(name).theirs = False
        self.uncordon(name)

    def hands_taint(self, name: str, taint: port.Taint, *, there: bool) -> None:
        """Somebody adds a taint, or takes it away."""
        plain = {"key": taint.key, "value": taint.value, "effect": taint.effect}

        def edit(manifest: Manifest) -> None:
            others = [one for one in manifest["spec"].get("taints", []) if one != plain]
            manifest["spec"]["taints"] = [*others, plain] if there else others

        self.objects.edit("Node", "", name, edit)

    def delete_claim(self, one: port.CustomObject) -> None:
        """Somebody deletes the object of a machine."""
        gone = {"metadata": {"deletionTimestamp": "2026-11-21T08:00:00Z"}}
        self.objects.merge(f"{one.kind.kind}.{one.kind.group}", "", one.name, gone)

    def heal_api(self) -> None:
        """The API server behaves again."""
        self._failures.clear()

    def account(self, name: str) -> Account:
        """The account of a node."""
        return self.accounts.setdefault(name, Account())

    # What the portal does

    def evict(
        self, pod_namespace: str, pod_name: str, *, uid: str, grace_seconds: int | None = None, dry_run: bool = False
    ) -> port.Eviction:
        self.asked_uid = uid
        return super().evict(pod_namespace, pod_name, uid=uid, grace_seconds=grace_seconds, dry_run=dry_run)

    def delete_pod(
        self, pod_namespace: str, pod_name: str, *, uid: str, grace_seconds: int | None = None
    ) -> port.Evicted | port.Gone:
        self.asked_uid = uid
        return super().delete_pod(pod_namespace, pod_name, uid=uid, grace_seconds=grace_seconds)

    def delete_object(self, kind: port.CustomKind, namespace: str, name: str, *, uid: str) -> None:
        self.asked_uid = uid
        super().delete_object(kind, namespace, name, uid=uid)

    def create_object(
        self, kind: port.CustomKind, name: str, spec: Mapping[str, Any], *, owner: port.Node | None = None
    ) -> port.CustomObject:
        self.asked_spec = spec
        return super().create_object(kind, name, spec, owner=owner)

    def list_claims(self) -> list[port.CustomObject]:
        """The objects that stand for machines, as everybody but the portal reads them."""
        found = self.objects.list(f"{port.NODE_CLAIM.kind}.{port.NODE_CLAIM.group}")
        read = msgspec.json.Decoder(wire.CustomResource).decode
        return [read(msgspec.json.encode(one)).value(port.NODE_CLAIM) for one in found]

    @contextlib.contextmanager
    def call(self, verb: str, kind: str, name: str, *, namespace: str = "") -> Iterator[Call]:
        entry = self._inspect(verb, name, namespace) if verb in WRITES else None
        node = entry.node if entry is not None else ""
        before: Manifest | None = None
        try:
            if node:
                must(node not in self._flying, 8, f"two acts in flight on {node}")
                self._flying.add(node)
            self.moment("before", verb)
            before = self.objects.find("Node", "", name) if verb == "apply_node" else None
            with super().call(verb, kind, name, namespace=namespace) as call:
                yield call
        finally:
            self._flying.discard(node)
            after = self.objects.find("Node", "", name) if before is not None else None
            if entry is not None and before is not None and after is not None and before is not after:
                self._compare(name, before, after, entry)  # what it was begun with: others began more meanwhile
        self.moment("after", verb)

    def _inspect(self, verb: str, name: str, namespace: str) -> Entry | None:
        """What must be so before a write; returns the entry that it was begun with, None for an Event."""
        mode, _ = fleet.mode_now(Cluster.objects.get(name="c1"))
        must(mode not in STOPPED, 48, f"{verb} {name} in mode {mode}")
        if verb == "emit":
            return None
        entries = Entry.objects.filter(cluster="c1").order_by("-sequence")
        # Calls that are made side by side were begun together.
        entry = (entries.filter(node=name, verb__endswith=".begun") if verb == "apply_node" else entries).first()
        begun = entry is not None and entry.verb.endswith(".begun") and entry.pk not in self._begun
        must(begun, 46, f"{verb} {name} without an entry that it has begun")
        assert entry is not None
        self._begun.add(entry.pk)
        rescue = Rescue.objects.get(pk=entry.rescue)
        if rescue.gate is not None:
            self._inspect_approval(f"{verb} {name}", rescue, entry)
        given_away = Rescue.objects.filter(node__name=entry.node, hold=Rescue.Hold.EXTERNAL, state="waiting")
        must(not given_away.exists(), 10, f"{verb} {name}, while another system has {entry.node}")
        if verb == "create_object":
            self.rules.creating(name, self.asked_spec, rescue, entry, self.objects.find("Node", "", entry.node))
        if entry.verb == "untaint_device.begun":
            self.rules.deleting(name, self.asked_uid, rescue, entry, self.objects.find("Node", "", entry.node))
        elif verb in DESTRUCTIVE or (verb == "create_object" and self.asked_spec["taint"]["effect"] == "NoExecute"):
            self._inspect_destructive(verb, name, namespace, rescue, entry)
        return entry

    def _inspect_approval(self, what: str, rescue: Rescue, entry: Entry) -> None:
        """The step that waited for a yes has it, and it had not run out when the step went on."""
        gated = rescue.steps.filter(index=rescue.gate, name=entry.data["name"], state="running").first()
        if gated is None:
            return
        went_on = self.objects.clock() if "gated" in gated.progress else gated.started_at
        holds = timedelta(seconds=rescue.approval_seconds)
        yes = rescue.approvals.filter(approved=True, plan_hash=rescue.plan_hash, step=rescue.gate)
        must(yes.filter(at__gt=went_on - holds).count() >= rescue.approvers, 43, f"{what}: the yes has run out")

    def _inspect_destructive(self, verb: str, name: str, namespace: str, rescue: Rescue, entry: Entry) -> None:
        must(entry.node not in self.hands_off, 37, f"{verb} on {entry.node}, which is excluded")
        must(rescue.state == "running", 12, f"{verb} {name} for {rescue}, which is {rescue.state}")
        if rescue.gate is not None:
            yes = rescue.approvals.filter(approved=True, plan_hash=rescue.plan_hash, step=rescue.gate)
            must(yes.count() >= rescue.approvers, 43, f"{verb} {name} without its approval")
            must(not yes.filter(by=rescue.requested_by).exists(), 44, "who asked approved")
        node = self.objects.find("Node", "", entry.node)
        if node is not None and verb == "ensure_job":
            must(_mark(node), 21, f"{entry.node} is to be rebooted and carries no mark")
            must(rescue.node_uid == node["metadata"]["uid"], 43, f"another machine named {name} is to be rebooted")
        if verb == "delete_object":
            self._inspect_replacement(name, rescue, entry, node)
            return
        pod = self.objects.find("Pod", namespace, name)
        if pod is None or verb in ("ensure_job", "create_object") or pod["metadata"]["uid"] != self.asked_uid:
            return  # a pod of another uid is refused by the API server (25)
        owners = [owner["kind"] for owner in pod["metadata"].get("ownerReferences", [])]
        must("DaemonSet" not in owners, 24, f"{verb} of a DaemonSet's pod {name}")
        must("kubernetes.io/config.mirror" not in pod["metadata"]["annotations"], 24, f"{verb} of mirror pod {name}")
        must(pod["spec"]["nodeName"] == entry.node, 25, f"{verb} of {name}, which is on another node")

    def _inspect_replacement(self, name: str, rescue: Rescue, entry: Entry, node: Manifest | None) -> None:
        """What must be so before the object of a machine is deleted (invariant 53)."""
        must(entry.verb == "replace.begun", 53, f"{entry.verb} deletes {name}")
        must(entry.data["wanted"]["uid"] == self.asked_uid, 53, f"{name} is deleted with another uid than was recorded")
        one = next((found for found in self.list_claims() if found.uid == self.asked_uid), None)
        if one is None or node is None:
            return  # nothing is deleted, or the machine has gone
        must(_mark(node), 21, f"{entry.node} is to be replaced and carries no mark")
        must(rescue.node_uid == node["metadata"]["uid"], 43, f"another machine named {entry.node} is to be replaced")
        must(one.node == entry.node, 53, f"{name} stands for {one.node} and not for {entry.node}")
        provider = node["spec"]["providerID"]
        must(one.provider_id == provider, 53, f"{name} stands for {one.provider_id} and not for {provider}")
        same = [found for found in self.list_claims() if found.provider_id == provider]
        must(len(same) == 1, 53, f"{len(same)} objects stand for {provider}")

    def _compare(self, name: str, before: Manifest, after: Manifest, entry: Entry) -> None:
        """What of a node the portal may change, and what it must give back (invariants 18, 19, 22)."""
        account = self.account(name)
        excludes = entry.data.get("name") in EXCLUSIONS
        rest, left = (_rest(one, without={guards.EXCLUDE_LABEL} if excludes else ()) for one in (before, after))
        must(rest == left, 19, f"{entry.verb} changed more of {name} than is the portal's")
        if excludes:
            must(excluded(after) == (entry.data["name"] == "exclude"), 37, f"{entry.verb} left {name} as it was")
            must(_rest_of_exclusion(before) == _rest_of_exclusion(after), 19, f"{entry.verb} changed more of {name}")
        denied = NODE_CHANGES.denials(before, after)
        must(not denied, 19, f"{entry.verb} of {name}, which an API server would refuse: {denied}")
        uid = Rescue.objects.filter(pk=entry.rescue).values_list("node_uid", flat=True).first()
        must(uid == before["metadata"]["uid"], 43, f"{entry.verb} wrote to another machine named {name}")
        self.rules.compare(before, after, Rescue.objects.get(pk=entry.rescue), entry)
        old, new = _taints(before), _taints(after)
        freed = _readiness(old - new)  # the portal's business, whoever added it
        if freed:
            self._inspect_first_work(name, entry)
        must(old - new - freed <= account.taints, 19, f"{entry.verb} took {old - new - account.taints} from {name}")
        account.taints = (account.taints | (new - old)) & new - _readiness(new)
        was, now = bool(before["spec"].get("unschedulable")), bool(after["spec"].get("unschedulable"))
        if not _mark(before) and _mark(after):
            account.state = before["metadata"]["labels"].get(marks.STATE_LABEL)
        if now and not was:
            must(entry.verb == "cordon.begun", 18, f"{entry.verb} cordoned {name}")
            must(_mark(after), 22, f"{name} was cordoned without a mark")
            account.theirs = False
        if was and not now:
            asked = Rescue.objects.filter(pk=entry.rescue, steps__args__foreign=True).exists()
            must(asked or not account.theirs, 18, f"{entry.verb} lifted somebody else's cordon of {name}")
            must(not _mark(after) or _names_devices_only(after), 22, f"{name} was uncordoned and its mark is left")
            if entry.verb == "uncordon.begun":
                self._inspect_proof(name, entry)
                planned = Probation.objects.filter(rescue=entry.rescue, began_at=None, ended_at=None)
                kept_away = _on_probation(after) and probation_mark.TAINT in new
                must(kept_away or not planned.exists(), 50, f"{name} takes ordinary work at its return")
            account.theirs = False
        if _mark(before) and (not _mark(after) or (was and not now)):
            state = after["metadata"]["labels"].get(marks.STATE_LABEL)
            before_it = None if account.state == probation_mark.STATE else account.state
            expected = probation_mark.STATE if _on_probation(after) else before_it
            must(state == expected, 19, f"{name} has state label {state} and not {expected}")
            left = account.taints - {probation_mark.TAINT}
            must(not left, 19, f"{name} lost the mark and keeps {left}")
        if entry.verb == "end_probation.begun":
            must((was, _mark(before)) == (now, _mark(after)), 50, f"the end of its probation changed more of {name}")
            must(old - new <= {probation_mark.TAINT}, 50, f"the end of its probation took {old - new} from {name}")

    def _inspect_first_work(self, name: str, entry: Entry) -> None:
        """What must have been so before a node loses its readiness taint (invariant 51)."""
        rescue = Rescue.objects.get(pk=entry.rescue)
        if rescue.requester_kind == Rescue.Requester.PERSON and entry.data["name"] in ("uncordon", "release"):
            return
        last = rescue.steps.filter(index=entry.data["step"], name="uncordon", args__first_work=True)
        must(last.exists(), 51, f"{entry.verb} of {rescue} freed {name}")
        proof = rescue.steps.get(name="validate")
        passed = ValidatedNode.objects.filter(
            validation__rescue=rescue, node__name=name, state="passed", machine=rescue.node_uid
        )
        must(proof.state == "skipped" or passed.exists(), 51, f"{name} was freed, and no validation of it has passed")

    def _inspect_proof(self, name: str, entry: Entry) -> None:
        """What must have been so before a rescue that verified its node puts it back into service (invariant 38)."""
        steps = {one.name: one for one in Step.objects.filter(rescue=entry.rescue).order_by("index")}  # the last round
        validated = steps.get("validate")
        if validated is not None and validated.state == "done":
            mine = ValidatedNode.objects.filter(validation__rescue=entry.rescue, node__name=name, state="passed")
            uid = Rescue.objects.get(pk=entry.rescue).node_uid
            passed = mine.filter(machine=uid, validation__requested_at__gte=validated.started_at)
            must(passed.exists(), 38, f"{name} works again, and no validation of it has passed")
        repaired = steps.get("repair")
        if repaired is not None and repaired.state == "done" and repaired.progress.get("repair"):
            closed = Repair.objects.filter(pk=repaired.progress["repair"], state="closed")
            must(closed.exists(), 52, f"{name} works again, and its repair is not closed")
        verified, ready, reboot = (steps.get(one) for one in ("verify", "ready", "reboot"))
        if verified is None or verified.state != "done" or ready is None or ready.state != "done":
            return  # a person asked for it, or vouches for what was skipped
        boot, since, until = ready.progress["boot_id"], ready.finished_at, verified.finished_at
        if reboot is not None and reboot.state == "done":
            must(boot != reboot.progress["boot_id"], 38, f"{name} works again in the boot that was to end")
        if verified.args.get("agent", True):
            reported = self.heard.get((name, boot), ())
            must(any(since < at <= until for at in reported), 38, f"{name} works again, unheard since it came back")
        again = [at for at in self.booted.get(name, ()) if since < at < until]
        must(not again, 38, f"{name} works again, and booted once more meanwhile")
        seen = Incident.objects.filter(
            node__name=name, state="open", is_user_fault=False, boot_id=boot, last_at__lt=until
        )
        must(not seen.exists(), 38, f"{name} works again with {list(seen)} of this boot")


def excluded(node: Manifest) -> bool:
    """Returns whether people excluded the node."""
    return bool(node["metadata"]["labels"].get(guards.EXCLUDE_LABEL) == "true")


def _mark(node: Manifest) -> str:
    return str(node["metadata"].get("annotations", {}).get(marks.ANNOTATION, ""))


def _names_devices_only(node: Manifest) -> bool:
    """Returns whether only single GPUs of the node are isolated, as its mark says."""
    found = marks.read(marks.parse(_mark(node)))
    return found is not None and found == marks.Marks(rescue=found.rescue, devices=found.devices)


def _on_probation(node: Manifest) -> bool:
    return bool(node["metadata"].get("annotations", {}).get(probation_mark.ANNOTATION))


def _taints(node: Manifest) -> set[tuple[str, str, str]]:
    return {(one["key"], one.get("value", ""), one["effect"]) for one in node["spec"].get("taints", [])}


def _readiness(taints: set[tuple[str, str, str]]) -> set[tuple[str, str, str]]:
    return {taint for taint in taints if taint[0] == readiness_taint.KEY}


def _rest_of_exclusion(node: Manifest) -> Manifest:
    """All of a node that an exclusion and its end leave alone."""
    return {"spec": node["spec"], "mark": _mark(node)}


def _rest(node: Manifest, *, without: Collection[str] = ()) -> Manifest:
    """All of a node that is none of the portal's business. ``without``: labels that the act may change."""
    ours = {*OURS, *without}
    metadata, spec = node["metadata"], node["spec"]
    return {
        **node,
        "metadata": {
            **{key: value for key, value in metadata.items() if key != "resourceVersion"},
            "labels": {key: value for key, value in metadata["labels"].items() if key not in ours},
            "annotations": {k: v for k, v in metadata.get("annotations", {}).items() if k not in ANNOTATIONS},
        },
        "spec": {key: value for key, value in spec.items() if key not in ("unschedulable", "taints")},
    }
