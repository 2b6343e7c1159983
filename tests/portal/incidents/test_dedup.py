"""Each line of a log is counted once, whichever agent reports it and however lines are grouped."""

import random
from collections.abc import Iterator, Sequence

from hypothesis import given, strategies as st

from kcover.faults.fault import Fault
from kcover.values import sequence_ranges
from kcover_portal.incidents.services import dedup

LINE = {"kind": "xid", "code": 62, "source": "kmsg"}


def folded(lines: Sequence[int], draw: random.Random) -> Iterator[Fault]:
    """One reader's runs, each shown by its first or its last line."""
    rest = list(lines)
    while rest:
        run, rest = rest[: (size := draw.randint(1, 9))], rest[size:]
        records = sequence_ranges.merge([(one, one) for one in run], max_ranges=64)
        yield Fault(**LINE, sequence=draw.choice((run[0], run[-1])), count=len(run), records=records)


def counted(reported: Sequence[Fault], boot_id: str = "b") -> list[int]:
    known: dedup.Counted = []
    found = []
    for one in reported:
        fresh, known = dedup.count(known, one, boot_id=boot_id)
        assert len(known) <= dedup.MAX_LOGS
        assert all(len(ranges) <= dedup.MAX_RANGES for _, ranges in known)
        found.append(fresh)
    return found


@given(st.sets(st.integers(0, 2000), min_size=1, max_size=300), st.integers(1, 3), st.randoms(use_true_random=False))
def test_readers_of_one_log_count_each_line_once_at_whatever_pace(
    lines: set[int], readers: int, draw: random.Random
) -> None:
    waiting = [list(folded(sorted(lines), draw)) for _ in range(readers)]
    reported = []
    while any(waiting):
        reported.append(draw.choice([one for one in waiting if one]).pop(0))
    assert sum(counted(reported)) == len(lines)


@given(st.sets(st.integers(0, 30), min_size=1, max_size=15), st.randoms(use_true_random=False))
def test_the_order_of_reports_does_not_change_the_count(lines: set[int], draw: random.Random) -> None:
    reported = [*folded(sorted(lines), draw), *folded(sorted(lines), draw)]
    draw.shuffle(reported)
    assert sum(counted(reported)) == len(lines)


@given(st.lists(st.builds(Fault, **{k: st.just(v) for k, v in LINE.items()}, sequence=st.integers(0, 500))))
def test_a_line_after_all_known_lines_always_counts_as_new(faults: list[Fault]) -> None:
    latest = -1
    for one, fresh in zip(faults, counted(faults), strict=True):
        assert one.sequence is not None
        assert fresh == 1 or one.sequence <= latest
        latest = max(latest, one.sequence)


def test_faults_without_a_sequence_number_count_each_time() -> None:
    assert counted([Fault(kind="xid", code=62, count=3)] * 2) == [3, 3]


def test_reports_without_records_are_deduplicated_by_their_line() -> None:
    assert counted([Fault(**LINE, sequence=7, count=3)] * 2) == [3, 0]


def test_sources_boots_and_drills_are_apart() -> None:
    one = Fault(**LINE, sequence=7)
    others = [Fault(**{**LINE, "source": "loki"}, sequence=7), Fault(**LINE, sequence=7, drill=True)]
    assert counted([one, *others, one, *others]) == [1, 1, 1, 0, 0, 0]
    _, reported = dedup.count([], one, boot_id="b")
    for number in range(dedup.MAX_LOGS):
        fresh, reported = dedup.count(reported, one, boot_id=f"boot-{number}")
        assert fresh == 1
    assert [log for log, _ in reported] == [f"boot-{number} kmsg" for number in range(dedup.MAX_LOGS)]
