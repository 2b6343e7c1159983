"""``manage.py audit_stream``: the sinks of the audit stream."""

import getpass
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from kcover import reasons
from kcover_portal import encryption
from kcover_portal.audit_stream import queries, senders, services
from kcover_portal.audit_stream.models import Sink
from kcover_portal.audit_stream.queries import topics
from kcover_portal.audit_stream.services import kinds
from kcover_portal.config.log_format import printed
from kcover_portal.lib.errors import FieldError
from kcover_portal.lib.shell_actor import shell_actor


class Command(BaseCommand):
    """Lists, adds, changes and removes sinks, and sends what they have not received."""

    help = (
        "list: the sinks and how far they are behind. add NAME --kind KIND --address ADDRESS: send what happens from "
        "now on, with --whole everything. enable, disable, remove NAME. send NAME: send now, in this process. resend, "
        "drop NAME: what its receiver refused for good"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("verb", choices=("list", "add", "enable", "disable", "remove", "send", "resend", "drop"))
        parser.add_argument("name", nargs="?", default="")
        parser.add_argument("--kind", choices=Sink.Kind.values, default=Sink.Kind.SYSLOG.value)
        parser.add_argument(
            "--address",
            default="",
            help="file: its name in KCOVER_AUDIT_FOLDER; syslog: tls://HOST:PORT; mail: recipients; others: URL",
        )
        parser.add_argument(
            "--topic", action="append", choices=sorted(topics.TOPICS), help="add: what it receives; default: audit"
        )
        parser.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="add: tenant, user (loki); region (s3); vendor (webhooks); project, states and others (jira); "
            "reply_to, senders (mail); vendors (of the repairs in tickets)",
        )
        parser.add_argument("--no-secret", action="store_true", help="add: a Loki that asks for no token")
        parser.add_argument(
            "--incoming", action="store_true", help="add: also ask for the secret of what arrives (jira, mail)"
        )
        parser.add_argument("--whole", action="store_true", help="add: also send the entries of the past")
        parser.add_argument("--reason", default="", help="recorded in the audit log")

    def handle(self, *args: Any, **options: Any) -> None:
        """Prints one line per sink. Fails for an unknown sink or an invalid setting."""
        if options["verb"] == "list":
            self._list()
            return
        try:
            self._act(options)
        except FieldError as error:
            raise CommandError(f"{error.field}: {error.reason}".removeprefix(": ")) from error

    def _act(self, options: dict[str, Any]) -> None:
        verb, name, now = options["verb"], options["name"], timezone.now()
        actor, reason = shell_actor(), options["reason"]
        if verb == "add":
            given = {"address": options["address"], "options": _pairs(options["set"])}
            if options["topic"]:
                given["topics"] = options["topic"]
            if options["kind"] in kinds.KINDS_WITH_SECRET and not options["no_secret"]:
                given["secret"] = _secret("Secret: ")
            if options["incoming"]:
                given["incoming_secret"] = _secret("Secret for incoming messages: ")
            services.SINKS.make(
                Sink(name=name, kind=options["kind"]), {**given, "whole": options["whole"]}, actor=actor, now=now
            )
            return
        sink = Sink.objects.filter(name=name).first()
        if sink is None:
            raise CommandError(str(reasons.of("sink_unknown", sink=repr(name))))
        if verb == "remove":
            services.SINKS.delete(sink, actor=actor, reason=reason, now=now)
        elif verb == "send":
            self._send(sink)
        elif verb == "resend":
            self._resend(sink, actor=actor)
        elif verb == "drop":
            dropped = services.drop(sink, actor=actor, reason=reason, now=now)
            self.stdout.write(f"{dropped} records dropped")
        else:
            services.SINKS.change(sink, {"enabled": verb == "enable"}, actor=actor, reason=reason, now=now)

    def _send(self, sink: Sink) -> None:
        sent = 0
        while more := services.deliver(sink.pk, clock=timezone.now):
            sent += more
        sink.refresh_from_db()
        self.stdout.write(f"{sent} records sent")
        if sink.why is not None:
            raise CommandError(str(sink.why))

    def _resend(self, sink: Sink, *, actor: str) -> None:
        try:
            sent = services.send_again(sink, actor=actor, now=timezone.now())
        except (senders.DeliveryError, encryption.SecretUnreadable) as error:
            raise CommandError(str(error.reason)) from error
        self.stdout.write(f"{sent} records sent")

    def _list(self) -> None:
        now, heads = timezone.now(), queries.Heads()
        for sink in queries.sinks():
            behind = queries.lag(sink, now=now, heads=heads)
            state = "enabled" if sink.enabled else "disabled"
            why = sink.why or queries.set_aside(sink)
            problem = f": {printed(str(why))}" if why else ""
            self.stdout.write(
                f"{sink.name}: {sink.kind} {sink.shown_address}, {state}, {behind.records} records behind, "
                f"the oldest {reasons.span(behind.age)} old{problem}"
            )


def _pairs(texts: list[str]) -> dict[str, str]:
    """The options from ``NAME=VALUE``. Raises CommandError."""
    found = {}
    for text in texts:
        name, is_pair, value = text.partition("=")
        if not is_pair:
            raise CommandError(f"--set {text!r} is invalid; write NAME=VALUE")
        found[name] = value
    return found


def _secret(prompt: str) -> str:
    """The secret from a prompt, or from standard input; an argument would be visible to others."""
    return getpass.getpass(prompt) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\n")
