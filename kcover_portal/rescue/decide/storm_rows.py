"""Record the storms that decisions found."""

from collections.abc import Sequence

from kcover import audit
from kcover.decisions import guards
from kcover_portal.incidents import services as incidents
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue.decide.decision_rows import DecidedCase
from kcover_portal.rescue.queries import symptoms


def keep(decided: Sequence[DecidedCase]) -> list[ledger.Draft]:
    """Records the storms of decisions of one transaction. Returns the ledger entries of new ones.

    The caller writes no incident before. The rows of storms are locked in the order of their symptoms and before those
    of other incidents, as when a person closes a storm. So no two transactions wait for each other, although a batch
    without rules does not hold the lock of the counts.
    """
    found = [(it.decision.storm, it) for it in decided if it.decision.storm is not None]
    found.sort(key=lambda pair: pair[0].symptom.key)
    return [draft for storm, it in found for draft in _keep(storm, it)]


def _keep(storm: guards.Storm, decided: DecidedCase) -> list[ledger.Draft]:
    """Records the storm's one incident. Returns the ledger entry, if the storm is new."""
    symptom, now, node = storm.symptom, decided.situation.now, decided.case.node
    names = symptoms.storm_nodes(node, symptom, since=now - decided.situation.settings.storm.window)
    row, opened = incidents.keep_storm(node.cluster, symptom, nodes=names, now=now)
    if not opened:
        return []
    act = audit.StormOpened(
        incident=row.pk,
        trait=symptom.trait,
        kind=symptom.kind,
        value=symptom.value,
        nodes=symptom.nodes,
        reached=storm.reached,
    )
    return [ledger.Draft(act=act, actor="system", at=now)]
