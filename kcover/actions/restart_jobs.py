"""restart_jobs: restart the protected training jobs of the node elsewhere, each as a whole."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from kcover.actions import moved_jobs
from kcover.actions.record import ValueFormat, shown
from kcover.actions.spec import ActionSpec, PolicyAction, Stage
from kcover.sentences.i18n import gettext_noop as _


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(moved_jobs.Progress):
    """``restarted``: by namespace/name of the job, how its pods are found, and its ``pods`` then as name to uid.

    It is stored before the first pod is deleted. ``swapped``: jobs of which Kueue replaces the node. ``since``: when
    every one of these jobs had been requested to restart. ``silent_since``: when the step first saw that the node's
    kubelet is silent while pods of these jobs are stuck.
    """

    restarted: Mapping[str, Mapping[str, Any]] = shown(_("Jobs restarted"), ValueFormat.NAMES, default={})
    left: tuple[str, ...] = shown(_("Jobs left alone"), ValueFormat.NAMES, default=())
    swapped: tuple[str, ...] = shown(_("Jobs left to Kueue"), ValueFormat.NAMES, default=())
    since: datetime | None = shown(_("Restarted at"), ValueFormat.MOMENT, default=None)
    silent_since: datetime | None = shown(_("Kubelet silent since"), ValueFormat.MOMENT, default=None)

    @property
    def committed(self) -> bool:
        """A restart that has deleted some pods of a job is always completed."""
        return self.begun

    def retried(self) -> Self:
        """The jobs that were restarted are waited for again, with a new deadline."""
        return dataclasses.replace(moved_jobs.Progress.retried(self), restarted=self.restarted)


SPEC = ActionSpec(
    name="restart_jobs",
    title=_("Restart jobs"),
    place=(Stage.MOVE, 1),
    policy=PolicyAction(
        name="restartJobs", needs=(("cordon", "drain"),)
    ),  # otherwise their pods could come back to the node
    plan=moved_jobs.plan,
    args=moved_jobs.Args,
    progress=Progress,
    isolates=True,
    takes_work_away=True,
)
