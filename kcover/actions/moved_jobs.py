"""What all steps share that take away the work of jobs: the wait for checkpoints, and the owners to tell. No action."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from kcover import durations
from kcover.actions import record
from kcover.actions.record import Form, hidden, shown
from kcover.actions.spec import Attributes, RuleOptions
from kcover.sentences.i18n import gettext_noop as _

ATTRIBUTE = "checkpointWait"  # of a rule's drain


@dataclass(frozen=True, slots=True, kw_only=True)
class Args(record.Args):
    """``checkpoint_seconds``: the longest wait for the next checkpoint; 0 for none."""

    checkpoint_seconds: int = shown(_("Wait for a checkpoint"), Form.SECONDS, default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(record.Progress):
    """``checkpoints``: by namespace/name of the job, the time of its last checkpoint when the wait began.

    ``checkpoint_since`` and ``checkpoint_over``: when the wait began and ended. ``owners``: by namespace/name, the
    ``kind`` of each job whose owner was told before, and the ``channel``. ``owners_told``: they know that it is over.
    """

    checkpoints: Mapping[str, str] = hidden(default={}, kept=True)
    checkpoint_since: datetime | None = shown(_("Waited for a checkpoint from"), Form.MOMENT, default=None, kept=True)
    checkpoint_over: datetime | None = shown(_("Waited for a checkpoint until"), Form.MOMENT, default=None, kept=True)

    owners: Mapping[str, Mapping[str, str]] = hidden(default={}, kept=True)
    owners_told: bool = hidden(default=False, kept=True)

    @property
    def checkpoint_waited(self) -> timedelta:
        """The time from the beginning of the wait to its end; zero while it lasts."""
        if self.checkpoint_since is None or self.checkpoint_over is None:
            return timedelta(0)
        return self.checkpoint_over - self.checkpoint_since


def of_attributes(attributes: Attributes) -> timedelta | None:
    """The longest wait that a rule's drain with these attributes asks for."""
    return durations.parse(attributes.get(ATTRIBUTE, ""))


def plan(_attribute: Attributes, options: RuleOptions) -> Args:
    """The arguments of a step that has no others."""
    return Args(checkpoint_seconds=seconds(options))


def seconds(options: RuleOptions) -> int:
    """``Args.checkpoint_seconds`` of every step of the rule."""
    return int(options.checkpoint_wait.total_seconds()) if options.checkpoint_wait else 0
