"""The counts that nearly all guards need, in one prepared statement."""

from collections.abc import Collection
from datetime import datetime
from functools import cache
from typing import Any

from django.db.models import Exists, QuerySet

from kcover.decisions import guards
from kcover_portal.fleet import queries as fleet
from kcover_portal.fleet.models import Cluster
from kcover_portal.lib.prepared import Prepared
from kcover_portal.rescue.queries import capacity, symptoms
from kcover_portal.rescue.queries.numbers import number_of, values_of


def read(
    cluster: Cluster,
    *,
    settings: guards.Settings,
    now: datetime,
    since: datetime,
    codes: Collection[symptoms.Code],
    recheck: capacity.Recheck | None,
) -> dict[str, Any]:
    """The counts that guards nearly always need, and signs that more must be read, in one statement."""
    statement = _prepared(breaker=settings.breaker.enabled, codes=len(codes), recheck=recheck is not None)
    values: dict[str, Any] = {"cluster": cluster.pk, "now": now}
    if settings.breaker.enabled:
        values["lately"] = now - settings.breaker.window
    if recheck is not None:
        values |= {"rescue": recheck.rescue, "recheck_since": recheck.since}
    if codes:
        values["since"] = since
    for index, (kind, code) in enumerate(codes):
        values |= {f"kind_{index}": kind, f"code_{index}": code, f"alias_{index}": symptoms.alias_of(kind, code)}
    return statement.get(**values)


@cache
def _prepared(*, breaker: bool, codes: int, recheck: bool) -> Prepared[dict[str, Any]]:
    """The statement of ``read``. There are as many as combinations that occur; ``codes`` is usually 1."""

    def build(cluster: int, now: datetime, **more: Any) -> QuerySet[Any, Any]:
        again = capacity.Recheck(more["rescue"], more["recheck_since"]) if recheck else None
        wanted: dict[str, Any] = {
            "eligible": number_of(capacity.eligible(cluster)),
            "taken": values_of(capacity.taken(cluster, recheck=again), "node"),
            "windows": Exists(fleet.maintenance(cluster, now=now)),
        }
        if breaker:
            wanted["isolating"] = values_of(capacity.isolating(cluster, since=more["lately"]), "node")
        if codes:
            named = [(more[f"kind_{at}"], more[f"code_{at}"], more[f"alias_{at}"]) for at in range(codes)]
            wanted |= symptoms.expressions(cluster, since=more["since"], codes=named)
        return Cluster.objects.filter(pk=cluster).order_by().values(**wanted)

    types: dict[str, type] = {"cluster": int, "now": datetime}
    if breaker:
        types["lately"] = datetime
    if recheck:
        types |= {"rescue": int, "recheck_since": datetime}
    if codes:
        types["since"] = datetime
    for index in range(codes):
        types |= {f"kind_{index}": str, f"code_{index}": str, f"alias_{index}": str}
    return Prepared(build, **types)
