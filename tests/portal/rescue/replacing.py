"""A world whose nodes have objects that stand for their machines."""

from typing import Any

from kcover_portal.kube import port
from kcover_portal.machines import services as machines
from kcover_portal.machines.models import Driver
from kcover_portal.policies import services as policies
from tests.portal.rescue.world import NODE, World

PROVIDER = "aws:///us-east-1a/i-0123"
POLICY = """
apiVersion: kcover.io/v1
kind: RescuePolicy
metadata: {name: swap}
spec:
  rules:
    - priority: 10
      errorCode: ["62"]
      actions: [{name: drain}, {name: replace}]
"""
KINDS = {"karpenter": port.NODE_CLAIM, "clusterapi": port.MACHINE}


class Fleet(World):
    """The objects have finalizers, so they stay until ``terminate``."""

    def __init__(self, *, kind: str = "karpenter", policy: str = POLICY, **given: Any) -> None:
        super().__init__(policy="", nodes=0)
        self.kind = KINDS[kind]
        self.kube.add_namespace("capi")
        self.kube.add_node(NODE, gpus=8, provider_id=PROVIDER)
        self.sync()
        policies.apply(policy, author="test", reason="", now=self.now)
        machines.DRIVERS.make(
            Driver(name="owner", kind=kind, cluster=self.cluster), {"settings": given}, actor="user:ann", now=self.now
        )
        self.put()

    def put(self, name: str = "claim-1", **more: Any) -> None:
        """The object of the node's machine, with a finalizer. ``more``: what differs."""
        uuid = self.kube.get_node(NODE).system_uuid if self.has_node() else ""
        provider, node = more.pop("provider", PROVIDER), more.pop("node", NODE)
        claims = self.kind is port.NODE_CLAIM
        status = (
            {"providerID": provider, "nodeName": node}
            if claims
            else {"nodeRef": {"name": node}, "nodeInfo": {"systemUUID": more.pop("uuid", uuid)}}
        )
        self.kube.put_custom_object(
            self.kind,
            name,
            {} if claims else {"providerID": provider},
            namespace="" if claims else "capi",
            status=status,
            owner=more.pop("owner", "" if claims else "MachineSet"),
            finalizer=True,
        )

    def has_node(self) -> bool:
        return self.kube.objects.find("Node", "", NODE) is not None

    def objects(self) -> dict[str, bool]:
        """The objects by name, with whether each is being deleted."""
        return {one.name: one.deleting for one in self.kube.custom_objects(self.kind)}

    def terminate(self) -> None:
        """What the owner's controllers do with a deleted object."""
        for one in self.kube.custom_objects(self.kind):
            if one.deleting:
                self.kube.delete_node(NODE)
                self.kube.remove_custom_object(self.kind, one.name, namespace=one.namespace)

    def until_asked(self) -> None:
        self.fault(62)
        for _ in range(10):
            self.work()
            self.pass_time()
