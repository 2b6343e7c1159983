"""A walk: episodes of acts on a fresh bed, each with its own seed, so that any part can be repeated."""

import contextlib
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from django.db import connection, transaction

from tests.invariants import episode_end
from tests.invariants.events import ACTS
from tests.invariants.testbed import Bed, Killed, Violation

Step = tuple[str, int]
NAMES = tuple(ACTS)


@contextlib.contextmanager
def fresh_bed() -> Iterator[Bed]:
    """A bed whose rows are gone afterwards."""
    with transaction.atomic(), _transactions_in_it():
        bed = Bed()
        try:
            yield bed
        finally:
            bed.uninstall()
            connection.run_on_commit.clear()  # nobody hears the doorbell here: what is due is found by looking
            transaction.set_rollback(True)


@contextlib.contextmanager
def _transactions_in_it() -> Iterator[None]:
    """What is a transaction of its own anywhere else is a savepoint in the episode's, so that a worker that dies in its
    middle leaves nothing of it: also where ``savepoint=False`` says that a transaction around it is enough."""
    atomic, depth = transaction.atomic, len(connection.savepoint_ids)

    def as_savepoint(using: Any = None, savepoint: bool = True, durable: bool = False) -> Any:
        return atomic(using, savepoint or len(connection.savepoint_ids) == depth, durable)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transaction, "atomic", as_savepoint)
        yield


def take(bed: Bed, step: Step) -> None:
    """One step, and what must hold after it."""
    name, seed = step
    chance = random.Random(f"{name} {seed}")
    random.seed(seed)  # the engine's jitter
    with contextlib.suppress(Killed):
        ACTS[name][1](bed, chance)
    bed.check()
    connection.run_on_commit.clear()


def steps_of(seed: str, count: int, *, names: Sequence[str] = NAMES) -> list[Step]:
    """The steps of the episode with this seed; ``names``: the acts that it is made of."""
    chance = random.Random(seed)
    weights = [ACTS[name][0] for name in names]
    return [(name, chance.randrange(2**31)) for name in chance.choices(names, weights, k=count)]


def play(steps: Sequence[Step]) -> None:
    """A whole episode with its end. Raises Violation."""
    with fresh_bed() as bed:
        for step in steps:
            take(bed, step)
        episode_end.settle(bed, random.Random(len(steps)))


def shrink(steps: Sequence[Step]) -> list[Step]:
    """The steps of a failing episode without those that it fails without, by halves and then one by one."""
    left, size = list(steps), len(steps) // 2
    while size:
        at = 0
        while at < len(left):
            fewer = left[:at] + left[at + size :]
            try:
                play(fewer)
            except (Violation, Exception):
                left = fewer
            else:
                at += size
        size //= 2
    return left


def episode(seed: str, number: int, count: int) -> tuple[str, list[Step]] | None:
    """Plays one numbered episode; None where all held, else what broke and the fewest steps that break something."""
    steps = steps_of(f"{seed} {number}", count)
    try:
        play(steps)
    except Exception as error:
        return f"{type(error).__name__}: {error}", shrink(steps)
    return None
