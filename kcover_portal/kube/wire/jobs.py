"""Jobs of the batch group."""

import msgspec

from kcover_portal.kube import values
from kcover_portal.kube.wire import base


class JobStatus(base.Struct, frozen=True):
    active: int = 0
    succeeded: int = 0
    failed: int = 0
    conditions: list[base.Condition] | None = None


class EnvVar(base.Struct, frozen=True):
    name: str
    value: str = ""


class JobContainer(base.Struct, frozen=True):
    env: list[EnvVar] | None = None


class JobPod(base.Struct, frozen=True):
    node_name: str = msgspec.field(name="nodeName", default="")
    containers: list[JobContainer] | None = None


class JobTemplate(base.Struct, frozen=True):
    spec: JobPod = JobPod()


class JobSpec(base.Struct, frozen=True):
    template: JobTemplate = JobTemplate()


class JobObject(base.AnyObject, frozen=True):
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()

    def value(self) -> values.JobState:
        """Returns the port's value. A Job that failed without a failed pod (deadline) counts as one failure."""
        status = self.status
        failure = next((c for c in status.conditions or () if c.type == "Failed" and c.status == "True"), None)
        return values.JobState(
            exists=True,
            active=status.active,
            succeeded=status.succeeded,
            failed=max(status.failed, 1) if failure else status.failed,
            reason=failure.reason if failure else "",
            labels=self.metadata.labels or {},
            node=self.spec.template.spec.node_name,
            env={one.name: one.value for one in (self.spec.template.spec.containers or [JobContainer()])[0].env or ()},
        )
