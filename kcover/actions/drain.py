"""drain: evict the node's pods gracefully, for as long as the policy allows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from kcover.actions import attributes, moved_jobs
from kcover.actions.record import ValueFormat, hidden, shown
from kcover.actions.spec import ActionSpec, Attributes, PolicyAction, RuleOptions, Stage
from kcover.sentences.i18n import gettext_noop as _
from kcover.values import durations

TOGETHER = "kueueTogether"
DEFAULT_TIME = timedelta(minutes=10)  # KCE's drain without a wait time: 10 minutes, then hold (docs/interfaces.md)


@dataclass(frozen=True, slots=True, kw_only=True)
class Args(moved_jobs.Args):
    """``seconds``: how long to evict, and before that how long to wait for another drain of a Kueue workload.

    ``on_timeout``: what to do with the remaining pods after that. ``kueue_together``: do not wait for another drain.
    """

    seconds: int = shown(_("Time limit"), ValueFormat.SECONDS)
    on_timeout: str = shown(
        _("On timeout"),
        ValueFormat.CHOICE,
        default="hold",
        always=True,
        choices={
            "hold": _("hold and escalate to an operator"),
            "proceed": _("continue without them"),
            "force": _("force delete them"),
        },
    )
    kueue_together: bool = shown(_("Drain nodes of one Kueue workload at once"), ValueFormat.YES_NO, default=False)

    @property
    def time_limit(self) -> timedelta:
        """The time limit of the drain, with the wait before it."""
        return timedelta(seconds=self.seconds + self.checkpoint_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(moved_jobs.Progress):
    """``entered``: the guards let the step begin.

    ``eviction_requested``: the eviction of at least one pod was requested. ``held_since`` and ``held_seconds``: how
    long guards held the evictions back; this time does not count towards the drain's limit. ``turn_since`` and
    ``turn_over``: when the wait for another drain of a Kueue workload began and ended. ``workloads``: the Kueue
    workloads of the node, each with the number of its pods that ran before the first eviction.
    """

    entered: bool = hidden(default=False)
    eviction_requested: bool = hidden(default=False)
    held_since: datetime | None = shown(_("Held back since"), ValueFormat.MOMENT, default=None)
    held_seconds: float = shown(_("Held back for"), ValueFormat.SECONDS, default=0.0)
    evicted: tuple[str, ...] = shown(_("Pods evicted"), ValueFormat.NAMES, default=())
    left: tuple[str, ...] = shown(_("Pods left"), ValueFormat.NAMES, default=())
    blocked: Mapping[str, Sequence[str]] = shown(_("Blocked by a disruption budget"), ValueFormat.BUDGETS, default={})
    turn_since: datetime | None = shown(_("Waited for another drain from"), ValueFormat.MOMENT, default=None)
    turn_over: datetime | None = shown(_("Waited for another drain until"), ValueFormat.MOMENT, default=None)
    workloads: Mapping[str, int] = hidden(default={}, kept=True)
    refusals: int = shown(_("Eviction retries"), ValueFormat.NUMBER, default=0)

    @property
    def turn_waited(self) -> timedelta:
        """How long the drain waited for another one; zero while it waits."""
        if self.turn_since is None or self.turn_over is None:
            return timedelta(0)
        return self.turn_over - self.turn_since


def leaves(*, daemonset: bool, mirror: bool, ended: bool) -> bool:
    """Return whether a drain leaves a pod alone: one of a DaemonSet, a mirror pod, or one that has ended."""
    return daemonset or mirror or ended


def _plan(attribute: Attributes, options: RuleOptions) -> Args:
    written = durations.parse(attribute.get("waittime", ""))
    wait = DEFAULT_TIME if written is None else written
    return Args(
        seconds=int(wait.total_seconds()),
        on_timeout=options.on_drain_timeout,
        kueue_together=attribute.get(TOGETHER) == "true",
        **moved_jobs.arguments(options),
    )


SPEC = ActionSpec(
    name="drain",
    title=_("Drain"),
    place=(Stage.MOVE, 3),
    policy=PolicyAction(
        name="drain",
        own=False,
        attributes={"waittime": attributes.wait, **moved_jobs.ATTRIBUTES, TOGETHER: attributes.truth(TOGETHER)},
        together=moved_jobs.TOGETHER,
    ),
    implies=("cordon",),
    plan=_plan,
    args=Args,
    progress=Progress,
    isolates=True,
    takes_work_away=True,
)
