"""A job: a privileged pod on the node reboots it, if the kernel's boot ID is still the one in the pod's spec."""

from datetime import timedelta

from kcover import reasons
from kcover.actions import JobsProgress
from kcover.reasons import Reason
from kcover.values.kube_names import ObjectName
from kcover_portal.kube import port
from kcover_portal.rescue.models import Step
from kcover_portal.rescue.step.context import Context

BOOT_VARIABLE = "KCOVER_BOOT_ID"
SCRIPT = (
    'test "$(cat /proc/sys/kernel/random/boot_id)" = "$KCOVER_BOOT_ID" || exit 0; '
    "nsenter --target 1 --mount --uts --ipc --net -- systemctl reboot"
)
DEADLINE_SECONDS = 300
# The job's pod dies with the machine, which the cluster still shows as Ready for up to a minute.
BELIEVED_AFTER = timedelta(seconds=DEADLINE_SECONDS + 60)


def ask(context: Context, *, key: str, boot_id: str) -> Reason:
    """Creates the job. Its name comes from the key, so that a repeated request does not make a second job.

    Raises RefusedByServer if the name belongs to a job of another boot: one of another portal or an older database.
    """
    own = place(context, key=key)
    spec = port.JobSpec(
        name=own.name,
        namespace=own.namespace,
        node=context.node.name,
        image=context.cluster.job_image,
        command=("sh", "-c", SCRIPT),
        env={BOOT_VARIABLE: boot_id},
        host_pid=True,
        privileged=True,
        deadline_seconds=DEADLINE_SECONDS,
        service_account=None,
        labels={"kcover.io/reboot": "true", "app.kubernetes.io/managed-by": "kcover-portal"},
    )
    if not is_for(context.kube.ensure_job(spec), node=spec.node, boot_id=boot_id):
        raise port.RefusedByServer(reasons.of("reboot_job_foreign", job=str(own)))
    return reasons.of("reboot_job", job=str(own))


def ended(context: Context, *, key: str) -> Reason | None:
    """The reason why the job failed, if it did. It also fails if its pod dies with the machine, or at its deadline."""
    own = place(context, key=key)
    state = context.kube.job_state(own.namespace, own.name)
    if not state.failed:
        return None
    return reasons.of("reboot_job_failed", why=state.reason or reasons.of("no_reason_given"))


def is_for(state: port.JobState, *, node: str, boot_id: str) -> bool:
    """Returns whether the job ends this boot of the node."""
    return (state.node, state.env.get(BOOT_VARIABLE)) == (node, boot_id)


def is_of(state: port.JobState, step: Step) -> bool:
    """Returns whether the step made the job, and not another portal under the same name."""
    return is_for(state, node=step.rescue.node.name, boot_id=step.progress_as(JobsProgress).old_boot)


def withdraw(kube: port.Cluster, own: ObjectName, step: Step) -> None:
    """Deletes the job of the step; one of another portal under its name stays."""
    if is_of(kube.job_state(own.namespace, own.name), step):
        kube.delete_job(own.namespace, own.name)


def place(context: Context, *, key: str) -> ObjectName:
    """The job for a key. It keeps the namespace under which it was first requested."""
    name = f"kcover-{key}"
    kept = (job for job in context.step.leftovers if job.name == name)
    return next(kept, ObjectName(context.cluster.job_namespace, name))
