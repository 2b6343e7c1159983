"""One GPU after the other, each asked under a deadline of its own: one that hangs leaves the others observed.

A thread in a driver that hangs cannot be ended. There is at most one for each GPU and kind of question: a GPU that
still hangs is not asked again until it came back, and costs whoever asks next no time.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from agents import deadline
from kcover.fault import Gpu

T = TypeVar("T")

PATIENCE = 5.0  # seconds for one GPU: eight that answer take tens of ms


@dataclass(slots=True)
class Question:
    """What a GPU is being asked: ``call`` is under way, ``gpu`` is what it said of itself so far. Times are of
    ``time.monotonic``."""

    since: float
    call: str = ""
    gpu: Gpu | None = None


class Hangs(Exception):
    """A GPU that has not answered yet; ``seconds``: since it was asked."""

    def __init__(self, question: Question) -> None:
        self.seconds = time.monotonic() - question.since
        self.gpu = question.gpu
        super().__init__(f"{question.call or 'the driver'} has not come back since {self.seconds:.0f} s")


class InTurn:
    """The questions of one kind (``what`` names it) that are under way, by the number of the GPU. One object for the
    process, as the library is."""

    def __init__(self, what: str, *, patience: float = PATIENCE) -> None:
        self.what, self.patience = what, patience
        self._under_way: dict[int, Question] = {}

    def ask(self, index: int, answer: Callable[[Question], T]) -> T:
        """What ``answer`` returns or raises; it notes in its question how far it came. Raises Hangs where this GPU has
        not answered within ``patience`` seconds, at once where it was asked longer ago."""

        def asked() -> T:
            question = self._under_way[index] = Question(time.monotonic())
            try:
                return answer(question)
            finally:
                self._under_way.pop(index, None)

        try:
            return deadline.within(self.patience, asked, what=f"{self.what} of GPU {index}")
        except deadline.Late as late:
            question = self._under_way.get(index) or Question(time.monotonic() - self.patience)
            raise Hangs(question) from late
