"""Clusters, their settings, pauses, maintenance windows and check runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from kcover.audit.base import Act, register
from kcover.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A setting before and after a change, as plain JSON. A secret is only "" or "changed"."""

    before: Any
    after: Any


SECRET_CHANGED = Change(before="", after="changed")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAct(Act):
    """An act on a cluster; ``cluster`` "": on the whole installation."""

    cluster: str

    @property
    def subject(self) -> str:
        """The cluster."""
        return f"cluster {self.cluster}" if self.cluster else "installation"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeAct(ClusterAct):
    """A change of the mode; ``before`` and ``mode``: the mode before and after it."""

    before: str
    mode: str
    reason: str = ""


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class AutomationPaused(ModeAct):
    """Automation was paused."""

    VERB: ClassVar[str] = "automation.paused"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class AutomationResumed(ModeAct):
    """Automation was resumed after a pause."""

    VERB: ClassVar[str] = "automation.resumed"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseDiverged(Act):
    """The database was restored or rewritten: it lacks what was published of the audit log at ``anchored_at``."""

    VERB: ClassVar[str] = "ledger.diverged"

    anchored_at: datetime
    because: tuple[Reason, ...]

    @property
    def subject(self) -> str:
        """The installation."""
        return "installation"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAdded(ClusterAct):
    """A cluster was registered. ``settings`` has no secrets."""

    VERB: ClassVar[str] = "cluster.added"

    settings: Mapping[str, Any] = field(default_factory=dict)


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccessTested(ClusterAct):
    """The access to a cluster was tested, perhaps before it was registered.

    ``server``: the address in the kubeconfig; "" for a registered cluster. ``missing``: features without their rights.
    ``because``: why the server was not reached.
    """

    VERB: ClassVar[str] = "cluster.tested"

    server: str = ""
    reached: bool
    missing: tuple[str, ...] = ()
    because: tuple[Reason, ...] = ()


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterKubeconfigSealed(ClusterAct):
    """A worker encrypted a kubeconfig that came through a page with the engine's key.

    ``server``: its scheme, host and port; "" if the kubeconfig cannot be read. Without a ``cluster.added`` before it,
    something other than the page wrote the kubeconfig.
    """

    VERB: ClassVar[str] = "cluster.kubeconfig_sealed"

    server: str = ""


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChanged(ClusterAct):
    """Settings of a cluster were changed."""

    VERB: ClassVar[str] = "cluster.changed"

    changed: Mapping[str, Change]
    reason: str = ""


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class ActionLeaseMoved(ClusterAct):
    """The Lease of the portal that acts has another holder; "": it was released. ``own``: the holder is this portal."""

    VERB: ClassVar[str] = "cluster.lease_moved"

    before: str
    holder: str
    own: bool


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterGuardsChanged(ClusterAct):
    """Guards of a cluster were changed."""

    VERB: ClassVar[str] = "cluster.guards"

    changed: Mapping[str, Change]
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingChangeAct(ClusterAct):
    """An act on a change that loosens a limit and waits for another admin. ``change``: its id."""

    change: int
    changes: Mapping[str, Any]
    reason: str = ""


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRequested(PendingChangeAct):
    """An admin requested a change that another admin must confirm. ``requesters``: who counts as the requester."""

    VERB: ClassVar[str] = "change.requested"

    requesters: tuple[str, ...] = ()


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeConfirmed(PendingChangeAct):
    """Another admin confirmed the change; the entry of the change itself follows."""

    VERB: ClassVar[str] = "change.confirmed"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRejected(PendingChangeAct):
    """The change was rejected, or withdrawn by its requester."""

    VERB: ClassVar[str] = "change.rejected"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRemoved(ClusterAct):
    """A cluster was removed; its entries stay."""

    VERB: ClassVar[str] = "cluster.removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceAct(Act):
    """An act on a maintenance window."""

    maintenance: int

    @property
    def subject(self) -> str:
        """The window."""
        return f"maintenance {self.maintenance}"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceOpened(MaintenanceAct):
    """A maintenance window was announced for a pool, a node, a ``scope`` or, with none of them, a whole cluster.

    ``scope``: the JSON of a ``kcover.scopes.Scope`` that is no single pool or node, with the first names. ``nodes``:
    how many it covered then. ``repeats``: the JSON of a ``kcover.recurrence.Recurrence``; ``windows``: their number.
    """

    VERB: ClassVar[str] = "maintenance.opened"

    starts_at: datetime
    ends_at: datetime
    node: str = ""
    pool: str = ""
    scope: Mapping[str, Any] = field(default_factory=dict)
    nodes: int = 0
    reason: str = ""
    repeats: Mapping[str, Any] = field(default_factory=dict)
    windows: int = 1


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceEnded(MaintenanceAct):
    """A maintenance window was ended early, or withdrawn before it began. ``windows``: with those that follow it."""

    VERB: ClassVar[str] = "maintenance.ended"

    node: str = ""
    reason: str = ""
    windows: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRunAct(Act):
    """An act on a check run."""

    check_run: int

    @property
    def subject(self) -> str:
        """The check run."""
        return f"check run {self.check_run}"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRunRequested(CheckRunAct):
    """A check run was requested.

    ``nodes``: the first names; ``count``: the number of nodes; ``batch`` 0: all at the same time.
    """

    VERB: ClassVar[str] = "checks.requested"

    checks: tuple[str, ...]
    level: int
    batch: int
    nodes: tuple[str, ...]
    count: int


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRunStopped(CheckRunAct):
    """The check run was stopped: by a person, or (``because``) by the portal."""

    VERB: ClassVar[str] = "checks.stopped"

    reason: str = ""
    because: Reason | None = None


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRunFinished(CheckRunAct):
    """The check run is over.

    ``wrong``: what is wrong, by node, for the first ones; ``wrong_count``: the number of such nodes.
    """

    VERB: ClassVar[str] = "checks.finished"

    count: int
    wrong: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    wrong_count: int = 0
