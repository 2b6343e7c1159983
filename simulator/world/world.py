"""The world: one cluster's machines and everything that changes its objects, over one store and one agenda."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from simulator.kubeapi import history, store
from simulator.world import kubelet, machine, nodes, pods, workloads
from simulator.world.agenda import Agenda
from simulator.world.controllers import Controllers, PodIndex
from simulator.world.gangs import Gangs
from simulator.world.jobs import Jobs
from simulator.world.lifecycle import NodeLifecycle
from simulator.world.pace import Timings
from simulator.world.pvcs import PvcBinder
from simulator.world.replacements import MachineOwners
from simulator.world.scheduler import Scheduler


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The size of a cluster. ``node_bytes`` pads Node objects to about that many bytes of JSON; 0 leaves them small.

    With ``workloads`` False only DaemonSets create pods.
    """

    nodes: int = 200
    gpus: int = 8
    cpu_nodes: int | None = None
    node_bytes: int = 0
    workloads: bool = True


@dataclass(slots=True)
class World:
    """A running cluster, made by ``build``. The caller must play ``agenda``."""

    objects: store.Store
    agenda: Agenda
    pace: Timings
    machines: dict[str, machine.Machine] = field(default_factory=dict)
    kubelets: dict[str, kubelet.Kubelet] = field(default_factory=dict)
    specs: dict[str, nodes.NodeSpec] = field(default_factory=dict)
    owners: MachineOwners | None = None

    def gpu_machines(self) -> Mapping[str, machine.Machine]:
        """The machines with GPUs, by node name."""
        return {name: host for name, host in self.machines.items() if host.gpus}

    def crash_on(self, node: str, gpu: int | None, *, message: str) -> int:
        """Crash the programs of a node that use a GPU (None: any GPU). Returns the number of pods hit."""
        position = hit = 0
        for pod in self.objects.list("Pod", fields=f"spec.nodeName={node}"):
            wanted = pods.gpus(pod)
            if not wanted or pods.phase(pod) != "Running":
                continue
            # GPUs are assigned in the order of the pods: the API does not show which one a pod got.
            if gpu is None or position <= gpu < position + wanted:
                self.kubelets[node].crash(pod, message=message)
                hit += 1
            position += wanted
        return hit


_PLAYED_AHEAD_SECONDS = 60.0  # when a world starts: afterwards every pod is placed and running


class _Changes:
    """Passes every change of the store to the components that it concerns."""

    def __init__(self, world: World) -> None:
        objects, agenda = world.objects, world.agenda
        owned = PodIndex(objects)
        self._kubelets = world.kubelets
        self._owned = owned
        self._controllers = Controllers(objects, agenda, owned)
        self._jobs = Jobs(objects, agenda, owned)
        self._gangs = Gangs(objects, agenda, owned)
        self._claims = PvcBinder(objects, agenda)
        self._scheduler = Scheduler(objects, agenda)
        self.lifecycle = NodeLifecycle(objects, agenda, world.pace)
        self.owners: MachineOwners | None = None
        objects.subscribe(self._changed)

    def _changed(self, change: history.ObjectChange) -> None:
        kind = change.resource.kind
        if kind == "Pod":
            self._owned.pod_changed(change)
            self._scheduler.pod_changed(change)
            if host := self._kubelets.get(pods.node_of(change.object)):
                host.pod_changed(change)
        elif kind == "Node":
            self._scheduler.node_changed(change)
            self.lifecycle.node_changed(change)
        elif kind == "PersistentVolumeClaim":
            self._claims.changed(change)
        elif kind in _ABOUT_MACHINES and self.owners is not None:
            self.owners.changed(change)
        if kind in _OWNING:
            self._controllers.changed(change)
            self._jobs.changed(change)
            self._gangs.changed(change)


_ABOUT_MACHINES = frozenset({"Machine", "NodeClaim", "RebootNode", "GPUReset"})
_OWNING = frozenset({"Pod", "Node", "Deployment", "ReplicaSet", "DaemonSet", "PyTorchJob", "Job", "JobSet", "Command"})


def build(objects: store.Store, agenda: Agenda, *, size: Size, pace: Timings, rng: random.Random) -> World:
    """A cluster in full operation: every pod that fits runs before this returns.

    Boot IDs, uids and pod names are random; ``size`` and ``rng`` determine everything else.
    """
    world = World(objects, agenda, pace)
    changes = _Changes(world)
    images = nodes.images(node_bytes=size.node_bytes)
    at = store.timestamp(objects.now())
    for number, spec in enumerate(nodes.plan(nodes=size.nodes, gpus=size.gpus, cpu_nodes=size.cpu_nodes)):
        host = machine.Machine(
            name=spec.name,
            inventory=machine.inventory(
                gpus=spec.gpus, model=spec.model, seed=spec.name, serial=nodes.serial_number(number)
            ),
            agenda=agenda,
            boot_seconds=pace.boot * rng.uniform(0.9, 1.2),  # machines that boot in lockstep would be an artefact
            repair_seconds=pace.repair,
        )
        world.specs[spec.name], world.machines[spec.name] = spec, host
        changes.lifecycle.watch(host)
        objects.create("Node", nodes.render(spec, number=number, boot_id=host.boot_id, at=at, images=images))
        world.kubelets[spec.name] = kubelet.Kubelet(objects, agenda, pace, host=host, spec=spec, number=number)
        world.kubelets[spec.name].ensure_mirror()
    for kind, obj in workloads.plan(list(world.specs.values())):
        wanted = size.workloads or kind in ("Namespace", "DaemonSet")
        if wanted and objects.find(kind, obj["metadata"].get("namespace", ""), obj["metadata"]["name"]) is None:
            objects.create(kind, obj)
    world.owners = changes.owners = MachineOwners(objects, agenda, machines=world.machines, specs=world.specs)
    agenda.play(ahead=_PLAYED_AHEAD_SECONDS)
    return world
