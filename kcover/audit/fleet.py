"""Clusters, their settings, pauses, maintenance windows and check runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kcover.audit.base import Act
from kcover.reasons import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A setting before and after a change, as plain JSON. A secret is only "" or "changed"."""

    before: Any
    after: Any


SECRET_CHANGED = Change(before="", after="changed")


class ClusterAct(Act):
    """An act on a cluster; ``cluster`` "": on the whole installation."""

    cluster: str

    @property
    def subject(self) -> str:
        return f"cluster {self.cluster}" if self.cluster else "installation"


class ModeAct(ClusterAct):
    """A change of the mode; ``before`` and ``mode``: the mode before and after it."""

    before: str
    mode: str
    reason: str = ""


class AutomationPaused(ModeAct, verb="automation.paused"):
    """Automation was paused."""


class AutomationResumed(ModeAct, verb="automation.resumed"):
    """Automation was resumed after a pause."""


class DatabaseDiverged(Act, verb="ledger.diverged", subject="installation"):
    """The database was restored or rewritten: it lacks what was published of the audit log at ``anchored_at``."""

    anchored_at: datetime
    because: tuple[Reason, ...]


class ClusterAdded(ClusterAct, verb="cluster.added"):
    """A cluster was registered. ``settings`` has no secrets."""

    settings: Mapping[str, Any] = field(default_factory=dict)


class ClusterAccessTested(ClusterAct, verb="cluster.tested"):
    """The access to a cluster was tested, perhaps before it was registered.

    ``server``: the address in the kubeconfig; "" for a registered cluster. ``missing``: features without their rights.
    ``because``: why the server was not reached.
    """

    server: str = ""
    reached: bool
    missing: tuple[str, ...] = ()
    because: tuple[Reason, ...] = ()


class ClusterKubeconfigSealed(ClusterAct, verb="cluster.kubeconfig_sealed"):
    """A worker encrypted a kubeconfig that came through a page with the engine's key.

    ``server``: its scheme, host and port; "" if the kubeconfig cannot be read. Without a ``cluster.added`` before it,
    something other than the page wrote the kubeconfig.
    """

    server: str = ""


class ClusterChanged(ClusterAct, verb="cluster.changed"):
    """Settings of a cluster were changed."""

    changed: Mapping[str, Change]
    reason: str = ""


class ActionLeaseMoved(ClusterAct, verb="cluster.lease_moved"):
    """The Lease of the portal that acts has another holder; "": it was released. ``own``: the holder is this portal."""

    before: str
    holder: str
    own: bool


class ClusterGuardsChanged(ClusterAct, verb="cluster.guards"):
    """Guards of a cluster were changed."""

    changed: Mapping[str, Change]
    reason: str = ""


class PendingChangeAct(ClusterAct):
    """An act on a change that loosens a limit and waits for another admin. ``change``: its id."""

    change: int
    changes: Mapping[str, Any]
    reason: str = ""


class ChangeRequested(PendingChangeAct, verb="change.requested"):
    """An admin requested a change that another admin must confirm. ``requesters``: who counts as the requester."""

    requesters: tuple[str, ...] = ()


class ChangeConfirmed(PendingChangeAct, verb="change.confirmed"):
    """Another admin confirmed the change; the entry of the change itself follows."""


class ChangeRejected(PendingChangeAct, verb="change.rejected"):
    """The change was rejected, or withdrawn by its requester."""


class ClusterRemoved(ClusterAct, verb="cluster.removed"):
    """A cluster was removed; its entries stay."""


class MaintenanceAct(Act, subject="maintenance {maintenance}"):
    """An act on a maintenance window."""

    maintenance: int


class MaintenanceOpened(MaintenanceAct, verb="maintenance.opened"):
    """A maintenance window was announced for a pool, a node, a ``scope`` or, with none of them, a whole cluster.

    ``scope``: the JSON of a ``Scope`` that is no single pool or node, with the first names. ``nodes``: how many it
    covered then. ``repeats``: the JSON of a ``Recurrence``; ``windows``: their number.
    """

    starts_at: datetime
    ends_at: datetime
    node: str = ""
    pool: str = ""
    scope: Mapping[str, Any] = field(default_factory=dict)
    nodes: int = 0
    reason: str = ""
    repeats: Mapping[str, Any] = field(default_factory=dict)
    windows: int = 1


class MaintenanceEnded(MaintenanceAct, verb="maintenance.ended"):
    """A maintenance window was ended early, or withdrawn before it began. ``windows``: with those that follow it."""

    node: str = ""
    reason: str = ""
    windows: int = 1


class CheckRunAct(Act, subject="check run {check_run}"):
    """An act on a check run."""

    check_run: int


class CheckRunRequested(CheckRunAct, verb="checks.requested"):
    """A check run was requested.

    ``nodes``: the first names; ``count``: the number of nodes; ``batch`` 0: all at the same time.
    """

    checks: tuple[str, ...]
    level: int
    batch: int
    nodes: tuple[str, ...]
    count: int


class CheckRunStopped(CheckRunAct, verb="checks.stopped"):
    """The check run was stopped: by a person, or (``because``) by the portal."""

    reason: str = ""
    because: Reason | None = None


class CheckRunFinished(CheckRunAct, verb="checks.finished"):
    """The check run is over.

    ``wrong``: what is wrong, by node, for the first ones; ``wrong_count``: the number of such nodes.
    """

    count: int
    wrong: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    wrong_count: int = 0
