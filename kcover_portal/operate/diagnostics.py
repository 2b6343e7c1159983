"""A bundle of facts about this installation for whoever helps with it: state and counts, no secrets.

Nothing in it is a credential, a password, a path of an outside address, a person's name or a text that people wrote.
"""

import io
import json
import os
import platform
import zipfile
from collections.abc import Callable, Mapping
from datetime import datetime
from importlib import metadata
from typing import Any, Final
from urllib.parse import urlsplit

from django.apps import apps
from django.db import connection, transaction
from django.db.migrations.recorder import MigrationRecorder
from django.db.models import Count

from kcover import reasons
from kcover_portal.audit_stream import queries as audit_stream
from kcover_portal.config import env, telemetry_settings
from kcover_portal.config.setting_values import Variable
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Agent, Node
from kcover_portal.incidents.models import Incident
from kcover_portal.ledger.models import Chain, Entry
from kcover_portal.notify.models import Channel, Delivery
from kcover_portal.operate import health, metrics
from kcover_portal.rescue.models import Rescue
from kcover_portal.sources.models import Source

MAX_ENTRIES: Final = 1000  # newest entries of the audit log
MAX_ROWS: Final = 500  # of each other list
EXACT_COUNTS: Final = 1_000_000  # rows; larger tables are estimated


def bundle(*, now: datetime, environ: Mapping[str, str] = os.environ) -> bytes:
    """Returns a zip file. A part that cannot be collected is a file with the error instead."""
    parts: dict[str, Callable[[], str]] = {
        "about.json": lambda: _json(_about(now)),
        "settings.json": lambda: _json(_settings(environ)),
        "health.json": lambda: _json(_health(now)),
        "metrics.txt": lambda: metrics.render().decode(),
        "tables.json": lambda: _json(_tables()),
        "migrations.json": lambda: _json(
            sorted("/".join(each) for each in MigrationRecorder(connection).applied_migrations())
        ),
        "clusters.json": lambda: _json([_cluster(row, now=now) for row in fleet.clusters()[:MAX_ROWS]]),
        "sources.json": lambda: _json([_source(row) for row in Source.objects.select_related("cluster")[:MAX_ROWS]]),
        "channels.json": lambda: _json([_channel(row) for row in Channel.objects.all()[:MAX_ROWS]]),
        "sinks.json": lambda: _json(_sinks(now)),
        "rescues.json": lambda: _json(_rescues()),
        "audit.jsonl": _audit,
        "packages.txt": _packages,
    }
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, collect in parts.items():
            try:
                with transaction.atomic():
                    text = collect()
            except Exception as error:  # the bundle is most useful where something is broken
                name, text = f"{name}.error", type(error).__name__
            archive.writestr(zipfile.ZipInfo(f"kcover-diagnostics/{name}", now.timetuple()[:6]), text)
    return whole.getvalue()


def _json(value: object) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False, default=str) + "\n"


def _about(now: datetime) -> dict[str, Any]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT version()" if connection.vendor == "postgresql" else "SELECT sqlite_version()")
        version = str(cursor.fetchone()[0])
    return {
        "at": now.isoformat(),
        "portal": telemetry_settings.release(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "database": {"kind": connection.vendor, "version": version},
    }


def _settings(environ: Mapping[str, str]) -> dict[str, str]:
    return {variable.name: _setting(variable, environ) for variable in env.VARIABLES}


def _setting(variable: Variable, environ: Mapping[str, str]) -> str:
    """The value as it may leave the installation: hosts of addresses, names of programs, and no secrets."""
    if variable.secret and environ.get(f"{variable.name}_FILE"):
        return "set by a file"
    text = environ.get(variable.name, "")
    if not text:
        return "default"
    if variable.secret:
        return "set"
    if variable.name.endswith("_COMMAND"):
        return f"{text.split()[0]} …"
    return host if (host := _host(text)) else text


def _host(url: str) -> str:
    """``https://HOST/…`` of an address, without what may be a key; "" for another text."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.hostname}/…" if parts.scheme and parts.hostname else ""
    except ValueError:
        return "…"


def _health(now: datetime) -> list[dict[str, Any]]:
    """Which checks fail. Their texts stay here, because they quote other systems."""
    return [{"check": each.name, "well": each.well, "needed": each.needed} for each in health.findings(now=now)]


def _code(because: reasons.Reason | None) -> str:
    return because.code if because is not None else ""


def _tables() -> dict[str, Any]:
    """The number of rows by table; of a large table of PostgreSQL the database's own estimate."""
    estimates: dict[str, int] = {}
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT relname, reltuples::bigint FROM pg_class WHERE relkind = 'r'")
            estimates = dict(cursor.fetchall())
    counts = {}
    for model in apps.get_models():
        estimate = estimates.get(model._meta.db_table, 0)
        exact = estimate < EXACT_COUNTS
        counts[model._meta.db_table] = model._default_manager.count() if exact else f"about {estimate}"
    return counts


def _cluster(row: Any, *, now: datetime) -> dict[str, Any]:
    nodes = Node.objects.filter(cluster=row, gone_at=None, in_cluster=True)
    agents = Agent.objects.filter(node__cluster=row, node__gone_at=None)
    return {
        "name": row.name,
        "mode": row.mode,
        "decision_mode": row.decision_mode,
        "acted_on_by": bool(row.acted_on_by),
        "in_cluster": row.in_cluster,
        "watched_seconds_ago": (now - row.watched_at).total_seconds() if row.watched_at else None,
        "watch_error": _code(reasons.kept(row.watch_error)),
        "nodes": nodes.count(),
        "gpu_nodes": nodes.filter(gpus__gt=0).count(),
        "agents": dict(agents.order_by().values_list("version").annotate(n=Count("pk"))),
        "open_incidents": dict(
            Incident.objects.filter(cluster=row, state="open").order_by().values_list("kind").annotate(n=Count("pk"))
        ),
    }


def _source(row: Source) -> dict[str, Any]:
    return {
        "name": row.name,
        "kind": row.kind,
        "cluster": row.cluster.name,
        "enabled": row.enabled,
        "last_contact_at": row.last_contact_at,
        "lag_seconds": row.lag,
        "accepted": row.accepted,
        "duplicates": row.duplicates,
        "rejected": row.rejected,
        "attempts": row.attempts,
        "error": _code(row.why),
        "error_at": row.error_at,
    }


def _channel(row: Channel) -> dict[str, Any]:
    states = Delivery.objects.filter(channel=row).order_by().values_list("state").annotate(n=Count("pk"))
    return {
        "name": row.name,
        "kind": row.kind,
        "enabled": row.enabled,
        "sent_at": row.sent_at,
        "trouble": _code(reasons.kept(row.trouble)),
        "deliveries": dict(states),
    }


def _sinks(now: datetime) -> list[dict[str, Any]]:
    heads = audit_stream.Heads()
    return [
        {
            "name": sink.name,
            "kind": sink.kind,
            "topics": sink.topics,
            "enabled": sink.enabled,
            "behind": audit_stream.lag(sink, now=now, heads=heads).records,
            "failures": sink.failures,
            "problem": _code(sink.why),
        }
        for sink in audit_stream.sinks()[:MAX_ROWS]
    ]


def _rescues() -> list[dict[str, Any]]:
    """The newest rescues with their steps."""
    rows = Rescue.objects.order_by("-pk").select_related("cluster").prefetch_related("steps")[:MAX_ROWS]
    return [
        {
            "id": row.pk,
            "cluster": row.cluster.name,
            "state": row.state,
            "outcome": row.outcome,
            "hold": row.hold,
            "because": _code(reasons.kept(row.because)),
            "opened_at": row.opened_at,
            "closed_at": row.closed_at,
            "due_at": row.due_at,
            "steps": [
                {
                    "name": step.name,
                    "state": step.state,
                    "attempts": step.attempts,
                    "because": _code(reasons.kept(step.because)),
                }
                for step in row.steps.all()
            ],
        }
        for row in rows
    ]


def _audit() -> str:
    """Heads of all chains, then the newest entries: what happened and when, without people and values."""
    heads = [{"cluster": row.cluster, "sequence": row.sequence, "digest": row.digest} for row in Chain.objects.all()]
    fields = ("cluster", "sequence", "at", "verb", "rescue")
    rows = [
        dict(zip(fields, row, strict=True)) for row in Entry.objects.order_by("-pk").values_list(*fields)[:MAX_ENTRIES]
    ]
    return "".join(f"{json.dumps(row, default=str)}\n" for row in [*heads, *rows])


def _packages() -> str:
    return "".join(
        sorted(
            f"{found.metadata['Name']}=={found.version}\n"
            for found in metadata.distributions()
            if found.metadata["Name"]
        )
    )
