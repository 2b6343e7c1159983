"""stop_jobs: stop the protected training jobs of the node, each as a whole, instead of restarting them elsewhere."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from kcover import reasons
from kcover.actions import moved_jobs
from kcover.actions.record import ValueFormat, shown
from kcover.actions.spec import ActionSpec, PolicyAction, Stage
from kcover.sentences.i18n import gettext_noop as _


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(moved_jobs.Progress):
    """``stopped``: how the pods of each job are found, by its namespace/name; stored before the job is stopped.

    ``since``: when every one of these jobs had been requested to stop.
    """

    stopped: Mapping[str, Mapping[str, Any]] = shown(_("Jobs stopped"), ValueFormat.NAMES, default={})
    left: tuple[str, ...] = shown(_("Jobs left alone"), ValueFormat.NAMES, default=())
    since: datetime | None = shown(_("Stopped at"), ValueFormat.MOMENT, default=None)

    @property
    def committed(self) -> bool:
        """Once a stop was requested, the step waits until the job has stopped."""
        return self.begun

    def retried(self) -> Self:
        """The jobs that were stopped are waited for again, with a new deadline."""
        return dataclasses.replace(moved_jobs.Progress.retried(self), stopped=self.stopped)


SPEC = ActionSpec(
    name="stop_jobs",
    title=_("Stop jobs"),
    place=(Stage.MOVE, 2),
    policy=PolicyAction(
        name="stopJobs",
        needs=(("cordon", "drain"),),  # otherwise a job that its owner resumes could come back to the node
        excludes={"restartJobs": reasons.of("stop_or_restart_jobs")},
    ),
    plan=moved_jobs.plan,
    args=moved_jobs.Args,
    progress=Progress,
    isolates=True,
    takes_work_away=True,
)
