"""``manage.py user``: the people who can sign in."""

import getpass
import secrets
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.urls import reverse
from django.utils import timezone

from kcover_portal.accounts import queries, services
from kcover_portal.accounts.models import RoleBinding, User
from kcover_portal.accounts.services import invitations, oidc, second_factors
from kcover_portal.config.oidc_settings import Oidc
from kcover_portal.fleet.models import Cluster
from kcover_portal.lib.shell_actor import shell_actor


class Command(BaseCommand):
    """Creates, invites, lists, disables, enables and links users, changes passwords and resets second factors."""

    help = "create, invite, list, disable and enable users"

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(
            dest="verb",
            required=True,
            metavar="create|invite|password|reset-factors|disable|enable|link|unlink|list",
        )
        create = verbs.add_parser("create", help="create a user; prompts for or prints the password")
        create.add_argument("name")
        create.add_argument("--role", required=True, help=" | ".join(queries.ROLES))
        create.add_argument("--cluster", help="limit the role to this cluster; default: all clusters")
        create.add_argument("--pool", default="", help="limit the role to the nodes of this pool of the cluster")
        invite = verbs.add_parser(
            "invite", help="create a user without a password, or a new link for an invited user; prints the link"
        )
        invite.add_argument("name")
        invite.add_argument("--role", help=f"of a new user: {' | '.join(queries.ROLES)}")
        invite.add_argument("--cluster", help="limit the role to this cluster; default: all clusters")
        password = verbs.add_parser("password", help="change a user's password")
        password.add_argument("name")
        for verb in (create, password):
            verb.add_argument("--password-file", help="a file whose first line is the password; - for standard input")
        disable = verbs.add_parser("disable", help="end the user's sessions and refuse sign-ins and tokens")
        enable = verbs.add_parser("enable", help="allow sign-ins and tokens again")
        factors = verbs.add_parser("reset-factors", help="remove the user's second factors and end their sessions")
        for parser in (disable, enable, factors):
            parser.add_argument("name")
            parser.add_argument("--reason", default="")
        link = verbs.add_parser("link", help="let a person of the identity provider sign in to the account")
        unlink = verbs.add_parser("unlink", help="remove the link and end its sessions")
        for parser in (link, unlink):
            parser.add_argument("name")
            parser.add_argument("--subject", required=True, help="the claim sub of the person's ID token")
            parser.add_argument("--issuer", help="default: KCOVER_OIDC_ISSUER")
            parser.add_argument("--reason", default="")
        verbs.add_parser("list", help="list the users and their roles")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            getattr(self, f"_{options['verb'].replace('-', '_')}")(options)
        except services.Refused as error:
            raise CommandError(str(error)) from error

    def _create(self, options: dict[str, Any]) -> None:
        name, role = options["name"], options["role"]
        if queries.find_user(name):
            raise CommandError(f"user {name} already exists; change the password with: user password {name}")
        password, generated = _password(options["password_file"])
        services.make_user(
            name,
            password=password,
            role=role,
            cluster=_cluster(options["cluster"]),
            pool=options["pool"],
            created_by=shell_actor(),
            now=timezone.now(),
        )
        self.stdout.write(f"user {name} created with role {role}")
        self._show(password, generated)

    def _invite(self, options: dict[str, Any]) -> None:
        name, actor, now = options["name"], shell_actor(), timezone.now()
        user = queries.find_user(name)
        if user is not None:
            invitation, secret = invitations.invite(user, actor=actor, now=now)
        elif options["role"] is None:
            raise CommandError(f"user {name} is new; name a role with --role {'|'.join(queries.ROLES)}")
        else:
            cluster = _cluster(options["cluster"])
            invitation, secret = invitations.invite_new(
                name, role=options["role"], cluster=cluster, actor=actor, now=now
            )
        path = f"{reverse('console:invitation')}#{secret}"
        self.stdout.write(f"invitation for {name}, valid until {invitation.expires_at:%Y-%m-%d %H:%M} UTC:")
        self.stdout.write(f"{settings.KCOVER_PUBLIC_URL}{path}")

    def _reset_factors(self, options: dict[str, Any]) -> None:
        user = _user(options["name"])
        second_factors.reset(user, actor=shell_actor(), now=timezone.now(), reason=options["reason"])
        self.stdout.write(f"second factors of {user.username} removed")

    def _disable(self, options: dict[str, Any]) -> None:
        user = _user(options["name"])
        services.disable(user, actor=shell_actor(), now=timezone.now(), reason=options["reason"])
        self.stdout.write(f"user {user.username} disabled")

    def _enable(self, options: dict[str, Any]) -> None:
        user = _user(options["name"])
        services.enable(user, actor=shell_actor(), now=timezone.now(), reason=options["reason"])
        self.stdout.write(f"user {user.username} enabled")

    def _password(self, options: dict[str, Any]) -> None:
        user = _user(options["name"])
        password, generated = _password(options["password_file"])
        services.set_password(user, password, actor=shell_actor(), now=timezone.now())
        self.stdout.write(f"password of {user.username} changed")
        self._show(password, generated)

    def _link(self, options: dict[str, Any]) -> None:
        user, issuer = _user(options["name"]), _issuer(options["issuer"])
        oidc.link(user, issuer=issuer, subject=options["subject"], reason=options["reason"], **_by_shell())
        self.stdout.write(f"user {user.username} linked to {options['subject']} of {issuer}")

    def _unlink(self, options: dict[str, Any]) -> None:
        user, issuer = _user(options["name"]), _issuer(options["issuer"])
        oidc.unlink(user, issuer=issuer, subject=options["subject"], reason=options["reason"], **_by_shell())
        self.stdout.write(f"user {user.username} unlinked from {options['subject']} of {issuer}")

    def _list(self, options: dict[str, Any]) -> None:
        for user in User.objects.prefetch_related("bindings__cluster").order_by("username"):
            roles = [
                f"{binding.role} in {binding.cluster or 'all clusters'}{binding.pool and f' pool {binding.pool}'}"
                + (" (single sign-on)" if binding.source == RoleBinding.Source.OIDC else "")
                for binding in sorted(user.bindings.all(), key=lambda row: (str(row.cluster or ""), row.pool, row.role))
            ]
            state = "" if user.is_active else " (inactive)"
            self.stdout.write(f"{user.username}{state}: {', '.join(roles) or 'no role'}")

    def _show(self, password: str, generated: bool) -> None:
        if generated:
            self.stdout.write(f"password: {password}")


def _user(name: str) -> User:
    user = queries.find_user(name)
    if user is None:
        raise CommandError(f"unknown user {name}")
    return user


def _issuer(given: str | None) -> str:
    client: Oidc | None = settings.KCOVER_OIDC
    if not given and client is None:
        raise CommandError("single sign-on is not configured; write --issuer")
    return given or (client.issuer if client else "")


def _by_shell() -> dict[str, Any]:
    return {"actor": shell_actor(), "now": timezone.now()}


def _cluster(name: str | None) -> Cluster | None:
    if name is None:
        return None
    cluster = Cluster.objects.filter(name=name).first()
    if cluster is None:
        raise CommandError(f"unknown cluster {name}; known clusters: {_known_clusters()}")
    return cluster


def _known_clusters() -> str:
    return ", ".join(Cluster.objects.values_list("name", flat=True)) or "none yet (make one with: cluster add)"


def _password(path: str | None) -> tuple[str, bool]:
    """Returns the password, and whether it was generated here and must be shown."""
    if path == "-":
        return sys.stdin.readline().rstrip("\r\n"), False
    if path:
        try:
            return Path(path).read_text(encoding="utf-8").split("\n")[0].rstrip("\r"), False
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(f"cannot read the password file: {error}") from error
    if sys.stdin.isatty():
        typed = getpass.getpass("Password (empty: generate one): ")
        if typed and typed != getpass.getpass("Repeat the password: "):
            raise CommandError("the passwords differ")
        if typed:
            return typed, False
    return secrets.token_urlsafe(12), True
