"""restart_jobs: restart the protected training jobs of the node elsewhere, by deleting all their pods."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kcover.actions import record
from kcover.actions.record import Form, shown
from kcover.actions.spec import ActionSpec, PolicyAction, Stage
from kcover.sentences.i18n import gettext_noop as _


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(record.Progress):
    """``restarted``: by namespace/name of the job, its ``label`` and its ``pods`` as name to uid.

    It is stored before the first pod is deleted.
    """

    restarted: Mapping[str, Mapping[str, Any]] = shown(_("Jobs restarted"), Form.NAMES, default={})

    @property
    def committed(self) -> bool:
        """A restart that has deleted some pods of a job is always completed."""
        return self.begun


SPEC = ActionSpec(
    name="restart_jobs",
    title=_("Restart jobs"),
    place=(Stage.MOVE, 1),
    policy=PolicyAction(
        name="restartJobs", needs=(("cordon", "drain"),)
    ),  # otherwise their pods could come back to the node
    progress=Progress,
    isolates=True,
    takes_work_away=True,
)
