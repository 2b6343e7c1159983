"""The end of a wait, as pages show it."""

from dataclasses import dataclass
from datetime import datetime

from django.utils.functional import Promise


@dataclass(frozen=True, slots=True)
class Wait:
    """The end of a wait, and what happens then as half a sentence.

    ``until``: None if the wait has no fixed end; ``then`` says what ends it. ``held``: a guard holds the rescue back,
    so that the time is no deadline.
    """

    until: datetime | None
    then: str | Promise
    held: bool = False
