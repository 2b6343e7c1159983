"""The legal state transitions of incidents, rescues and steps: one table each, for the engine, the pages and the tests.

A transition that a table does not list never happens. Services change a state by a conditional UPDATE from a state in
``sources(table, new)``, so that a late or repeated request changes nothing.
"""

from collections.abc import Mapping

Table = Mapping[str, frozenset[str]]

INCIDENT: Table = {
    "open": frozenset({"closed"}),
    "closed": frozenset(),
}

# held: a guard or a person decides what is next. waiting: it continues at its due date. running: a worker has it, or
# can claim it.
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
    "waiting": frozenset({"running", "failed", "skipped", "cancelled"}),  # failed: an operator takes over
    "done": frozenset(),
    "failed": frozenset({"running", "skipped", "cancelled"}),  # an operator's retry or skip
    "skipped": frozenset(),
    "cancelled": frozenset(),
}

OPEN_RESCUE = ("held", "waiting", "running")
CLOSED_RESCUE = ("succeeded", "failed", "cancelled")
FINISHED_STEP = ("done", "skipped", "cancelled")


def allows(table: Table, old: str, new: str) -> bool:
    """Return whether the table allows the transition. Raises KeyError for an unknown state."""
    table[new]
    return new in table[old]


def sources(table: Table, new: str) -> tuple[str, ...]:
    """Every state with a transition to ``new``, in the order of the table. Raises KeyError for an unknown state."""
    table[new]
    return tuple(old for old, targets in table.items() if new in targets)
