"""Decide open incidents again when the rules, the mode or the decider of their cluster change.

They can be changed by several interfaces and by the environment of a restarted process. So each sweep compares a hash
of the present settings with the hash of the last sweep, and no message can be lost. A setting that was changed and
restored between two sweeps leaves an id (``cluster_settings.note_change``), because incidents may have been decided
under it.
"""

import hashlib
import json
from datetime import datetime

from django.db import transaction

from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents import services as incidents
from kcover_portal.lib.prepared import Prepared
from kcover_portal.policies import queries as policies
from kcover_portal.runtime import queries as runtime
from kcover_portal.runtime.services import hashes

TOPIC = "decision inputs"  # by the cluster's key: the hash of the last sweep
_RULES: Prepared[int] = Prepared(lambda: policies.in_force().order_by().values_list("pk", flat=True))
_CLUSTERS = Prepared(lambda: Cluster.objects.all())


def reevaluate(*, now: datetime) -> int:
    """Make open incidents due in each cluster whose settings changed. Returns how many incidents that is.

    Paused clusters are skipped. Their changes count once they are resumed.
    """
    rules = sorted(_RULES.rows())  # a revision never changes
    known, installation = runtime.hashes(TOPIC), runtime.installation()
    called = 0
    for cluster in _CLUSTERS.rows():
        mode, _ = fleet.mode_of(cluster)
        if mode == "paused":
            continue
        changes = [installation.decision_change, cluster.decision_change]  # a change that was reverted counts, too
        holds = [rules, mode, cluster.decision_mode, cluster.decision_url, cluster.drills, *changes]
        value = hashlib.sha256(json.dumps(holds).encode()).hexdigest()[:32]
        if known.get(str(cluster.pk)) == value:
            continue
        with transaction.atomic():
            if hashes.remember_hash(TOPIC, str(cluster.pk), value, now=now):
                seen_since = now - fleet.guards_of(cluster).expiry
                called += incidents.redecide_cluster(cluster, seen_since=seen_since, now=now)
    return called
