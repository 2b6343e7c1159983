"""Group commit: calls that arrive within a few milliseconds are handled together, in one thread.

While one batch is handled, the next one collects. So batches grow with the load, and the cost of each call falls. The
queue is bounded, for all and for each sender; beyond a bound, a call gets QueueFull.

A call that takes long by itself is handled alone, in turn with the batches of the others, and the senders of such calls
take turns. So one sender delays the others by one of its calls at a time, however many it sends.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, NamedTuple, TypeVar

GATHER_SECONDS = 0.005  # a batch of ten costs little more than one; faults do not wait
FULL_BATCH_CALLS = 64  # calls that are worth a batch of their own at once

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")


class QueueFull(Exception):
    """More waits than may: come back later."""


class _Call(NamedTuple, Generic[Asked, Answered]):
    asked: Asked
    answer: "asyncio.Future[Answered]"
    sender: Hashable


class GroupCommit(Generic[Asked, Answered]):
    """``work`` takes up to ``together`` calls and returns, in their order, an answer or an exception for each.

    ``capacity``: calls that may wait; ``each``: of one sender, if callers name them.
    """

    def __init__(
        self,
        work: Callable[[list[Asked]], Sequence[Answered | Exception]],
        *,
        name: str,
        together: int = 500,
        capacity: int = 5_000,
        each: int = 5_000,
    ) -> None:
        self._work, self._together, self._capacity, self._each = work, together, capacity, each
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)  # one thread, one connection to the database
        self._loop: asyncio.AbstractEventLoop | None = None
        self._calls: deque[_Call[Asked, Answered]] = deque()
        self._alone: dict[Hashable, deque[_Call[Asked, Answered]]] = {}  # by sender, in the order of their turns
        self._alone_calls = 0
        self._waiting: Counter[Hashable] = Counter()  # calls by sender, of those with one
        self._alone_is_next = False
        self._busy, self._hurried = False, False
        self._timer: asyncio.TimerHandle | None = None

    async def ask(
        self, asked: Asked, *, at_once: bool = False, alone: Hashable = None, sender: Hashable = None
    ) -> Answered:
        """The answer, once the batch is done. ``at_once``: it is not to wait for others. ``alone``: the sender of a
        call that is handled without others. ``sender``: the one that may have ``each`` calls in the queue.
        Raises QueueFull, or what ``work`` found."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # the first call; or the server's loop is a new one, and what waited is gone with it
            self._loop, self._busy, self._hurried, self._timer = loop, False, False, None
            self._calls.clear()
            self._alone.clear()
            self._alone_calls = 0
            self._waiting.clear()
        if len(self._calls) + self._alone_calls >= self._capacity or self._waiting[sender] >= self._each:
            raise QueueFull
        answer: asyncio.Future[Answered] = loop.create_future()
        call = _Call(asked, answer, sender)
        if sender is not None:
            self._waiting[sender] += 1
        if alone is not None:
            self._alone.setdefault(alone, deque()).append(call)
            self._alone_calls += 1
        else:
            self._calls.append(call)
            self._hurried |= at_once
        self._next(loop)
        return await answer

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._busy or not (self._calls or self._alone):
            return
        if self._hurried or self._alone or len(self._calls) >= FULL_BATCH_CALLS:
            self._start(loop)
        elif self._timer is None:
            self._timer = loop.call_later(GATHER_SECONDS, self._start, loop)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._alone and (self._alone_is_next or not self._calls):
            batch = [self._take_alone()]
        else:
            batch = [self._calls.popleft() for _ in range(min(self._together, len(self._calls)))]
            self._hurried = self._hurried and bool(self._calls)
        self._waiting -= Counter(call.sender for call in batch if call.sender is not None)  # and drops zeros
        self._alone_is_next = not self._alone_is_next
        self._busy = True
        work = loop.run_in_executor(self._thread, self._work, [call.asked for call in batch])
        work.add_done_callback(lambda done: self._done(loop, batch, done))

    def _take_alone(self) -> _Call[Asked, Answered]:
        """The first call of the sender whose turn it is; with further calls, the sender waits for its next turn."""
        sender = next(iter(self._alone))
        calls = self._alone.pop(sender)
        call = calls.popleft()
        if calls:
            self._alone[sender] = calls
        self._alone_calls -= 1
        return call

    def _done(
        self,
        loop: asyncio.AbstractEventLoop,
        batch: Sequence[_Call[Asked, Answered]],
        done: "asyncio.Future[Sequence[Answered | Exception]]",
    ) -> None:
        self._busy = False
        failed = done.exception()
        answers = [failed] * len(batch) if failed is not None else done.result()
        for call, answer in zip(batch, answers, strict=True):
            if call.answer.done():  # the agent has hung up meanwhile
                continue
            if isinstance(answer, BaseException):
                call.answer.set_exception(answer)
            else:
                call.answer.set_result(answer)
        self._next(loop)
