"""Incidents, policies, users and their tokens, notification channels, and preflight runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar

from kcover.audit import subjects
from kcover.audit.base import Act, register
from kcover.audit.fleet import Change
from kcover.reasons import Reason


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentClosed(Act):
    """An incident was closed, by proof or by a person."""

    VERB: ClassVar[str] = "incident.closed"

    incident: int
    because: Reason
    node: str = ""

    @property
    def subject(self) -> str:
        """The incident."""
        return f"incident {self.incident}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyAct(Act):
    """An act on a policy. ``standby``: the policy is a WarmStandbyPolicy.

    ``reason``: a person's own words; ``because``: the portal's reason.
    """

    policy: str
    standby: bool
    revision: int
    reason: str = ""
    because: Reason | None = None

    @property
    def subject(self) -> str:
        """The policy."""
        return f"standby policy {self.policy}" if self.standby else f"policy {self.policy}"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyApplied(PolicyAct):
    """A revision was put into force."""

    VERB: ClassVar[str] = "policy.applied"

    document: Mapping[str, Any]


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDeleted(PolicyAct):
    """The policy was taken out of force; ``revision``: the one that was in force."""

    VERB: ClassVar[str] = "policy.deleted"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class FirstChoiceDismissed(Act):
    """An admin put off the choice of a first policy pack: nothing is done about faults until a policy is published."""

    VERB: ClassVar[str] = "policy.choice_dismissed"

    @property
    def subject(self) -> str:
        """The portal."""
        return "policy packs"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenAct(Act):
    """An act on a token, identified by the first characters of its secret.

    ``node``: the node of the agent that it is for.
    """

    token: str
    kind: str
    node: str = ""

    @property
    def subject(self) -> str:
        """The token."""
        return f"token {self.token}"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCreated(TokenAct):
    """A token was created."""

    VERB: ClassVar[str] = "token.created"

    name: str = ""
    source: str = ""
    owner: str = ""
    scopes: tuple[str, ...] = ()
    may: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    expires_at: datetime | None = None


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRotated(TokenAct):
    """A token was replaced by ``successor``; the old secret is valid until ``expires_at``."""

    VERB: ClassVar[str] = "token.rotated"

    successor: str
    expires_at: datetime


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRevoked(TokenAct):
    """A token was revoked. ``reason``: a person's own words; ``because``: why the portal revoked it."""

    VERB: ClassVar[str] = "token.revoked"

    reason: str = ""
    because: Reason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserAct(Act):
    """An act on a user."""

    user: str

    @property
    def subject(self) -> str:
        """The user."""
        return subjects.user(self.user)


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordChanged(UserAct):
    """A password was changed."""

    VERB: ClassVar[str] = "password.changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelAct(Act):
    """An act on a notification channel."""

    channel: str

    @property
    def subject(self) -> str:
        """The channel."""
        return f"channel {self.channel}"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelCreated(ChannelAct):
    """A channel was created. ``settings``: without secrets."""

    VERB: ClassVar[str] = "channel.created"

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelChanged(ChannelAct):
    """Settings of a channel were changed."""

    VERB: ClassVar[str] = "channel.changed"

    changed: Mapping[str, Change]
    reason: str = ""


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelDeleted(ChannelAct):
    """A channel was deleted with its routes."""

    VERB: ClassVar[str] = "channel.deleted"

    kind: str
    reason: str = ""


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelTested(ChannelAct):
    """A test message was requested."""

    VERB: ClassVar[str] = "channel.tested"


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteAct(ChannelAct):
    """An act on a route, which sends events of one cluster ("": all) from a minimum severity on to the channel."""

    route: int
    kinds: tuple[str, ...]
    cluster: str = ""
    least: str = ""


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class RouteCreated(RouteAct):
    """A route was created."""

    VERB: ClassVar[str] = "route.created"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class RouteDeleted(RouteAct):
    """A route was deleted."""

    VERB: ClassVar[str] = "route.deleted"

    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceRouteAct(ChannelAct):
    """An act on the route of a cluster's ``namespace``, or of those that match it, to a channel for owners of jobs."""

    route: int
    cluster: str
    namespace: str


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceRouteCreated(NamespaceRouteAct):
    """A namespace was bound to a channel."""

    VERB: ClassVar[str] = "namespace_route.created"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceRouteDeleted(NamespaceRouteAct):
    """A namespace is bound to the channel no more."""

    VERB: ClassVar[str] = "namespace_route.deleted"

    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightAct(Act):
    """The end of a preflight run: ``received`` of ``expected`` reports came. Each list holds only the first nodes."""

    run: int
    namespace: str
    workload: str
    received: int
    expected: int
    slow: tuple[str, ...] = ()
    abnormal: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()

    @property
    def subject(self) -> str:
        """The run."""
        return f"preflight run {self.run}"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightComplete(PreflightAct):
    """The run has its verdict."""

    VERB: ClassVar[str] = "preflight.complete"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightExpired(PreflightAct):
    """The run ended without a verdict."""

    VERB: ClassVar[str] = "preflight.expired"
