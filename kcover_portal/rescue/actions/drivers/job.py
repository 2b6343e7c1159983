"""A privileged pod pinned to the node reboots, if the kernel's boot id is still the one in its spec."""

from kcover_portal.kube import port
from kcover_portal.rescue.actions.context import Context

SCRIPT = (
    'test "$(cat /proc/sys/kernel/random/boot_id)" = "$KCOVER_BOOT_ID" || exit 0; '
    "nsenter --target 1 --mount --uts --ipc --net -- systemctl reboot"
)
DEADLINE_SECONDS = 300


def ask(context: Context, *, key: str, boot_id: str) -> str:
    """Creates the job; its name comes from the key, so that asking twice makes one job."""
    spec = port.JobSpec(
        name=name(key),
        namespace=context.cluster.job_namespace,
        node=context.node.name,
        image=context.cluster.job_image,
        command=("sh", "-c", SCRIPT),
        env={"KCOVER_BOOT_ID": boot_id},
        host_pid=True,
        privileged=True,
        deadline_seconds=DEADLINE_SECONDS,
        service_account=None,
        labels={"kcover.io/reboot": "true", "app.kubernetes.io/managed-by": "kcover-portal"},
    )
    context.kube.ensure_job(spec)
    return f"job {spec.namespace}/{spec.name}"


def ended(context: Context, *, key: str) -> str | None:
    """Why the job will not reboot the node, if it failed."""
    state = context.kube.job_state(context.cluster.job_namespace, name(key))
    return f"the reboot job failed: {state.reason or 'no reason given'}" if state.failed else None


def name(key: str) -> str:
    """The job's name for a key."""
    return f"kcover-{key}"
