"""The cluster of the bed: four nodes with their kubelets and agents, and the watch that reports their changes."""

import contextlib
import hashlib
import itertools
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from kcover import wire
from kcover.evidence import bundle
from kcover.faults.fault import Command, CommandResult, Fault, Inventory
from kcover_portal.evidence import services as evidence
from kcover_portal.incidents import services as incidents
from kcover_portal.kube import port
from kcover_portal.machines import services as machines
from kcover_portal.machines.models import Driver
from tests.invariants import device_rules, gpu_names
from tests.invariants.observed_cluster import ObservedCluster
from tests.portal.rescue.world import World

NODES = 4


@dataclass(frozen=True, slots=True)
class Happened:
    """A fault of a node, with the boot and the machine in which it happened."""

    at: datetime
    node: str
    boot: str
    code: int
    pci: str
    machine: int


class WalkCluster(World):
    """A cluster and its machines; nothing here acts by itself."""

    kube: ObservedCluster
    _listed: Sequence[str] | None = None  # the versions of the nodes that the watch has told of

    def __init__(self, *, policy: str) -> None:
        super().__init__(policy=policy, nodes=0, fake=ObservedCluster)
        self.cluster.ready_within = 360  # longer than a command to an agent stands, and short enough to be waited for
        self.cluster.save()
        machines.DRIVERS.make(
            Driver(name="owner", kind="karpenter", cluster=self.cluster), {}, actor="user:ann", now=self.now
        )
        self.kube.served |= {device_rules.SLICES, device_rules.RULES}
        self.born = 0  # machines
        self.machines: dict[str, int] = {}
        self.inventories: dict[str, tuple[int, datetime]] = {}  # the machine that the agent described, and when
        self.names = [f"gpu-{number}" for number in range(1, NODES + 1)]
        for name in self.names:
            self.make_node(name)
        self.sync()
        self.cluster.watched_at = self.now  # what joins from now on is new
        self.cluster.save()
        self.happened: list[Happened] = []
        self._batches = itertools.count(1)
        self.sent: list[wire.Report] = []  # reports with items, to be sent again
        self.results: dict[str, list[CommandResult]] = {}
        self.done: set[str] = set()  # commands that agents executed
        self.collects_evidence = True
        self.collected = 0
        self.boots: dict[str, list[str]] = {name: [self.boot(name)] for name in self.names}
        self.pods = 0

    # The cluster

    def make_node(self, name: str, *, machine: str = "", taints: Sequence[port.Taint] = ()) -> None:
        """A node with what never moves: a DaemonSet's pod, a mirror pod, one that has ended."""
        known = {"labels": {"team": "a"}, "annotations": {"team/note": "ours"}}
        self.born += 1
        self.machines[name] = self.born
        provider = f"walk:///{name}/{self.born}"
        self.kube.add_node(name, gpus=8, system_uuid=machine, taints=taints, provider_id=provider, **known)
        self.claim(f"{name}-{self.born}", name, provider)
        self.kube.accounts.pop(name, None)
        self.publish(name, *self.gpus(name))
        for kind, more in (
            ("ds", {"owner_kind": "DaemonSet"}),
            ("mirror", {"mirror": True}),
            ("end", {"phase": "Succeeded"}),
        ):
            if self.kube.objects.find("Pod", "kube-system", f"{kind}-{name}") is None:
                self.kube.add_pod("kube-system", f"{kind}-{name}", node=name, **more)

    def gpus(self, name: str) -> list[dict[str, Any]]:
        """The GPUs of the node as a DRA driver publishes them."""
        machine = self.machines[name]
        return [device_rules.device(pci, uuid=gpu_names.uuid_of(pci, machine)) for pci in gpu_names.PCI]

    def publish(self, name: str, *devices: dict[str, Any]) -> None:
        """The DRA driver of the node publishes these devices."""
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "gpu.nvidia.com", "nodeName": name, "pool": pool, "devices": list(devices)}
        self.kube.put_custom_object(device_rules.SLICES, name, spec)

    def claim(self, name: str, node: str, provider: str) -> None:
        """An object that stands for a node's machine, unless there is one with this name."""
        if all(one.name != name for one in self.kube.list_claims()):
            status = {"providerID": provider, "nodeName": node}
            self.kube.put_custom_object(port.NODE_CLAIM, name, {}, status=status, finalizer=True)

    def there(self, name: str) -> bool:
        """Returns whether the cluster has the node now."""
        return self.kube.objects.find("Node", "", name) is not None

    def live(self, name: str) -> dict[str, Any]:
        """The node as the cluster has it."""
        return self.kube.objects.get("Node", "", name)

    def boot(self, name: str) -> str:
        """The boot id."""
        return str(self.live(name)["status"]["nodeInfo"]["bootID"])

    def restart(self, name: str) -> None:
        """The machine boots, whoever asked."""
        self.kube.reboot(name, boot_id=str(uuid.UUID(int=len(self.boots[name]) * 1000 + self.names.index(name))))
        self.boots[name].append(self.boot(name))
        self.kube.booted.setdefault(name, []).append(self.now)

    def add_pod(self, name: str) -> None:
        """The scheduler puts a pod on a node that takes work."""
        if self.there(name) and not self.live(name)["spec"].get("unschedulable"):
            self.pods += 1
            self.kube.add_pod("default", f"train-{self.pods}", node=name, labels={"app": "train"})

    def kubelets(self) -> None:
        """Pods that were told to go are gone; reboot jobs run: each compares boot ids first, as its script does."""
        self.kube.finish_deletions()
        self.karpenter()
        for job in self.kube.objects.list("Job"):
            if job.get("status"):
                continue
            pod, name = job["spec"]["template"]["spec"], job["metadata"]["name"]
            node = pod["nodeName"]
            [env] = [one["value"] for one in pod["containers"][0]["env"] if one["name"] == "KCOVER_BOOT_ID"]
            if self.there(node) and self.boot(node) == env:
                self.restart(node)
            self.kube.finish_job(job["metadata"]["namespace"], name)

    def karpenter(self) -> None:
        """Machines whose objects were deleted are terminated; another one comes under the name."""
        for one in self.kube.list_claims():
            if not one.deleting:
                continue
            self.kube.remove_custom_object(port.NODE_CLAIM, one.name)
            if self.there(one.node) and self.live(one.node)["spec"].get("providerID") == one.provider_id:
                self.kube.delete_node(one.node)
                self.make_node(one.node, machine=str(uuid.UUID(int=self.born + 1)))

    # The agents

    def agent(self, name: str, *faults: Fault, boot_id: str = "", skew: float = 0) -> None:
        """The node's agent reports, and does what it is asked to."""
        if not self.there(name):
            return
        boot = self.boot(name)
        if boot_id in ("", boot):
            found = ((int(one.code), one.pci or "") for one in faults if not one.drill)
            machine = self.machines[name]
            self.happened += [Happened(self.now, name, boot, code, pci, machine) for code, pci in found]
        self._exchange([self._report(name, *faults, boot_id=boot_id, skew=skew)])

    def agents(self) -> None:
        """Every agent reports, all in the same moment."""
        self._exchange([self._report(name) for name in self.names if self.there(name)])

    def _report(self, name: str, *faults: Fault, boot_id: str = "", skew: float = 0) -> wire.Report:
        report = wire.Report(
            node=name,
            boot_id=boot_id or self.boot(name),
            batch_id=str(uuid.UUID(int=next(self._batches))),
            agent="1.0.0",
            sent_at=self.now + timedelta(seconds=skew),
            inventory=self._inventory(name),
            faults=faults,
            command_results=tuple(self.results.pop(name, ())),
        )
        if faults:
            self.sent.append(report)
        return report

    def _inventory(self, name: str) -> Inventory | None:
        """Each agent describes its machine once; that of the last node sees no GPU."""
        machine = self.machines[name]
        if name == self.names[-1] or self.inventories.get(name, (0, self.now))[0] == machine:
            return None
        self.inventories[name] = (machine, self.now)
        return gpu_names.inventory(machine)

    def _exchange(self, reports: Sequence[wire.Report]) -> None:
        """Agents report and do what they are asked to: each command once, none of another boot."""
        for report, answer in zip(reports, self.deliver(*reports), strict=True):
            for command in answer.commands:
                if command.id not in self.done:
                    self.done.add(command.id)
                    self._obey(report.node, command)

    def _obey(self, name: str, command: Command) -> None:
        if command.kind == "run_check":
            self._check(name, command)
            return
        mine = command.args["boot_id"] == self.boot(name)
        if mine and command.kind == bundle.COMMAND:
            self._upload(name, command)
        elif mine:
            self.restart(name)
        result = CommandResult(id=command.id, status="done" if mine else "refused", finished_at=self.now)
        self.results.setdefault(name, []).append(result)

    def _check(self, name: str, command: Command) -> None:
        """Most nodes pass, one in six fails, and one in six has nothing to check."""
        status = {0: "fail", 1: "skipped"}.get(len(self.done) % 6, "pass")
        found = [{"name": check, "status": status} for check in command.args["checks"]]
        result = CommandResult(id=command.id, status="done", finished_at=self.now, output={"checks": found})
        self.results.setdefault(name, []).append(result)

    def _upload(self, name: str, command: Command) -> None:
        """The agent uploads its evidence, or every third time cannot."""
        self.collected += 1
        if self.collected % 3 == 0:
            return
        content = f"{name} {self.collected}".encode()
        upload = bundle.Upload(
            bundle=uuid.UUID(command.args["bundle"]),
            offset=0,
            size=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
        )
        with contextlib.suppress(evidence.UnknownBundle):
            evidence.take(self.cluster, name, upload, content, now=self.now)

    def deliver(self, *reports: wire.Report) -> list[wire.Answer]:
        """The agents' door."""
        for report in reports:
            self.kube.heard.setdefault((report.node, report.boot_id), []).append(self.now)
        incoming = [incidents.IncomingReport.of(self.cluster, report, received_at=self.now) for report in reports]
        return incidents.ingest(incoming, now=self.now)

    # The watch

    def sync(self) -> None:
        """What the watch does: a list that says nothing new would change nothing."""
        listed = [node["metadata"]["resourceVersion"] for node in self.kube.objects.list("Node")]
        if listed != self._listed:
            super().sync()
            self._listed = listed
