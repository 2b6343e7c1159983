"""A cluster with job controllers, which create their pods again on a schedulable node."""

import msgspec

from kcover_portal.kube import values
from kcover_portal.kube.wire import pods, workloads
from tests.kube_fake import FakeCluster
from tests.kube_fake.objects import Manifest


class WithOperators(FakeCluster):
    """``broken``: names of jobs whose controller does nothing. ``full``: no node has room for a new pod."""

    broken: frozenset[str] = frozenset()
    full = False

    def finish_deletions(self, *, node: str | None = None) -> list[str]:
        """The pods that left are created again, except those of suspended jobs, which leave."""
        suspended = self._suspended()
        for manifest in self.objects.list("Pod") if suspended else ():
            pod = msgspec.convert(manifest, pods.PodObject).value()
            if pod.owner_name in suspended:
                self._start_deletion(pod, None)
        leaving = {m["metadata"]["uid"]: m for m in self.objects.list("Pod") if "deletionTimestamp" in m["metadata"]}
        names = super().finish_deletions(node=node)
        for manifest in leaving.values():
            place = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
            if self.objects.find("Pod", *place) is None:
                self._create_again(manifest)
        return names

    def _suspended(self) -> frozenset[str]:
        found = [
            msgspec.convert(manifest, workloads.WorkloadObject).value(known)
            for kind, known in values.WORKLOADS.items()
            for manifest in self.objects.list(kind)
        ]
        return frozenset(workload.name for workload in found if workload.phase is values.Phase.SUSPENDED)

    def obey_commands(self) -> None:
        """Volcano's controller takes its Commands: the pods of the job leave."""
        for command in self.objects.list("Command"):
            self.objects.remove("Command", command["metadata"]["namespace"], command["metadata"]["name"])
            for pod in self.list_pods(
                namespace=command["metadata"]["namespace"], labels={"volcano.sh/job-name": command["target"]["name"]}
            ):
                self.evict(pod.namespace, pod.name, uid=pod.uid)

    def _create_again(self, old: Manifest) -> None:
        owners = old["metadata"]["ownerReferences"]
        if not owners or owners[0]["name"] in self.broken | self._suspended():
            return
        kept = {key: old["metadata"][key] for key in ("namespace", "name", "labels", "ownerReferences")}
        node = "" if self.full else next(n.name for n in self.list_nodes().items if not n.unschedulable)
        lacking = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        status = (
            {"phase": "Pending", "conditions": [lacking]}
            if self.full
            else {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        )
        self.create({**old, "metadata": kept, "spec": {**old["spec"], "nodeName": node}, "status": status})


def pods_of(kube: FakeCluster, namespace: str = "train") -> list[values.Pod]:
    """The pods that are not leaving."""
    return [pod for pod in kube.list_pods(namespace=namespace) if not pod.deleting]
