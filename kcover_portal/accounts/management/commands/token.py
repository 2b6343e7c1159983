"""``manage.py token``: the credentials of programs and agents."""

import re
from argparse import ArgumentParser
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from django.utils import timezone

from kcover_portal.accounts import queries, services
from kcover_portal.accounts.models import ApiToken, User
from kcover_portal.config.log_format import printed
from kcover_portal.fleet.models import Cluster
from kcover_portal.lib.shell_actor import shell_actor

NODE = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
SPAN = re.compile(r"([1-9][0-9]{0,4})([dh])")


class Command(BaseCommand):
    """Creates, lists and revokes tokens. A secret is printed once; only its hash is stored."""

    help = "create, list and revoke the credentials of programs and agents"

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="create|revoke|rotate|list")
        create = verbs.add_parser("create", help="create a token and print it once, alone on one line")
        create.add_argument("--kind", required=True, help=" | ".join(ApiToken.Kind.values))
        create.add_argument("--cluster", help="the cluster it is valid for; default for agents: the only cluster")
        nodes = create.add_mutually_exclusive_group()
        nodes.add_argument("--node", default="", help="bind an agent token to this node; default: an enrolment token")
        nodes.add_argument("--nodes", metavar="FILE", help="a file with one node per line; prints node<TAB>token lines")
        create.add_argument("--source", default="", help="of kind source: the name of the source that it may feed")
        create.add_argument(
            "--scope", action="append", default=[], choices=services.SCOPES, help="extra permission: override guards"
        )
        create.add_argument("--owner", metavar="USER", help="who counts as the requester of its acts; default: nobody")
        create.add_argument(
            "--expires",
            metavar="90d",
            help="days (90d) or hours (12h) until expiry, or never; default: 90d, agents never",
        )
        create.add_argument(
            "--verb", dest="verbs", action="append", default=[], help="narrow what the kind may do; may be repeated"
        )
        create.add_argument("--network", action="append", default=[], help="allow this address or CIDR network only")
        create.add_argument("--name", default="", help="a description")
        revoke = verbs.add_parser("revoke", help="revoke a token")
        revoke.add_argument("prefix", help="the prefix shown by list")
        revoke.add_argument("--reason", default="")
        rotate = verbs.add_parser("rotate", help="print a new secret; the old one stays valid for the overlap")
        rotate.add_argument("prefix", help="the prefix shown by list")
        rotate.add_argument("--overlap", metavar="24h", default="24h", help="days (7d) or hours (12h); default: 24h")
        verbs.add_parser("list", help="list the tokens without their secrets")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            getattr(self, f"_{options['verb']}")(options)
        except services.Refused as error:
            raise CommandError(str(error)) from error

    def _create(self, options: dict[str, Any]) -> None:
        now = timezone.now()
        settings = {
            "cluster": _cluster(options["cluster"], kind=options["kind"]),
            "name": options["name"],
            "expires_at": _expiry(options["expires"], kind=options["kind"], now=now),
            "verbs": options["verbs"],
            "networks": options["network"],
            "scopes": options["scope"],
            "source": options["source"],
            "owner": _user(options["owner"]),
            "created_by": shell_actor(),
            "now": now,
        }
        if not options["nodes"]:
            if options["node"]:
                _check_nodes([options["node"]])
            _, secret = services.make_token(options["kind"], node=options["node"], **settings)
            self.stdout.write(secret)
            return
        nodes = _nodes(options["nodes"])
        with transaction.atomic():
            created = [(node, services.make_token(options["kind"], node=node, **settings)[1]) for node in nodes]
        for node, secret in created:
            self.stdout.write(f"{node}\t{secret}")

    def _rotate(self, options: dict[str, Any]) -> None:
        token = _find(options["prefix"])
        overlap = _span(options["overlap"], option="--overlap")
        _, secret = services.rotate(token, overlap=overlap, owner=None, actor=shell_actor(), now=timezone.now())
        self.stdout.write(secret)

    def _revoke(self, options: dict[str, Any]) -> None:
        token = _find(options["prefix"])
        services.revoke_token(token, actor=shell_actor(), reason=options["reason"], now=timezone.now())
        self.stdout.write(f"token {token.prefix} revoked")

    def _list(self, options: dict[str, Any]) -> None:
        now = timezone.now()
        for token in ApiToken.objects.select_related("cluster", "owner"):
            scope = " ".join(
                part
                for part in (token.cluster.name if token.cluster else "all clusters", token.node, token.source)
                if part
            )
            owner = f"owner {token.owner}" if token.owner else "no owner"
            used = f"used {token.last_used_at:%Y-%m-%d %H:%M}" if token.last_used_at else "unused"
            columns = (token.prefix, token.kind, scope, _state(token, now=now), token.name, owner, used)
            self.stdout.write(printed("\t".join(columns)))


def _state(token: ApiToken, *, now: datetime) -> str:
    if token.revoked_at:
        return "revoked"
    if token.expires_at is None:
        return "no expiry"
    return "expired" if token.expires_at <= now else f"expires {token.expires_at:%Y-%m-%d %H:%M}"


def _cluster(name: str | None, *, kind: str) -> Cluster | None:
    clusters = {cluster.name: cluster for cluster in Cluster.objects.all()}
    if name is not None:
        if name not in clusters:
            known = ", ".join(clusters) or "none yet (make one with: cluster add)"
            raise CommandError(f"unknown cluster {name}; known clusters: {known}")
        return clusters[name]
    if kind == ApiToken.Kind.AGENT and len(clusters) == 1:
        return next(iter(clusters.values()))
    return None


def _user(name: str | None) -> User | None:
    user = None if name is None else queries.find_user(name)
    if name is not None and user is None:
        raise CommandError(f"unknown user {name}")
    return user


def _find(prefix: str) -> ApiToken:
    found = list(ApiToken.objects.select_related("cluster").filter(prefix=prefix[: services.SHOWN_CHARACTERS]))
    if not found:
        raise CommandError(f"no token begins with {prefix}")
    if len(found) > 1:
        raise CommandError(f"{len(found)} tokens begin with {prefix}; use the console")
    return found[0]


def _expiry(text: str | None, *, kind: str, now: datetime) -> datetime | None:
    if text is None:
        return services.default_expiry(kind, now=now)
    return None if text == "never" else now + _span(text, option="--expires")


def _span(text: str, *, option: str) -> timedelta:
    span = SPAN.fullmatch(text)
    if span is None:
        raise CommandError(f"{option} {text!r} is invalid; use 90d for days or 12h for hours")
    number = int(span[1])
    return timedelta(days=number) if span[2] == "d" else timedelta(hours=number)


def _nodes(path: str) -> list[str]:
    """Reads node names from a file, one per line. Empty lines and comments (#) are skipped."""
    try:
        lines = [line.strip() for line in Path(path).read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"cannot read the list of nodes: {error}") from error
    nodes = [line for line in lines if line and not line.startswith("#")]
    if not nodes:
        raise CommandError(f"{path} contains no nodes")
    _check_nodes(nodes)
    return nodes


def _check_nodes(nodes: list[str]) -> None:
    seen: set[str] = set()
    for node in nodes:
        if not NODE.fullmatch(node):
            raise CommandError(f"{node!r} is not a node name; use lower-case letters, digits, '-' and '.'")
        if node in seen:
            raise CommandError(f"node {node} is listed twice")
        seen.add(node)
