"""Sharing out a limited number of places."""

from hypothesis import given, strategies as st

from kcover.values import turns


def test_items_of_each_queue_take_turns() -> None:
    assert turns.in_turns(["abc", "d", "ef"], limit=10) == list("adebfc")
    assert turns.in_turns(["abc", "d", "ef"], limit=4) == list("adeb")
    assert turns.in_turns([], limit=4) == []


@given(st.lists(st.lists(st.integers())), st.integers(0, 20))
def test_no_queue_waits_for_the_length_of_another(queues: list[list[int]], limit: int) -> None:
    taken = turns.in_turns([[(place, item) for item in queue] for place, queue in enumerate(queues)], limit=limit)
    assert len(taken) == min(limit, sum(map(len, queues)))
    for place, queue in enumerate(queues):
        own = [item for at, item in taken if at == place]
        assert own == queue[: len(own)]
        assert len(own) >= min(len(queue), limit // max(1, len(queues)))
