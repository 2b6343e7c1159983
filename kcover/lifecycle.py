"""The legal moves of incidents, rescues and steps: one table each, read by the engine, the pages and the tests.

A move that a table does not name never happens: services change a state by a conditional UPDATE from a state in
``sources(table, new)``, so that a late or repeated request changes nothing.
"""

from collections.abc import Mapping

Table = Mapping[str, frozenset[str]]

INCIDENT: Table = {
    "open": frozenset({"closed"}),
    "closed": frozenset(),
}

# held: a guard or a person has the next word. waiting: a due date has. running: a worker has, or may have at once.
RESCUE: Table = {
    "held": frozenset({"running", "waiting", "failed", "cancelled"}),
    "waiting": frozenset({"running", "held", "failed", "cancelled"}),
    "running": frozenset({"waiting", "held", "succeeded", "failed", "cancelled"}),
    "succeeded": frozenset(),
    "failed": frozenset(),
    "cancelled": frozenset(),
}

STEP: Table = {
    "pending": frozenset({"running", "skipped", "cancelled"}),
    "running": frozenset({"waiting", "done", "failed", "skipped", "cancelled"}),
    "waiting": frozenset({"running", "failed", "skipped", "cancelled"}),  # failed: an operator takes it over
    "done": frozenset(),
    "failed": frozenset({"running", "skipped", "cancelled"}),  # an operator's retry or skip
    "skipped": frozenset(),
    "cancelled": frozenset(),
}

OPEN_RESCUE = ("held", "waiting", "running")
CLOSED_RESCUE = ("succeeded", "failed", "cancelled")
FINISHED_STEP = ("done", "skipped", "cancelled")


def may(table: Table, old: str, new: str) -> bool:
    """Whether the table allows the move; raises KeyError for a state that it does not know."""
    table[new]
    return new in table[old]


def sources(table: Table, new: str) -> tuple[str, ...]:
    """Every state from which ``new`` can be reached in one move, in the table's order."""
    table[new]
    return tuple(old for old, targets in table.items() if new in targets)
