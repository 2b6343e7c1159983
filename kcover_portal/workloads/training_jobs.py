"""Training jobs as a whole: the job of a pod, its owner's consent to a restart, and its state after a restart.

A job is known by the most specific label of its pods, and then by the controllers above it: a pod of a TrainJob names
a JobSet, which belongs to the TrainJob. The topmost job of a kind in ``WORKLOADS`` is restarted, with all its pods.
A pod belongs to a job that it names only if the job controls it: anybody may create a pod with the label.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from kcover.actions.attributes import CHANNEL_NAME
from kcover_portal.kube import port
from kcover_portal.kube.controllers import NAME, Controllers
from kcover_portal.workloads import namespace_channels

PROTECTED: Final = port.PROTECTED_LABEL
NEEDS_RECOVERY: Final = "kcover.io/need-recovery"
CHECKPOINT: Final = "kcover.io/checkpoint"
NOTIFY: Final = "kcover.io/notify"
MAX_OWNERS: Final = 4  # jobs above a pod: RayJob, RayCluster
_MAX_PARTS: Final = 50  # that are read to find the labelled ones of a job


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A training job.

    ``label`` and ``value`` select its pods, among which are pods of strangers; ``label`` "": nothing selects them.
    ``protected``: the owner consents to a restart by a label on the job, on what owns it, or in a template of its pods.
    A label on a pod alone is nobody's consent: whoever may create pods could give it. ``checkpoint``: the time of its
    last checkpoint, as its own program wrote it; None if it is unknown. ``notify``: the channel that its owner names,
    "" for none; ``find`` puts the channel of its namespace there. ``queue``: the queue of Kueue that decides when it
    runs, "" if none.
    """

    namespace: str
    kind: str
    name: str
    label: str
    value: str
    uid: str
    protected: bool = field(default=False, compare=False)
    checkpoint: datetime | None = field(default=None, compare=False)
    notify: str = field(default="", compare=False)
    queue: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def known(self) -> port.WorkloadKind:
        """The row of the table."""
        return port.WORKLOADS[self.kind]


def of_workload(workload: port.Workload) -> Job:
    """The job of an object that was read."""
    known = port.WORKLOADS[workload.kind]
    return Job(
        namespace=workload.namespace,
        kind=workload.kind,
        name=workload.name,
        label=known.pod_label,
        value=workload.pods_named,
        uid=workload.uid,
        protected=workload.protected,
        queue=workload.queue,
    )


def read(cluster: port.Cluster, namespace: str, kind: str, name: str) -> tuple[Job, port.Workload]:
    """The job of this name, or the one that it belongs to, and the object of this name. Raises ``port.NotFound``."""
    workload = cluster.workload(namespace, kind, name)
    own = of_workload(workload)
    return _with_owners(Controllers(cluster, own.label, own.value), workload), workload


def labelled(cluster: port.Cluster, job: Job) -> list[port.Workload]:
    """The job's object, and at most _MAX_PARTS parts of it, that carry the label ``NEEDS_RECOVERY``."""
    found = cluster.workloads(labels={NEEDS_RECOVERY: "true"}, namespace=job.namespace)
    own = [one for one in found if (one.kind, one.name) == (job.kind, job.name)]
    parts = [one for one in found if one not in own and is_part(one)][:_MAX_PARTS]
    return [*own, *(part for part in parts if read(cluster, part.namespace, part.kind, part.name)[0] == job)]


def of_pod(cluster: port.Cluster, pod: port.Pod) -> Job | None:
    """The job of a pod, also of one that has ended; None if it belongs to none."""
    said = _said(pod)
    return _job(Controllers(cluster, said.label, said.value), pod) if said is not None else None


def find(cluster: port.Cluster, pods: Sequence[port.Pod]) -> dict[Job, list[port.Pod]]:
    """The jobs of these pods. Pods that are leaving or have ended do not count.

    A job that names no channel has that of its namespace. A job that the server refuses to show is left out unless one
    of its pods consents to a restart.
    """
    groups: dict[tuple[_Said, str], list[port.Pod]] = {}
    for pod in pods:
        said = None if pod.deleting or pod.terminal else _said(pod)
        if said is not None:
            groups.setdefault((said, pod.owner_uid), []).append(pod)
    above = {said: Controllers(cluster, said.label, said.value) for said, _ in groups}
    found: dict[Job, list[port.Pod]] = {}
    for (said, _), group in groups.items():
        try:
            job = _job(above[said], group[0])
        except port.RefusedByServer:
            if _consents(group):
                raise
            continue
        if job is not None:
            found.setdefault(job, []).extend(group)
    return _with_channels(cluster, found) if found else found


def owner_channel(cluster: port.Cluster, job: Job) -> str:
    """The channel of the job's owner: the one that the job names, or else that of its namespace; "" for none.

    An annotation that is no name of a channel names none.
    """
    return _channel(job, namespace_channels.of(cluster))


def _with_channels(cluster: port.Cluster, found: Mapping[Job, list[port.Pod]]) -> dict[Job, list[port.Pod]]:
    channel_of = namespace_channels.of(cluster)
    return {replace(job, notify=_channel(job, channel_of)): pods for job, pods in found.items()}


def _channel(job: Job, channel_of: namespace_channels.Channels) -> str:
    named = job.notify or channel_of(job.namespace)
    return named if CHANNEL_NAME.fullmatch(named) else ""


def _consents(pods: Sequence[port.Pod]) -> bool:
    return any(pod.labels.get(PROTECTED) == "true" for pod in pods)


def is_never_restarted(job: Job, pods: Sequence[port.Pod]) -> bool:
    """Returns whether the kind's controller would not create these pods again."""
    return job.known.never_is_final and any(pod.restart_policy == "Never" for pod in pods)


def is_swapped(pods: Sequence[port.Pod]) -> bool:
    """Returns whether Kueue's topology-aware scheduling placed these pods. It replaces a failed node of theirs."""
    return any(port.KUEUE_TAS_LABEL in pod.labels for pod in pods)


def pods_of(cluster: port.Cluster, job: Job) -> list[port.Pod]:
    return among(cluster, job, pods_that_say_so(cluster, job))


def among(cluster: port.Cluster, job: Job, pods: Sequence[port.Pod]) -> list[port.Pod]:
    """Those of the pods that belong to the job, of pods that name it. Without a label they belong to it directly."""
    if not job.label:
        return controlled(job, pods)
    return Controllers(cluster, job.label, job.value).below(pods, job.uid)


def pods_that_say_so(cluster: port.Cluster, job: Job) -> list[port.Pod]:
    """The pods that name the job by its label, or all of its namespace if it has none: those of strangers, too."""
    if job.label:
        return cluster.list_pods(namespace=job.namespace, labels={job.label: job.value}) if job.value else []
    return cluster.list_pods(namespace=job.namespace)


def controlled(job: Job, pods: Sequence[port.Pod]) -> list[port.Pod]:
    """Those of the namespace's pods that belong directly to the job."""
    return [pod for pod in pods if pod.owner_uid == job.uid]


@dataclass(frozen=True, slots=True)
class _Said:
    """The label and name by which a pod names its job; ``label`` "": its controller is the job."""

    namespace: str
    label: str
    value: str


def _said(pod: port.Pod) -> _Said | None:
    """The job that the pod names; None: none. A bare pod belongs to no job, whatever it says."""
    label = next((key for key in port.JOB_LABELS if pod.job and pod.labels.get(key) == pod.job), None)
    if not pod.owner_uid:
        return None
    if label is not None:
        return _Said(pod.namespace, label, pod.job)
    if port.WORKLOADS["StatefulSet"].owns(pod.owner_kind, pod.owner_api):
        return _Said(pod.namespace, "", pod.owner_name)
    return None


def _job(above: Controllers, pod: port.Pod) -> Job | None:
    """The job that the pod names, if it controls the pod."""
    for kind in _kinds(pod, above.label, above.value):
        workload = _read(above, pod.namespace, kind, above.value)
        job = _with_owners(above, workload) if workload is not None else None
        if job is not None and above.is_below(pod, job.uid):
            return job
    return None


def _kinds(pod: port.Pod, label: str, name: str) -> list[str]:
    """The kinds that the job may have: its pod's controller's if that has its name, else those of the label."""
    if pod.owner_name == name:
        for known in port.WORKLOADS.values():
            if known.owns(pod.owner_kind, pod.owner_api):
                return [known.kind]
    own = port.WORKLOADS["Job"].pod_label if label == port.JOB_LABELS[-1] else label
    return [known.kind for known in port.WORKLOADS.values() if known.pod_label == own]


def _read(above: Controllers, namespace: str, kind: str, name: str) -> port.Workload | None:
    if above.cluster is None or not NAME.fullmatch(name):
        return None
    try:
        found = above.cluster.workload(namespace, kind, name)
    except port.NotFound:
        return None
    except port.RefusedByServer:
        if kind == "StatefulSet":  # nobody need grant this right who labels no StatefulSet
            return None
        raise
    above.learn(workloads=[found])
    return found


def _with_owners(controllers: Controllers, workload: port.Workload) -> Job:
    """The topmost job above this one. Protected if any of them is."""
    label, name = controllers.label, controllers.value
    top, protected = workload, workload.protected
    checkpoint, notify, queue = _checkpoint(workload), workload.annotations.get(NOTIFY, ""), workload.queue
    for _ in range(MAX_OWNERS):
        kind = kind_of_owner(top)
        above = _read(controllers, top.namespace, kind, top.owner_name) if kind else None
        if above is None or above.uid != top.owner_uid:
            break
        top, protected = above, protected or above.protected
        checkpoint = max(filter(None, (checkpoint, _checkpoint(above))), default=None)
        notify, queue = above.annotations.get(NOTIFY, "") or notify, above.queue or queue
    known = port.WORKLOADS[top.kind]
    own = known.pod_label == label or top is workload or not top.pods_named
    return Job(
        namespace=top.namespace,
        kind=top.kind,
        name=top.name,
        label=label if own else known.pod_label,
        value=name if own else top.pods_named,
        uid=top.uid,
        protected=protected,
        checkpoint=checkpoint,
        notify=notify,
        queue=queue,
    )


def _checkpoint(workload: port.Workload) -> datetime | None:
    """The time in the annotation, an RFC 3339 time with an offset; None for any other text."""
    try:
        at = datetime.fromisoformat(workload.annotations.get(CHECKPOINT, ""))
    except ValueError:
        return None
    return at if at.tzinfo is not None else None


def is_part(workload: port.Workload) -> bool:
    """Returns whether the job belongs to another job."""
    return bool(kind_of_owner(workload))


def kind_of_owner(workload: port.Workload) -> str:
    """The kind of the job that this one belongs to; "" if it belongs to none."""
    kinds: Mapping[str, port.WorkloadKind] = port.WORKLOADS
    return next((k.kind for k in kinds.values() if k.owns(workload.owner_kind, workload.owner_api)), "")
