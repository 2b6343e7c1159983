"""Sources of the demo: the simulator's stand-ins for Loki, gpud, Prometheus and NVSentinel hear each fault, too."""

import json
import urllib.request
from datetime import datetime, timedelta
from typing import Final

from kcover_portal.accounts import services as accounts
from kcover_portal.accounts.models import ApiToken
from kcover_portal.fleet.models import Cluster
from kcover_portal.sources import services as sources
from kcover_portal.sources.models import Source

ACTOR: Final = "demo"
EXPORTER: Final = "nvsentinel"
PERFORMANCE: Final = "performance"
STEP_TIME: Final = "training_compute_seconds"  # of the simulator: before the ranks meet, so that nodes differ


def add(cluster: Cluster, *, simulator: str, portal: str, now: datetime) -> None:
    """Adds the sources, and lets NVSentinel's stand-in send to its own. ``simulator``, ``portal``: their addresses."""
    read = {"loki": simulator, "gpud": f"{simulator}/gpud/{{node}}", "prometheus": f"{simulator}/prometheus"}
    Source.objects.filter(cluster=cluster, name__in=[*read, PERFORMANCE, EXPORTER]).delete()
    for kind, url in read.items():  # read as often as by default: each minute from 200 nodes
        sources.SOURCES.make(Source(name=kind, kind=kind, cluster=cluster), {"url": url}, actor=ACTOR, now=now)
    quick = {"interval": 5, "warm_up": 30, "hold": 60}  # so that a drop shows while somebody looks
    sources.SOURCES.make(
        Source(name=PERFORMANCE, kind=Source.Kind.PERFORMANCE, cluster=cluster),
        {"url": read["prometheus"], "settings": {"query": STEP_TIME, **quick}},
        actor=ACTOR,
        now=now,
    )
    sources.SOURCES.make(Source(name=EXPORTER, kind=Source.Kind.CLOUDEVENTS, cluster=cluster), {}, actor=ACTOR, now=now)
    _, secret = accounts.make_token(
        ApiToken.Kind.SOURCE,
        cluster=cluster,
        source=EXPORTER,
        name="demo health events",
        expires_at=now + timedelta(days=1),
        created_by=ACTOR,
        now=now,
    )
    body = {"url": f"{portal}/api/v1/sources/{EXPORTER}/events", "token": secret}
    request = urllib.request.Request(f"{simulator}/sim/exporter", data=json.dumps(body).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=5):  # nosec B310
        return
