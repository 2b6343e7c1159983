"""Problems of the portal itself, for /readyz, /metrics and the page System."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db import connection

from kcover import reasons
from kcover_portal import encryption, setting_values
from kcover_portal.audit_stream import queries as audit_stream
from kcover_portal.encryption import keyring
from kcover_portal.fleet import queries as fleet
from kcover_portal.sources import queries as sources

# A line of the YAML that the portal stores.
_PLAIN_SERVER = re.compile(r"^[\s-]*server: *['\"]?http://(?!127\.|localhost|\[::1\])", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem. ``check``: the name of the check, stable."""

    check: str
    because: reasons.Reason


def problems(*, now: datetime) -> list[Problem]:
    """Everything that a person should repair; empty if all is well."""
    found = [plain_secrets(), plain_address(), *_plain_api_servers()]
    return [*(each for each in found if each is not None), *_sinks(now=now), *_sources(now=now)]


def plain_secrets() -> Problem | None:
    """PostgreSQL without an encryption key. SQLite's file is on the machine that has everything else, too."""
    if keyring.is_configured() or connection.vendor != "postgresql":
        return None
    return Problem(check="encryption key", because=reasons.of("secrets_in_plain_text"))


def plain_address() -> Problem | None:
    """Browsers and agents reach the portal without TLS, unless it is on their own machine."""
    url = settings.KCOVER_PUBLIC_URL
    if not url.startswith("http://") or setting_values.is_secure(url):
        return None
    return Problem(check="public address", because=reasons.of("portal_plain_http", url=url))


def _plain_api_servers() -> Iterator[Problem]:
    """Clusters whose kubeconfig has an http:// server on another machine."""
    for cluster in fleet.clusters():
        if not cluster.in_cluster and _PLAIN_SERVER.search(encryption.peek(cluster, "kubeconfig") or ""):
            because = reasons.of("api_server_plain_http", cluster=cluster.name)
            yield Problem(check=f"API server {cluster.name}", because=because)


def _sinks(*, now: datetime) -> Iterator[Problem]:
    """Sinks of the audit stream that fail or are behind."""
    heads = audit_stream.Heads()
    for sink in audit_stream.sinks():
        why = audit_stream.trouble(sink, audit_stream.lag(sink, now=now, heads=heads))
        if why is not None:
            yield Problem(check=f"audit sink {sink.name}", because=why)


def _sources(*, now: datetime) -> Iterator[Problem]:
    """Sources of faults that fail or are behind."""
    rows = list(sources.all_sources())
    troubles = sources.troubles(rows, now=now)
    for row in rows:
        if row.pk in troubles:
            yield Problem(check=f"source {row.name}", because=troubles[row.pk])
