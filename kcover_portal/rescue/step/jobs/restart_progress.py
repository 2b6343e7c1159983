"""How far a restarted training job has come back, by its pods."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kcover_portal.kube import port


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartProgress:
    """The progress of a restarted job. All are names of pods.

    ``stuck``: old pods that are still leaving. ``starting``: new pods that do not run yet. ``roomless``: those of them
    for which the scheduler found no node. ``absent``: how many pods nobody has created yet. ``stuck_on``: the nodes of
    the old pods.
    """

    running: tuple[str, ...]
    stuck: tuple[str, ...]
    starting: tuple[str, ...]
    roomless: tuple[str, ...]
    absent: int
    stuck_on: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Returns whether every pod runs again."""
        return not (self.stuck or self.starting or self.absent)

    @property
    def only_lacks_room(self) -> bool:
        """Returns whether all that is missing waits for a node."""
        return not self.complete and not self.stuck and not self.absent and self.roomless == self.starting


def how_far_back(pods: Sequence[port.Pod], *, doomed: Collection[str], wanted: int) -> RestartProgress:
    """``pods``: the job's now; ``doomed``: the uids of those that were taken away; ``wanted``: how many should run."""
    new = [pod for pod in pods if pod.uid not in doomed and not pod.deleting]
    old = [pod for pod in pods if pod.uid in doomed]
    stuck = _names(old)
    running = [pod for pod in new if pod.ready or pod.phase == "Succeeded"]
    starting = [pod for pod in new if not (pod.ready or pod.phase == "Succeeded")]
    return RestartProgress(
        running=_names(running),
        stuck=stuck,
        starting=_names(starting),
        roomless=_names([pod for pod in starting if pod.unschedulable]),
        absent=max(wanted - len(new) - len(stuck), 0),
        stuck_on=tuple(sorted({pod.node for pod in old if pod.deleting})),
    )


def _names(pods: Sequence[port.Pod]) -> tuple[str, ...]:
    return tuple(sorted(pod.name for pod in pods))
