"""Busy senders make room for those that found no place, and places that nobody takes are kept from nobody."""

import heapq
import random
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from itertools import count

import pytest

from kcover_portal.api.in_hand import BUSY_SECONDS, TURN_SECONDS, InHand, SenderBusy

RETRY_SECONDS = 2.0, 2.5  # a sender's, after a refusal


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def refused(hands: InHand[str], sender: str) -> bool:
    try:
        with hands.hold(sender):
            return False
    except SenderBusy:
        return True


def test_requests_are_bounded_for_each_sender_and_in_total() -> None:
    hands: InHand[str] = InHand(most=2, clock=Clock())
    with hands.hold("a"):
        assert refused(hands, "a")
        with hands.hold("b"):
            assert refused(hands, "c")
    assert not refused(hands, "c")


def test_a_busy_sender_leaves_its_place_to_one_that_was_refused() -> None:
    clock = Clock()
    hands: InHand[str] = InHand(most=2, clock=clock)
    with ExitStack() as held:
        held.enter_context(hands.hold("a"))
        with hands.hold("b"):
            assert refused(hands, "quiet")
        assert refused(hands, "b")
        clock.now += TURN_SECONDS / 2
        assert refused(hands, "b")
        assert not refused(hands, "quiet")
        assert not refused(hands, "b")


def test_trying_again_does_not_prolong_a_turn() -> None:
    clock = Clock()
    hands: InHand[str] = InHand(most=2, clock=clock)
    with ExitStack() as held:
        held.enter_context(hands.hold("a"))
        with hands.hold("b"):
            assert refused(hands, "gone")
            clock.now = TURN_SECONDS - 1
            assert refused(hands, "gone")
        assert refused(hands, "b")
        clock.now = TURN_SECONDS
        assert not refused(hands, "b")


@pytest.mark.parametrize("waiting", [1, 4, 9])
def test_turns_keep_no_place_from_a_sender_that_is_not_busy(waiting: int) -> None:
    clock = Clock()
    hands: InHand[str] = InHand(most=4, clock=clock)
    with ExitStack() as held:
        for number in range(4):
            held.enter_context(hands.hold(f"busy-{number}"))
        for number in range(waiting):
            assert refused(hands, f"gone-{number}")
    assert not refused(hands, "new")
    assert not refused(hands, "busy-0")  # nothing is in hand
    clock.now = BUSY_SECONDS
    with hands.hold("other"):
        assert not refused(hands, "busy-0")


@dataclass
class Crowd:
    """Senders for ten minutes. Quiet ones wait after a refusal as they are asked to; loud ones retry at once."""

    quiet: int
    service: float
    pause: float
    loud: int = 0
    served: dict[int, int] = field(default_factory=dict)
    refused_by_nobody: int = 0  # refusals while no request was in hand

    def run(self) -> None:
        clock, chance, number = Clock(), random.Random(7), count()
        hands: InHand[int] = InHand(most=4, clock=clock)
        held: dict[int, AbstractContextManager[None]] = {}
        due = [(chance.random(), next(number), sender) for sender in range(-self.loud, self.quiet)]
        self.served = {sender: 0 for _, _, sender in due}
        heapq.heapify(due)
        while due[0][0] < 600:
            clock.now, _, sender = heapq.heappop(due)
            is_quiet = sender >= 0
            if sender in held:
                held.pop(sender).__exit__(None, None, None)
                after = chance.expovariate(1 / self.pause) if is_quiet else 0.001
            else:
                place = hands.hold(sender)
                try:
                    place.__enter__()
                    held[sender], after = place, self.service
                    self.served[sender] += 1
                except SenderBusy:
                    self.refused_by_nobody += not held
                    after = chance.uniform(*RETRY_SECONDS) if is_quiet else 0.1
            heapq.heappush(due, (clock.now + after, next(number), sender))


@pytest.mark.parametrize(
    ("quiet", "service", "pause", "least"), [(100, 0.02, 5.0, 90), (60, 0.05, 5.0, 80), (40, 0.05, 1.0, 300)]
)
def test_many_senders_with_short_requests_are_served(quiet: int, service: float, pause: float, least: int) -> None:
    crowd = Crowd(quiet=quiet, service=service, pause=pause)
    crowd.run()
    assert min(crowd.served.values()) >= least
    assert crowd.refused_by_nobody == 0


@pytest.mark.parametrize("loud", [4, 16])
def test_loud_senders_keep_no_quiet_one_out(loud: int) -> None:
    crowd = Crowd(quiet=5, service=0.3, pause=5.0, loud=loud)
    crowd.run()
    assert min(crowd.served[sender] for sender in range(5)) >= 60  # of 113, if nobody else came
