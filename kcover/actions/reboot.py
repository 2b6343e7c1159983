"""reboot: request one reboot that ends a known boot, and wait until the node reports another boot."""

from dataclasses import dataclass
from datetime import datetime
from typing import Self

from kcover.actions import attributes, record
from kcover.actions.record import ValueFormat, hidden, shown
from kcover.actions.spec import ActionSpec, Attributes, PolicyAction, RuleOptions, Stage
from kcover.reasons import Reason
from kcover.sentences.i18n import gettext_noop as _
from kcover.values import durations


@dataclass(frozen=True, slots=True, kw_only=True)
class Args(record.Args):
    """``wait_seconds``: the time between the drain and the reboot."""

    wait_seconds: int = shown(_("Wait before the reboot"), ValueFormat.SECONDS, default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(record.JobsProgress):
    """``boot_id``: the boot that the reboot must end; it is known however long the plan waits before.

    ``driver``: how the node is rebooted, chosen before the request. ``was_ready``: the node was Ready at that time.
    ``request``: what was requested. ``evidence``: what became of it, since the step first waited (``evidence_since``).
    """

    boot_id: str = shown(_("Boot ID"), default="", kept=True)
    driver: str = shown(
        _("Reboot via"),
        ValueFormat.CHOICE,
        default="",
        choices={"agent": _("the node's agent"), "job": _("a job on the node")},
    )
    was_ready: bool = hidden(default=False)
    request: Reason | None = shown(_("Requested via"), ValueFormat.REASON, default=None)
    requested_at: datetime | None = shown(_("Requested at"), ValueFormat.MOMENT, default=None)
    evidence: Reason | None = shown(_("Collected evidence"), ValueFormat.REASON, default=None, kept=True)
    evidence_since: datetime | None = hidden(default=None, kept=True)

    @classmethod
    def initial(cls, *, boot_id: str) -> Self:
        """A reboot may end only the boot in which its rescue was opened."""
        return cls(boot_id=boot_id)

    @property
    def old_boot(self) -> str:
        """The boot that the job ends."""
        return self.boot_id

    @property
    def committed(self) -> bool:
        """A requested reboot is always completed."""
        return self.request is not None


def _plan(attribute: Attributes, _options: RuleOptions) -> Args:
    wait = durations.parse(attribute.get("waittime", ""))
    return Args(wait_seconds=int(wait.total_seconds()) if wait else 0)


SPEC = ActionSpec(
    name="reboot",
    title=_("Reboot"),
    place=(Stage.REPAIR, 2),
    policy=PolicyAction(
        name="reboot",
        own=False,
        attributes={"waittime": attributes.wait, "unCordon": attributes.truth("unCordon")},
        needs=(("drain",),),
    ),
    implies=("cordon", "ready", "verify"),
    plan=_plan,
    args=Args,
    progress=Progress,
    isolates=True,
    takes_work_away=True,
    mends=True,
    ends_boot=True,
    destroys_evidence=True,
    request_key="reboot",
)
