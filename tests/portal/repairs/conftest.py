"""A cluster with a node that a repair is about."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from kcover.repairs.repairs import Move, Part
from kcover_portal.checks.models import ValidatedNode, Validation
from kcover_portal.fleet.models import Cluster, Node
from kcover_portal.repairs import services
from kcover_portal.repairs.models import Repair
from tests.portal.api.conftest import add_node

GPU = Part(kind="gpu", serial="S-gpu-1", slot="0")
Report = Callable[..., Repair]


@pytest.fixture
def node(db: None, now: datetime) -> Node:
    return add_node(Cluster.objects.create(name="c1", created_at=now), "gpu-1", now)


@pytest.fixture
def report(node: Node, now: datetime) -> Report:
    """Reports a repair of the node's GPU, and takes it as far as the given moves lead."""

    def make(*moves: Move, **details: Any) -> Repair:
        row = services.report(node, part=GPU, details=details, actor="user:ann", reason="it sparks", now=now)
        for move in moves:
            services.act(row, move, actor="user:bob", reason=str(move), now=now)
        row.refresh_from_db()
        return row

    return make


def add_validation(node: Node, *, at: datetime, state: str = "passed", serial: str = "") -> Validation:
    """A validation of the node that ended so, or waits. ``serial``: of the machine that was validated."""
    made = Validation.objects.create(
        cluster=node.cluster, profile="light", document={}, requested_by="user:ann", requested_at=at
    )
    ValidatedNode.objects.create(validation=made, node=node, machine=node.uid, state=state, serial=serial)
    return made
