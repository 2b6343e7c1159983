"""Causes of needs: what makes two of them the same, where their nodes are together, and when one got worse."""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Final

from kcover.faults import catalog
from kcover.needs import Need

ID_LENGTH = 16  # hexadecimal digits
# A need that must stay in sight: an approval expires, and a rewritten audit log has paused automation.
NEVER_SNOOZED: Final = frozenset({Need.APPROVAL, Need.LEDGER})
# Where nodes may be together, the narrowest first.
PLACES: Final = ("nvlink", "leaf", "rack")
_RANKS: Final = {name: rank for rank, name in enumerate(catalog.SEVERITIES)}


def identity(kind: Need, cluster: int, *parts: str) -> str:
    """Returns the id of a cause: the same as long as the kind, the cluster and the parts are."""
    text = "\n".join((kind, str(cluster), *parts))
    return hashlib.sha256(text.encode()).hexdigest()[:ID_LENGTH]


def shared_place(places: Collection[Mapping[str, str]]) -> tuple[str, str] | None:
    """Returns the domain and value that several nodes have in common, the narrowest; None if they share none.

    ``places``: of each node its topology, by domain. One node alone shares nothing.
    """
    if len(places) < 2:
        return None
    for domain in PLACES:
        values = {place.get(domain, "") for place in places}
        if len(values) == 1 and "" not in values:
            return domain, values.pop()
    return None


def rank(severity: str) -> int:
    """Returns the rank of a severity; a higher one is worse, and an unknown one counts as ``warning``."""
    return _RANKS.get(severity, _RANKS["warning"])


def is_worse(*, members: Iterable[str], severity: str, than_members: Collection[str], than_severity: str) -> bool:
    """Returns whether a cause has a new member (a node), or a higher severity, than it had."""
    return bool(set(members) - set(than_members)) or rank(severity) > rank(than_severity)


def lasts_since(since: datetime | None, moment: datetime) -> bool:
    """Returns whether a cause that began at ``since`` already existed at the moment. None: it is not known."""
    return since is None or since <= moment
