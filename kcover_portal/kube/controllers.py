"""The controllers above a pod, by the uids of their owner references: a pod's labels may name anybody's job.

The pods of a JobSet belong to batch Jobs, and the workers of a LeaderWorkerSet to StatefulSets of its leader pods.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from kcover_portal.kube import port

MAX_STEPS: Final = 8  # from a pod to its topmost controller; a LeaderWorkerSet takes four
MAX_READS: Final = 24  # of controllers, one by one, for the pods of one job
_LISTED_FROM: Final = 3  # unknown controllers of a kind are listed by the job's label
# An owner reference may hold any text, and the API server answers 400 to some. No object has a name other than this.
NAME: Final = re.compile(r"[a-z0-9][-.a-z0-9]{0,252}")


@dataclass(frozen=True, slots=True)
class _Owner:
    """The controller in an object's owner references; ``uid`` "": it has none."""

    namespace: str
    kind: str
    api: str
    name: str
    uid: str

    @property
    def known(self) -> str:
        """The portal's kind of it; "" for other objects."""
        return next((known.kind for known in port.WORKLOADS.values() if known.owns(self.kind, self.api)), "")

    @property
    def is_readable(self) -> bool:
        """Returns whether it may be a part of a job: a job, or the leader pod of others."""
        is_pod = (self.kind, self.api) == ("Pod", "v1")
        return bool(self.uid and (self.known or is_pod) and NAME.fullmatch(self.name))


@dataclass(slots=True)
class Controllers:
    """The objects above the pods of a job, as far as they were told or read. ``cluster`` None: nothing is read.

    ``label`` and ``value``: what its pods and their controllers carry; ``label`` "": nothing.
    """

    cluster: port.Cluster | None
    label: str = ""
    value: str = ""
    _above: dict[str, _Owner] = field(default_factory=dict)
    _read_already: dict[_Owner, port.RefusedByServer | None] = field(default_factory=dict)

    def learn(self, *, pods: Iterable[port.Pod] = (), workloads: Iterable[port.Workload] = ()) -> None:
        """Takes objects that were read, each with its own controller."""
        self._above.update({pod.uid: _owner(pod) for pod in pods})
        self._above.update({workload.uid: _owner(workload) for workload in workloads})

    def is_below(self, pod: port.Pod, uid: str) -> bool:
        """Returns whether the object of this uid is a controller above the pod. Raises port.KubeError."""
        return bool(uid) and self._climb(_owner(pod), uid) == uid

    def below(self, pods: Sequence[port.Pod], uid: str) -> list[port.Pod]:
        """Those of the pods that the object of this uid controls; all are of one namespace and carry the label.

        Controllers that many pods have are read first, so that strangers' pods keep no others out. Raises
        port.KubeError. A refused controller is an error only if no pod remains.
        """
        self.learn(pods=pods)
        owners = Counter(owner for pod in pods if (owner := _owner(pod)).uid != uid and owner.is_readable)
        refused = self._list(owners, many=_LISTED_FROM if len(owners) <= MAX_READS else 1)
        for owner, _ in owners.most_common(MAX_READS):
            try:
                self._climb(owner, uid)
            except port.RefusedByServer as error:
                refused = refused or error
        told = Controllers(None, _above=self._above)
        found = [pod for pod in pods if told.is_below(pod, uid)]
        if refused is not None and not found:
            raise refused
        return found

    def _list(self, owners: Iterable[_Owner], *, many: int) -> port.RefusedByServer | None:
        """Reads at once the controllers of each kind of which ``many`` are unknown. Returns the last refusal."""
        refused = None
        places = Counter((owner.namespace, owner.known) for owner in owners if owner.uid not in self._above)
        for (namespace, kind), count in places.items():
            if self.cluster is None or not (kind and self.label) or count < many:
                continue
            try:
                labels = {self.label: self.value}
                self.learn(workloads=self.cluster.workloads(kind=kind, namespace=namespace, labels=labels))
            except port.RefusedByServer as error:
                refused = error
        return refused

    def _climb(self, owner: _Owner, goal: str) -> str:
        """Goes up to the goal, or as far as possible. Returns the uid that it reached."""
        for _ in range(MAX_STEPS):
            if owner.uid in ("", goal):
                break
            self._read(owner)
            above = self._above.get(owner.uid)
            if above is None or not above.uid:
                break
            owner = above
        return owner.uid

    def _read(self, owner: _Owner) -> None:
        """Reads the object that a reference names; one with another uid is another object."""
        if self.cluster is None or owner.uid in self._above or not owner.is_readable:
            return
        if owner in self._read_already:
            if (refused := self._read_already[owner]) is not None:
                raise refused
            return
        self._read_already[owner] = None
        try:
            if owner.known:
                self.learn(workloads=[self.cluster.workload(owner.namespace, owner.known, owner.name)])
            elif self.label:
                labels = {self.label: self.value}
                self.learn(pods=self.cluster.list_pods(namespace=owner.namespace, labels=labels))
        except port.NotFound:
            return
        except port.RefusedByServer as error:
            self._read_already[owner] = error
            raise


def _owner(one: port.Pod | port.Workload) -> _Owner:
    return _Owner(one.namespace, one.owner_kind, one.owner_api, one.owner_name, one.owner_uid)
