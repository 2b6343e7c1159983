"""Reads the rescues of nodes, and the orders about their jobs, from their rows."""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.crash.installation import Installation

UNDER_WAY = ("waiting", "running")


@dataclass(frozen=True, slots=True)
class Row:
    """One rescue. ``hold``: what it is held for, or "external" while another system has the node."""

    pk: int
    state: str
    outcome: str
    hold: str


def by_node(product: Installation) -> dict[str, list[Row]]:
    """The rescues of each node, oldest first."""
    found: dict[str, list[Row]] = {}
    query = (
        "SELECT n.name, r.id, r.state, r.outcome, r.hold FROM rescue_rescue r "
        "JOIN fleet_node n ON n.id = r.node_id ORDER BY r.id"
    )
    for node, *row in product.rows(query):
        found.setdefault(node, []).append(Row(*row))
    return found


def orders_by_node(product: Installation) -> dict[str, list[str]]:
    """The states of the orders about each node's training job, oldest first."""
    found: dict[str, list[str]] = {}
    for job, state in product.rows("SELECT name, state FROM jobs_joborder ORDER BY id"):
        found.setdefault(job.removesuffix("-job"), []).append(state)
    return found


def pair_plans_by_node(product: Installation) -> dict[str, list[str]]:
    """The states of the preflight plans of each node, oldest first: "running" until all of its Jobs are deleted."""
    found: dict[str, list[str]] = {}
    query = (
        "SELECT n.name, CASE WHEN p.cleaned THEN p.state ELSE 'running' END FROM preflight_pairplan p "
        "JOIN preflight_pairtest t ON t.plan_id = p.id JOIN fleet_node n ON n.id IN (t.first_id, t.second_id) "
        "ORDER BY p.id, t.place"
    )
    for node, state in product.rows(query):
        found.setdefault(node, []).append(state)
    return found


def on_probation(product: Installation) -> set[str]:
    """The nodes whose probation has not ended."""
    query = "SELECT n.name FROM rescue_probation p JOIN fleet_node n ON n.id = p.node_id WHERE p.ended_at IS NULL"
    return {name for (name,) in product.rows(query)}


def asked_of_jobs(product: Installation, nodes: Sequence[str]) -> dict[str, bool]:
    """Those of the nodes whose reboot a job was asked for, and whether somebody is to call it back (still)."""
    query = (
        "SELECT n.name, s.withdraw_at IS NOT NULL FROM rescue_step s JOIN rescue_rescue r ON r.id = s.rescue_id "
        "JOIN fleet_node n ON n.id = r.node_id WHERE s.name = 'reboot' AND s.progress ? 'request' AND n.name = ANY(%s)"
    )
    return dict(product.rows(query, list(nodes)))
