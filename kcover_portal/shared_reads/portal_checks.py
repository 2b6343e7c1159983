"""Problems of the portal itself, for /readyz, /metrics and the page System."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db import connection

from kcover import reasons
from kcover_portal import encryption
from kcover_portal.accounts import queries as accounts
from kcover_portal.audit_stream import queries as audit_stream
from kcover_portal.config import setting_values
from kcover_portal.encryption import keyring
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.sources import queries as sources

# A line of the YAML that the portal stores.
_PLAIN_SERVER = re.compile(r"^[\s-]*server: *['\"]?http://(?!127\.|localhost|\[::1\])", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One problem. ``check``: the name of the check, stable. ``cluster``: its id; None for the whole installation."""

    check: str
    because: reasons.Reason
    cluster: int | None = None


def problems(*, now: datetime) -> list[Problem]:
    """Everything that a person should repair; empty if all is well."""
    clusters = fleet.clusters()
    found = [
        plain_secrets(),
        plain_address(),
        *_plain_api_servers(clusters),
        *_kubeconfigs(clusters),
        *_unread(clusters),
    ]
    return [*(each for each in found if each is not None), *_sinks(now=now), *_sources(now=now)]


def seen_by(who: accounts.Principal, *, now: datetime) -> list[Problem]:
    """The problems of the clusters that the user or token sees; who sees all of them sees those of the installation."""
    seen = accounts.scope(who)
    return [each for each in problems(now=now) if seen.wide or each.cluster in seen.whole]


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


def _plain_api_servers(clusters: Iterable[Cluster]) -> Iterator[Problem]:
    """Clusters whose kubeconfig has an http:// server on another machine."""
    for cluster in clusters:
        known = (encryption.peek(cluster, name) or "" for name in ("kubeconfig", "read_kubeconfig"))
        if not cluster.in_cluster and any(_PLAIN_SERVER.search(text) for text in known):
            because = reasons.of("api_server_plain_http", cluster=cluster.name)
            yield Problem(check=f"API server {cluster.name}", because=because, cluster=cluster.pk)


def _kubeconfigs(clusters: Iterable[Cluster]) -> Iterator[Problem]:
    """Clusters whose engine's kubeconfig web and live can decrypt, or that they cannot reach without it.

    With SQLite all processes are on one machine and share its files.
    """
    for cluster in clusters:
        if cluster.in_cluster or not encryption.is_set(cluster, "kubeconfig"):
            continue
        for_engine = encryption.is_for_engine(encryption.stored(cluster, "kubeconfig"))
        if for_engine and not encryption.is_set(cluster, "read_kubeconfig"):
            code = "read_kubeconfig_missing"
        elif not for_engine and connection.vendor == "postgresql":
            code = "kubeconfig_for_all_processes"
        else:
            continue
        because = reasons.of(code, cluster=cluster.name)
        yield Problem(check=f"kubeconfig {cluster.name}", because=because, cluster=cluster.pk)


def _unread(clusters: Iterable[Cluster]) -> Iterator[Problem]:
    """Clusters with more policies or reports as objects than the portal reads."""
    for cluster in clusters:
        for what, told in sorted(cluster.unread_objects.items()):
            because = reasons.from_json(told)
            yield Problem(check=f"objects {cluster.name} {what}", because=because, cluster=cluster.pk)


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
            yield Problem(check=f"source {row.name}", because=troubles[row.pk], cluster=row.cluster_id)
