"""Create, change and delete sources. Every act is in the audit log; tokens are not."""

from collections.abc import Collection, Mapping
from datetime import datetime
from itertools import count
from typing import Any, Final

from django.utils.translation import gettext_lazy as _

from kcover import audit, reasons
from kcover.actions import attributes
from kcover.actions.moved_jobs import SOURCE
from kcover.sources import settings
from kcover.sources.observation import Unreadable
from kcover_portal import encryption
from kcover_portal.accounts.models import ApiToken, Verb
from kcover_portal.accounts.services import tokens
from kcover_portal.fleet.models import Cluster
from kcover_portal.lib import doorbell, stored_secrets
from kcover_portal.lib.errors import FieldError
from kcover_portal.policies import queries as policies
from kcover_portal.settings_rows import Flag, Given, Pairs, Resource, Secret, Text
from kcover_portal.sources.models import Source

ADDRESS: Final = ("url", "token")  # columns that may also be given as settings
ASKED: Final = ("query", "node_label")  # settings of Prometheus that change what is read
SYSTEM: Final = "system"


def make_watched_sources(now: datetime) -> None:
    """Creates the sources that exist for each cluster, where they are missing."""
    have = set(Source.objects.filter(kind__in=settings.WATCHED).values_list("cluster", "kind"))
    missing = [
        (cluster, kind)
        for cluster in Cluster.objects.order_by("pk")
        for kind in settings.WATCHED
        if (cluster.pk, kind) not in have
    ]
    if not missing:
        return
    taken = set(Source.objects.values_list("name", flat=True))
    rows = []
    for cluster, kind in missing:
        usual = f"{cluster.name}-{kind}"
        name = (
            usual
            if usual not in taken
            else next(free for number in count(2) if (free := f"{usual}-{number}") not in taken)
        )
        taken.add(name)
        rows.append(Source(name=name, kind=kind, cluster=cluster, created_by=SYSTEM, created_at=now))
    Source.objects.bulk_create(rows, ignore_conflicts=True)


def note_error(source: Source, reason: reasons.Reason | None, *, now: datetime) -> None:
    """Stores why a source could not be read; None after it could."""
    if reason is None:
        Source.objects.filter(pk=source.pk).update(error={}, error_at=None, last_contact_at=now)
    else:
        Source.objects.filter(pk=source.pk).update(error=reason.to_json(), error_at=now)
    doorbell.publish("source", source.pk)


class _Sources(Resource[Source]):
    """Sources of faults."""

    def unknown_kind(self, kind: str) -> FieldError:
        """The error for a kind of which people make no sources; those of a watch exist for each cluster."""
        if kind in settings.WATCHED:
            return FieldError("kind", reasons.of("source_builtin_kind", kind=kind))
        return super().unknown_kind(kind)

    def read(self, kind: str, given: Given) -> Given:
        return _with_address(kind, given)

    def check(self, row: Source, given: Given) -> None:
        """Raises FieldError unless settings, address and token fit the kind of the source."""
        try:
            row.settings = settings.read(row.kind, row.settings)
        except Unreadable as error:
            raise FieldError(f"settings/{error.path}", error.reason) from error
        missing = next((name for name in settings.REQUIRED.get(row.kind, ()) if name not in row.settings), None)
        if missing:
            raise FieldError(f"settings/{missing}", reasons.of("source_setting_missing", kind=row.kind, name=missing))
        _check_address(row)
        if encryption.is_set(row, "token") and row.kind not in settings.ADDRESSED:
            raise FieldError("token", reasons.of("source_token_unused", kind=row.kind))

    def before_change(self, row: Source, before: Given, *, actor: str, now: datetime) -> Collection[str]:
        """Reads the source again at once, and Prometheus from the start if it was asked something else."""
        if not row.is_pulled:
            return ()
        row.due_at, row.attempts = None, 0
        row.cursor = {} if row.kind == Source.Kind.PROMETHEUS and _asks_other(row, before) else row.cursor
        return ("due_at", "attempts", "cursor")

    def may_follow(self, row: Source, before: Given) -> bool:
        """Returns whether the stored token goes to the same server, and not to one that now may be anybody."""
        same = stored_secrets.server(before["url"]) == stored_secrets.server(row.url)
        return same and bool(before["settings"].get("insecure") or not row.settings.get("insecure"))

    def before_delete(self, row: Source, *, actor: str, reason: str, now: datetime) -> Mapping[str, Any]:
        """Revokes the tokens of a source; incidents that it opened stay.

        Raises FieldError for a source that exists for each cluster, and while a rule in force names the source.
        """
        if row.is_builtin:
            raise FieldError("", reasons.of("source_builtin", source=row.name), conflict=True)
        rules = policies.rules_naming(SOURCE, row.name)
        if rules:
            raise FieldError("", reasons.of("source_in_use", source=row.name, rules=", ".join(rules)), conflict=True)
        for token in ApiToken.objects.filter(kind=ApiToken.Kind.SOURCE, source=row.name, revoked_at=None):
            tokens.revoke_token(token, actor=actor, reason=reason, now=now)
        return {}


def _with_address(kind: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The columns, with ``url`` and ``token`` taken out of the settings, where they may be given too.

    Raises FieldError if they are given twice.
    """
    inside = given.get("settings")
    if kind not in settings.ADDRESSED or not isinstance(inside, Mapping):
        return dict(given)
    address = {name: inside[name] for name in ADDRESS if isinstance(inside.get(name), str)}
    for name in address:
        if given.get(name):
            twice = reasons.of("one_of_parameters", first=name, second=f"settings/{name}")
            raise FieldError(f"settings/{name}", twice)
    return {**given, **address, "settings": {name: inside[name] for name in inside if name not in address}}


def _check_address(row: Source) -> None:
    if row.kind not in settings.ADDRESSED:
        if row.url:
            raise FieldError("url", reasons.of("source_url_unused", kind=row.kind))
        return
    if not row.url:
        raise FieldError("url", reasons.of("source_url_missing", kind=row.kind))
    if refusal := attributes.url(row.url):
        raise FieldError("url", refusal)


def _asks_other(row: Source, before: Mapping[str, Any]) -> bool:
    """Returns whether the answers are about something else than before. How often it is asked changes none."""
    then, settings_now = before["settings"], row.settings
    return row.url != before["url"] or any(then.get(name) != settings_now.get(name) for name in ASKED)


SOURCES: Final = _Sources(
    model=Source,
    noun="source",
    kinds=(*settings.PUSHED, *settings.PULLED),
    verb=Verb.CONFIGURE,
    columns=(
        Text(
            name="url",
            label=_("Address"),
            option="the address that the portal reads",
            kinds=settings.ADDRESSED,
            most=1000,
            kept=True,
        ),
        Secret(
            name="token",
            label=_("Token"),
            hint=_("Sent as a bearer token. Never shown again."),
            kinds=settings.ADDRESSED,
            most=4_000,
        ),
        Pairs(name="settings", label=_("Settings"), keys=lambda kind: settings.SETTINGS[kind]),
        Flag(name="enabled", label=_("Enabled")),
    ),
    related=("cluster",),
    has_cluster=True,
    created=audit.SourceCreated,
    changed=audit.SourceChanged,
    deleted=audit.SourceDeleted,
    name_invalid=reasons.of("source_name_invalid"),
    name_taken=lambda name: reasons.of("source_exists", source=name),
    rings="source",
)
