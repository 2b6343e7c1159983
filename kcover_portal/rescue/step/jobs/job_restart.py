"""The restart of one training job, as it is stored before its first call, and how far the job has come back."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, Self

from kcover import audit, reasons
from kcover.values.digests import digest
from kcover.values.kube_names import ObjectName
from kcover_portal.kube import port
from kcover_portal.rescue.step.jobs.restart_progress import RestartProgress, how_far_back
from kcover_portal.workloads import training_jobs
from kcover_portal.workloads.training_jobs import Job

MAX_NAMES_SHOWN = 8  # names in a sentence

Kept = Mapping[str, Mapping[str, Any]]


def names(jobs: Iterable[Job], *, among: Iterable[Job]) -> list[str]:
    """The jobs as namespace/name, with the kind of those that share that with another one of ``among``."""
    shared = Counter(str(job) for job in {(job.kind, str(job)): job for job in among}.values())
    return [f"{job} ({job.kind})" if shared[str(job)] > 1 else str(job) for job in jobs]


class Write(Protocol):
    """The only way to write to a cluster: ``Context.write``, or that of an order."""

    def __call__(
        self,
        kind: audit.Call,
        call: Callable[[], Any],
        *,
        target: str = ...,
        destructive: bool = ...,
        wanted: audit.Wanted | None = ...,
    ) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """A job and its pods when the restart was claimed, as name to uid. ``wanted``: how many must run again."""

    job: Job
    pods: Mapping[str, str] = field(default_factory=dict)
    wanted: int = 0

    @classmethod
    def of(cls, cluster: port.Cluster, job: Job) -> Self:
        """The restart of the job with the pods that it has now."""
        pods = [pod for pod in training_jobs.pods_of(cluster, job) if not pod.deleting]
        wanted = sum(not pod.terminal for pod in pods)
        return cls(job=job, pods={pod.name: pod.uid for pod in pods}, wanted=wanted)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        job = self.job
        named = {"kind": job.kind, "name": job.name, "label": job.label, "value": job.value, "uid": job.uid}
        return {**named, "pods": dict(self.pods), "wanted": self.wanted}

    @classmethod
    def from_json(cls, own: ObjectName, data: Mapping[str, Any]) -> Self:
        """What ``to_json`` wrote about this job."""
        job = Job(
            namespace=own.namespace,
            kind=data.get("kind", "Job"),
            name=data.get("name", own.name),
            label=data["label"],
            value=data.get("value", own.name),
            uid=data.get("uid", ""),
        )
        return cls(job=job, pods=data["pods"], wanted=data.get("wanted", len(data["pods"])))

    @classmethod
    def kept(cls, restarts: Kept) -> list[Self]:
        """The restarts that the progress of a step keeps."""
        return [cls.from_json(ObjectName.parse(name), data) for name, data in restarts.items()]

    @classmethod
    def is_kept(cls, restarts: Kept, job: Job) -> bool:
        """Returns whether a restart of this job is among them. Another job may have its name, and another kind."""
        ours = [(name, data.get("kind", job.kind)) for name, data in restarts.items()]  # an older portal kept no kind
        return any((name.partition(" ")[0], kind) == (str(job), job.kind) for name, kind in ours)

    def kept_with(self, restarts: Kept) -> dict[str, Mapping[str, Any]]:
        """The kept restarts and this one: by namespace/name of the job, and its kind where two jobs share that."""
        name = str(self.job)
        return {**restarts, name if name not in restarts else f"{name} ({self.job.kind})": self.to_json()}

    @property
    def key(self) -> str:
        """Names this restart of the job: the same after a crash, another for the next restart."""
        return digest("\n".join(sorted(self.pods.values())))[:16]

    def make(self, cluster: port.Cluster, write: Write) -> None:
        """Restarts the job by the verb that its controller expects. Repeating it does nothing that was done before."""
        left = [pod for pod in training_jobs.pods_that_say_so(cluster, self.job) if self._is_doomed(pod)]
        if self.job.known.restart is port.JobMethod.COMMAND:
            if left and not any(pod.deleting for pod in left) and len(left) == len(self.pods):
                self._command(cluster, write, "RestartJob")
            return
        for pod in left:
            if not pod.deleting:
                write(
                    audit.Call.DELETE,
                    partial(cluster.delete_pod, pod.namespace, pod.name, uid=pod.uid),
                    target=f"pod {pod.namespace}/{pod.name}",
                    destructive=True,
                    wanted=audit.PodRemoval(uid=pod.uid, job=str(self.job)),
                )

    def stop(self, cluster: port.Cluster, write: Write) -> None:
        """Suspends the job by the verb of its kind. Repeating it changes nothing."""
        job = self.job
        if job.known.stop is port.JobMethod.COMMAND:
            self._command(cluster, write, "AbortJob")
            return
        suspend = partial(cluster.suspend_workload, job.namespace, job.kind, job.name, uid=job.uid)
        self._order(write, suspend, "suspend")

    def _command(self, cluster: port.Cluster, write: Write, action: str) -> None:
        job = self.job
        command = partial(
            cluster.command_workload, job.namespace, job.kind, job.name, uid=job.uid, action=action, key=self.key
        )
        self._order(write, command, action)

    def _order(self, write: Write, call: Callable[[], Any], action: str) -> None:
        write(
            audit.Call.COMMAND,
            call,
            target=f"job {self.job}",
            destructive=True,
            wanted=audit.JobCommand(kind=self.job.kind, uid=self.job.uid, action=action),
        )

    def not_ended(self, cluster: port.Cluster) -> list[port.Pod]:
        """The pods of the job that have not ended."""
        return [pod for pod in self._pods(cluster) if not pod.terminal]

    def look(self, cluster: port.Cluster) -> tuple[port.Phase | None, RestartProgress]:
        """What the job's status says, None if the job is gone, and how far its pods are back."""
        phase: port.Phase | None = port.Phase.RUNNING
        if self.job.uid:
            try:
                phase = cluster.workload(self.job.namespace, self.job.kind, self.job.name).phase
            except port.NotFound:
                phase = None
        pods = self._pods(cluster)
        return phase, how_far_back(pods, doomed=frozenset(self.pods.values()), wanted=self.wanted)

    def _pods(self, cluster: port.Cluster) -> list[port.Pod]:
        """The pods of the restart, also those whose controllers are gone, and the new ones of the job."""
        found = training_jobs.pods_that_say_so(cluster, self.job)
        own = {pod.uid for pod in training_jobs.among(cluster, self.job, found)}
        return [pod for pod in found if pod.uid in own or self._is_doomed(pod)]

    def _is_doomed(self, pod: port.Pod) -> bool:
        return self.pods.get(pod.name) == pod.uid


def missing(restart: Restart, back: RestartProgress) -> reasons.Reason:
    """The missing pods of the job, with the reasons."""
    parts = [reasons.of("job_partly_back", job=str(restart.job), running=len(back.running), wanted=restart.wanted)]
    starting = [name for name in back.starting if name not in back.roomless]
    for code, pods in (("pods_not_ended", back.stuck), ("pods_starting", starting), ("pods_lack_room", back.roomless)):
        if pods:
            parts.append(reasons.of(code, pods=reasons.named(pods, most=MAX_NAMES_SHOWN)))
    if back.absent:
        parts.append(reasons.of("pods_not_created", count=back.absent))
    return reasons.both(*parts)
