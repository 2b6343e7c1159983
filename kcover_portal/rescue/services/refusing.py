"""Refusing: a request that is not met is on record like one that is: who asked for what, of which node, and why not.

Whoever asks again and is told the same adds nothing for a while, so that a program that asks all day, or a flood of one
request, does not fill the ledger.
"""

import contextlib
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from django.db import transaction

from kcover_portal.fleet.models import Node
from kcover_portal.ledger import queries as ledger_queries
from kcover_portal.ledger import services as ledger
from kcover_portal.rescue.services import opening

VERB = "request.refused"
SAID_ONCE_IN = timedelta(minutes=10)  # the same request of the same one with the same answer
LOOKED_BACK = 200  # entries of the node among which it is looked for
SYSTEM = "system"  # the portal's own attempts are no requests


@contextlib.contextmanager
def on_record(node: Node, *, actor: str, asked: Sequence[str], now: datetime, **more: object) -> Iterator[None]:
    """Notes a refusal that is raised inside, and lets it go on: put it around the transaction, which is undone by then.

    ``asked``: the names of the steps. ``more``: what else the record is to say of the request, as plain JSON.
    """
    try:
        yield
    except opening.Refused as refusal:
        if actor != SYSTEM:
            _note(node, actor=actor, data={"asked": list(asked), "because": str(refusal)}, more=more, now=now)
        raise


def _note(node: Node, *, actor: str, data: dict[str, object], more: dict[str, object], now: datetime) -> None:
    with transaction.atomic():
        Node.objects.select_for_update(no_key=True).get(pk=node.pk)  # of two at once one finds the other's entry
        if _is_said(node, actor=actor, data=data, now=now):
            return
        ledger.write(
            node.cluster.name,
            actor=actor,
            verb=VERB,
            subject=f"node {node.name}",
            node=node.name,
            now=now,
            data={**data, **{name: value for name, value in more.items() if value}},
        )


def _is_said(node: Node, *, actor: str, data: dict[str, object], now: datetime) -> bool:
    last = ledger_queries.timeline(node.cluster.name, node=node.name)[:LOOKED_BACK]
    return any(
        (entry.verb, entry.actor) == (VERB, actor)
        and now - entry.at < SAID_ONCE_IN
        and data.items() <= entry.data.items()
        for entry in last
    )
