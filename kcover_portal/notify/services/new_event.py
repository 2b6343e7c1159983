"""A new event of one of the sources."""

from dataclasses import dataclass

from kcover.notify import events, pager


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event, its permanent key, and what it does to the alerts of pagers.

    ``late``: it is too old to be sent, except to the pagers whose alerts it ends.
    """

    key: str
    event: events.Event
    moves: tuple[pager.AlertChange, ...] = ()
    late: bool = False
