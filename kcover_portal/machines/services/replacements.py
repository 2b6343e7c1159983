"""The object that stands for a node's machine, and whose deletion makes its owner provide another machine.

Cluster API: a Machine. Karpenter: a NodeClaim. An object is the node's only if it names the node and has its
``providerID``; a Machine must also have its system UUID. So the machine of another node is never deleted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from kcover import reasons
from kcover.machines import machine_drivers
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.kube import port
from kcover_portal.machines import queries
from kcover_portal.machines.models import Driver
from kcover_portal.machines.services.controllers import Unusable


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacer:
    """The way to replace machines: a driver, the kind of its objects, and the cluster ``of`` which they are."""

    driver: Driver
    kind: port.CustomKind
    of: Cluster

    @property
    def cluster(self) -> port.Cluster:
        """The client of that cluster. Raises port.KubeError."""
        return fleet.connect(self.of)

    @property
    def within(self) -> timedelta:
        """How long the old node may take to leave the cluster."""
        return timedelta(minutes=self.driver.setting("within"))

    def object_of(self, node: port.Node) -> port.CustomObject:
        """The only object that stands for this machine. Raises Unusable unless its identity is proved."""
        if not node.provider_id:
            raise _unusable("machine_provider_id_missing", node=node.name)
        found = [one for one in self.cluster.custom_objects(self.kind) if one.provider_id == node.provider_id]
        if len(found) != 1:
            raise _unusable("machine_objects_found", kind=self.kind.kind, count=len(found), provider=node.provider_id)
        one = found[0]
        named = {"kind": self.kind.kind, "object": one.name}
        if one.node != node.name:
            raise _unusable("machine_object_of_another", node=node.name, other=one.node or "-", **named)
        self._check_uuid(one, node)
        if not one.owned and self.driver.kind == Driver.Kind.CLUSTERAPI:
            raise _unusable("machine_object_without_owner", **named)
        return one

    def object_named(self, namespace: str, name: str, *, uid: str) -> port.CustomObject | None:
        """The object with this uid; None once it is gone."""
        listed: Sequence[port.CustomObject] = self.cluster.custom_objects(self.kind)
        return next((one for one in listed if (one.namespace, one.name, one.uid) == (namespace, name, uid)), None)

    def is_going(self, found: port.CustomObject) -> bool:
        """True if the object is being deleted or has gone, and no other one has taken its name."""
        listed = self.cluster.custom_objects(self.kind)
        named = [one for one in listed if (one.namespace, one.name) == (found.namespace, found.name)]
        return all(one.uid == found.uid and one.deleting for one in named)

    def delete(self, found: port.CustomObject) -> None:
        """Requests the deletion of this object, and of no other with its name."""
        self.cluster.delete_object(self.kind, found.namespace, found.name, uid=found.uid)

    def _check_uuid(self, found: port.CustomObject, node: port.Node) -> None:
        """Karpenter's objects have no system UUID: there the providerID is the only identity."""
        if self.driver.kind == Driver.Kind.KARPENTER and not found.system_uuid:
            return
        same = machine_drivers.same_machine(found.system_uuid, node.system_uuid)
        if same is None and not self.driver.setting("check_uuid"):
            return
        if not same:
            uuids = {"uuid": found.system_uuid or "-", "expected": node.system_uuid or "-"}
            raise _unusable("machine_object_uuid", kind=self.kind.kind, object=found.name, node=node.name, **uuids)


def replacer_of(row: Node) -> Replacer:
    """The way to replace a node's machine. Raises Unusable if there is none, and the port's errors."""
    driver = queries.driver_of(row, machine_drivers.REPLACING)
    if driver is None:
        raise _unusable("machine_replacer_missing", node=row.name, cluster=row.cluster.name)
    if driver.kind == Driver.Kind.KARPENTER:
        return Replacer(driver=driver, kind=port.NODE_CLAIM, of=row.cluster)
    kind = replace(port.MACHINE, version=driver.setting("version"))
    return Replacer(driver=driver, kind=kind, of=_management(driver, row.cluster))


def _management(driver: Driver, own: Cluster) -> Cluster:
    """The cluster that has the Machines. Raises Unusable if it does not exist any more."""
    name = driver.setting("cluster")
    if not name:
        return own
    found = Cluster.objects.filter(name=name).first()
    if found is None:
        raise _unusable("driver_cluster_unknown", cluster=name)
    return found


def _unusable(code: str, **params: reasons.Value) -> Unusable:
    return Unusable(reasons.of(code, **params), lasting=True)
