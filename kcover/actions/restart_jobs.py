"""restart_jobs: the protected training jobs on the node begin anew elsewhere, by the deletion of all their pods."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kcover.actions import record
from kcover.actions.record import Form, shown
from kcover.actions.spec import ActionSpec, PolicyAction, Stage
from kcover.sentences.i18n import gettext_noop as _


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(record.Progress):
    """``restarted``: by namespace/name of the job, its ``label`` and its ``pods`` as name to uid, stored before the
    first of them is deleted."""

    restarted: Mapping[str, Mapping[str, Any]] = shown(_("Jobs restarted"), Form.NAMES, default={})

    @property
    def committed(self) -> bool:
        """A job that has lost some of its pods is restarted to the end."""
        return self.begun


SPEC = ActionSpec(
    name="restart_jobs",
    title=_("Restart jobs"),
    place=(Stage.MOVE, 1),
    policy=PolicyAction(name="restartJobs", needs=(("cordon", "drain"),)),  # else their pods may come back to the node
    progress=Progress,
    isolates=True,
    takes_work_away=True,
)
