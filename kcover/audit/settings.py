"""Incidents, policies, users and their tokens, notification channels, and preflight runs."""

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from typing import Any

from kcover.audit import subjects
from kcover.audit.base import Act
from kcover.audit.fleet import Change
from kcover.reasons import Reason


class IncidentClosed(Act, verb="incident.closed", subject="incident {incident}"):
    """An incident was closed, by proof or by a person."""

    incident: int
    because: Reason
    node: str = ""


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
        return f"standby policy {self.policy}" if self.standby else f"policy {self.policy}"


class PolicyApplied(PolicyAct, verb="policy.applied"):
    """A revision was put into force."""

    document: Mapping[str, Any]


class PolicyDeleted(PolicyAct, verb="policy.deleted"):
    """The policy was taken out of force; ``revision``: the one that was in force."""


class FirstChoiceDismissed(Act, verb="policy.choice_dismissed", subject="policy packs"):
    """An admin put off the choice of a first policy pack: nothing is done about faults until a policy is published."""


class TokenAct(Act, subject="token {token}"):
    """An act on a token, identified by the first characters of its secret.

    ``node``: the node of the agent that it is for.
    """

    token: str
    kind: str
    node: str = ""


class TokenCreated(TokenAct, verb="token.created"):
    """A token was created."""

    name: str = ""
    source: str = ""
    owner: str = ""
    scopes: tuple[str, ...] = ()
    may: tuple[str, ...] = ()
    networks: tuple[str, ...] = ()
    expires_at: datetime | None = None


class TokenRotated(TokenAct, verb="token.rotated"):
    """A token was replaced by ``successor``; the old secret is valid until ``expires_at``."""

    successor: str
    expires_at: datetime


class TokenRevoked(TokenAct, verb="token.revoked"):
    """A token was revoked. ``reason``: a person's own words; ``because``: why the portal revoked it."""

    reason: str = ""
    because: Reason | None = None


class UserAct(Act):
    """An act on a user."""

    user: str

    @property
    def subject(self) -> str:
        return subjects.user(self.user)


class PasswordChanged(UserAct, verb="password.changed"):
    """A password was changed."""


class ChannelAct(Act, subject="channel {channel}"):
    """An act on a notification channel."""

    channel: str


class ChannelCreated(ChannelAct, verb="channel.created"):
    """A channel was created. ``settings``: without secrets."""

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)


class ChannelChanged(ChannelAct, verb="channel.changed"):
    """Settings of a channel were changed."""

    changed: Mapping[str, Change]
    reason: str = ""


class ChannelDeleted(ChannelAct, verb="channel.deleted"):
    """A channel was deleted with its routes."""

    kind: str
    reason: str = ""


class ChannelTested(ChannelAct, verb="channel.tested"):
    """A test message was requested."""


class RouteAct(ChannelAct):
    """An act on a route, which sends events of one cluster ("": all) from a minimum severity on to the channel."""

    route: int
    kinds: tuple[str, ...]
    cluster: str = ""
    least: str = ""


class RouteCreated(RouteAct, verb="route.created"):
    """A route was created."""


class RouteDeleted(RouteAct, verb="route.deleted"):
    """A route was deleted."""

    reason: str = ""


class NamespaceRouteAct(ChannelAct):
    """An act on the route of a cluster's ``namespace``, or of those that match it, to a channel for owners of jobs."""

    route: int
    cluster: str
    namespace: str


class NamespaceRouteCreated(NamespaceRouteAct, verb="namespace_route.created"):
    """A namespace was bound to a channel."""


class NamespaceRouteDeleted(NamespaceRouteAct, verb="namespace_route.deleted"):
    """A namespace is bound to the channel no more."""

    reason: str = ""


class PreflightAct(Act, subject="preflight run {run}"):
    """The end of a preflight run: ``received`` of ``expected`` reports came. Each list holds only the first nodes."""

    run: int
    namespace: str
    workload: str
    received: int
    expected: int
    slow: tuple[str, ...] = ()
    abnormal: tuple[str, ...] = ()
    suspects: tuple[str, ...] = ()


class PreflightComplete(PreflightAct, verb="preflight.complete"):
    """The run has its verdict."""


class PreflightExpired(PreflightAct, verb="preflight.expired"):
    """The run ended without a verdict."""
