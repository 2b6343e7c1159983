"""Shared by the actions that interrupt jobs (drain, restart_jobs, stop_jobs): the wait for checkpoints and the messages
to owners. Not an action.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from kcover.actions import attributes, record
from kcover.actions.record import ValueFormat, hidden, shown
from kcover.actions.spec import Attributes, Refusal, RuleOptions
from kcover.jobs import checkpoint_query
from kcover.sentences.i18n import gettext_noop as _
from kcover.values import durations

# Attributes of a rule's drain.
WAIT, QUERY, SOURCE = "checkpointWait", "checkpointQuery", "checkpointSource"
ATTRIBUTES: Mapping[str, Refusal] = {
    WAIT: attributes.wait,
    QUERY: checkpoint_query.refusal,
    SOURCE: attributes.source,
}
TOGETHER: Mapping[str, str] = {QUERY: WAIT, SOURCE: QUERY}


@dataclass(frozen=True, slots=True, kw_only=True)
class Args(record.Args):
    """``checkpoint_seconds``: the longest wait for the next checkpoint; 0 for none.

    ``checkpoint_query``: asks Prometheus for the last checkpoint of a job without the annotation; "" for no query.
    ``checkpoint_source``: the source of kind prometheus that is asked; "" for the only one of the cluster.
    """

    checkpoint_seconds: int = shown(_("Wait for a checkpoint"), ValueFormat.SECONDS, default=0)
    checkpoint_query: str = shown(_("Query for the last checkpoint"), default="")
    checkpoint_source: str = shown(_("Source asked for the last checkpoint"), default="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(record.Progress):
    """``checkpoints``: by kind and namespace/name of the job, the time of its last checkpoint when the wait began.

    ``checkpoint_since`` and ``checkpoint_over``: when the wait began and ended. ``owners``: likewise, the ``job``
    (namespace/name), ``kind`` and ``channel`` of each owner who was notified before. ``owners_notified``: they were
    also notified of the end.
    """

    checkpoints: Mapping[str, str] = hidden(default={}, kept=True)
    checkpoint_since: datetime | None = shown(
        _("Waited for a checkpoint from"), ValueFormat.MOMENT, default=None, kept=True
    )
    checkpoint_over: datetime | None = shown(
        _("Waited for a checkpoint until"), ValueFormat.MOMENT, default=None, kept=True
    )

    owners: Mapping[str, Mapping[str, str]] = hidden(default={}, kept=True)
    owners_notified: bool = hidden(default=False, kept=True)

    @property
    def checkpoint_waited(self) -> timedelta:
        """The time from the beginning of the wait to its end; zero while it lasts."""
        if self.checkpoint_since is None or self.checkpoint_over is None:
            return timedelta(0)
        return self.checkpoint_over - self.checkpoint_since


def plan(_attribute: Attributes, options: RuleOptions) -> Args:
    """The arguments of a step that has no others."""
    return Args(**arguments(options))


def arguments(options: RuleOptions) -> dict[str, Any]:
    """The fields of ``Args`` of every step of the rule; the query only with a wait."""
    drain = options.drain
    wait = durations.parse(drain.get(WAIT, ""))
    if not wait:
        return {}
    return {
        "checkpoint_seconds": int(wait.total_seconds()),
        "checkpoint_query": drain.get(QUERY, ""),
        "checkpoint_source": drain.get(SOURCE, ""),
    }
