"""Commands that start an agent with a new token, filled in; and the first reports that follow."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from kcover_portal.accounts.models import ApiToken
from kcover_portal.fleet.models import Agent, Node

MAX_REPORTED = 5  # nodes that are named


@dataclass(frozen=True, slots=True)
class Form:
    """One way to start an agent."""

    title: str | Promise
    command: str


def of(token: ApiToken, secret: str, *, url: str) -> list[Form]:
    """The ways to start an agent with the token; none if it is no agent's. A token of one node cannot enrol others."""
    if token.kind != ApiToken.Kind.AGENT or token.cluster is None:
        return []
    settings = [f"KCOVER_AGENT_URL={url}", f"KCOVER_AGENT_TOKEN={secret}"]
    if token.node:
        settings.append(f"NODE_NAME={token.node}")
    lines = " ".join(map(shlex.quote, settings))
    machine = Form(
        _("On a machine with the systemd unit"),
        f"(umask 077; printf '%s\\n' {lines} > /etc/kcover/agent.env)\nsystemctl enable --now kcover-agent",
    )
    node_name = "" if token.node else "NODE_NAME=$(hostname) "
    by_hand = Form(_("To try it, in a checkout"), f"{node_name}{lines} python -m agents")
    if token.node:
        return [machine, by_hand]
    name = shlex.quote(token.cluster.name)
    helm = Form(
        _("On every GPU node of a cluster, with Helm"),
        "kubectl create namespace kcover-system\n"
        f"kubectl -n kcover-system create secret generic kcover-agent-token --from-literal=token={secret}\n"
        "helm install kcover deploy/chart -n kcover-system --set agent.only=true"
        f" --set agent.url={shlex.quote(url)} --set cluster={name} --set agent.tokenSecret=kcover-agent-token",
    )
    return [helm, machine, by_hand]


@dataclass(frozen=True, slots=True)
class Enrolment:
    """The agents that reported since a token was created, with it or with a credential obtained by it.

    ``first``: the first of them; ``reported`` and ``expected``: how many nodes with GPUs report, and should. 0 if the
    portal knows of none.
    """

    first: Sequence[Agent]
    reported: int
    expected: int

    @property
    def is_complete(self) -> bool:
        """Returns whether nothing more is to be waited for."""
        return bool(self.first) and self.reported >= self.expected


def enrolment(token: ApiToken) -> Enrolment:
    """How far the nodes have come that can report with the token."""
    names = [token.node] if token.node else token.children.exclude(node="").values("node")
    reported = Agent.objects.filter(node__cluster=token.cluster, node__name__in=names, seen_at__gte=token.created_at)
    first = list(reported.select_related("node__cluster").order_by("seen_at")[:MAX_REPORTED])
    if token.node:
        return Enrolment(first, len(first), 1)
    nodes = Node.objects.filter(cluster=token.cluster, in_cluster=True, gpus__gt=0)
    return Enrolment(first, reported.filter(node__in=nodes).count(), nodes.count())
