"""Judging anew: what is open when the rules, the mode, or who decides, change is judged under the new ones.

Who may act, and on what, is changed at several doors and by the environment of a restarted process. So what holds is
compared with what held at the last look: no message can be lost. What was set and taken back between two looks leaves
a mark (``bounds.note_change``), since what came in between was judged under it.
"""

import hashlib
import json
from datetime import datetime

from django.db import transaction

from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet import services as fleet_services
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents import services as incidents
from kcover_portal.policies import queries as policies

NAME = "judged under "  # and the cluster's key: what held there at the last look


def look(*, now: datetime) -> int:
    """Has what is open judged anew where something else decides than at the last look; returns how many incidents.

    Not while everything is paused: whatever changes meanwhile counts once acts go on.
    """
    rules = sorted(policies.in_force().values_list("pk", flat=True))  # a revision never changes
    known, changes = fleet.words(NAME), fleet.words(fleet.DECIDES)
    called = 0
    for cluster in Cluster.objects.all():
        mode, _ = fleet.mode_of(cluster)
        if mode == "paused":
            continue
        marks = [changes[key] for key in ("", str(cluster.pk)) if key in changes]  # there and back is a change, too
        holds = [rules, mode, cluster.decision_mode, cluster.decision_url, cluster.drills, *marks]
        word = hashlib.sha256(json.dumps(holds).encode()).hexdigest()[:32]
        if known.get(str(cluster.pk)) == word:
            continue
        with transaction.atomic():
            if fleet_services.note_word(f"{NAME}{cluster.pk}", word, now=now):
                seen_since = now - fleet.guards_of(cluster).expiry
                called += incidents.judge_anew(cluster, seen_since=seen_since, now=now)
    return called
