"""A privileged pod pinned to the node reboots, if the kernel's boot id is still the one in its spec."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from kcover_portal.kube import port
from kcover_portal.rescue.actions.context import Context

SCRIPT = (
    'test "$(cat /proc/sys/kernel/random/boot_id)" = "$KCOVER_BOOT_ID" || exit 0; '
    "nsenter --target 1 --mount --uts --ipc --net -- systemctl reboot"
)
DEADLINE_SECONDS = 300
# Its pod dies with the machine, which a cluster still calls Ready for up to a minute.
BELIEVED_AFTER = timedelta(seconds=DEADLINE_SECONDS + 60)


def ask(context: Context, *, key: str, boot_id: str) -> str:
    """Creates the job; its name comes from the key, so that asking twice makes one job."""
    namespace, _, called = place(context, key=key).partition("/")
    spec = port.JobSpec(
        name=called,
        namespace=namespace,
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
    """How the job failed, if it did: as one does whose pod dies with the machine, or whose time ends in the boot."""
    namespace, _, called = place(context, key=key).partition("/")
    state = context.kube.job_state(namespace, called)
    return f"the reboot job failed: {state.reason or 'no reason given'}" if state.failed else None


def place(context: Context, *, key: str) -> str:
    """``namespace/name`` of the job for a key: as it was kept before it was asked for, wherever jobs go since."""
    name = f"kcover-{key}"
    kept = (one for one in asked_for(context.step.progress) if one.endswith(f"/{name}"))
    return next(kept, f"{context.cluster.job_namespace}/{name}")


def asked_for(progress: Mapping[str, Any]) -> list[str]:
    """``namespace/name`` of every job that a step asked, or was about to ask, for; what it did before a retry too."""
    kept: list[str] = progress.get("jobs") or []
    asked = str(progress.get("asked", ""))  # all that steps of the first releases kept
    return kept or ([asked.removeprefix("job ")] if asked.startswith("job ") else [])
