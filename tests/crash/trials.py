"""A trial: one walk-through on one node, and its state. A case that was not struck is tried again, on another node."""

from dataclasses import dataclass, field
from typing import Any

import psycopg

from tests.crash.points import Case


@dataclass(slots=True, kw_only=True, eq=False)
class Trial:
    """One node on which a plan is carried out, and the case that strikes it; None: nothing does (the control)."""

    node: str
    plan: str
    case: Case | None
    before: dict[str, Any] = field(default_factory=dict)
    struck: bool = False
    rebooted: bool = False  # by a person
    helped: bool = False  # what the plan needs from outside in the end was done
    lock: psycopg.Connection[Any] | None = None  # what a call that is a row waits for
    partner: str = ""  # the other node of its pair test
    spares: dict[str, dict[str, Any]] = field(default_factory=dict)  # that were promised to the node, as they had been
    began: float = 0.0
    seconds: float = 0.0
    given_up: bool = False  # it had not ended when its time was up
    late: str = ""  # what it waited for when its wave was struck without it
    missed: str = ""  # what it waited for, if it was not struck
    earlier: tuple[str, ...] = ()  # what the trials of the same case waited for that were not struck before
    repeated: bool = False  # the case is tried again
    wrong: list[str] = field(default_factory=list)

    @property
    def boot(self) -> str:
        """The boot that was running when it began."""
        return str(self.before["status"]["nodeInfo"]["bootID"])

    @property
    def aimed(self) -> bool:
        """Returns whether the trial waits for a process to be struck."""
        return self.case is not None and self.case.failure.status is None and not self.struck and not self.missed

    @property
    def over(self) -> bool:
        """Returns whether nothing more is expected of it."""
        return self.seconds > 0 or self.given_up

    @property
    def counts(self) -> bool:
        """Returns whether it is a verdict on its case, and not a try that another one repeats."""
        return not self.repeated or bool(self.wrong)

    @property
    def comes(self) -> float:
        """So many seconds after its fault the call comes that is to be struck, about."""
        return self.case.point.comes if self.case is not None else 0.0
