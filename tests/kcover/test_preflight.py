"""Preflight: parsing of reports; abnormal nodes at once, slow nodes only in a complete run."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, strategies as st

from kcover import preflight, reasons

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)
WITHIN = timedelta(minutes=30)
GOOD = {"allreduce_shape": 2**30, "dtype_bytes": 4, "allreduce_ms": 1000, "world_size": 16}  # 7.5 GiB/s


def ip(node: int) -> str:
    return f"10.0.0.{node}"


def batch(slot: int, own: int, peer: int, status: str = "ok", **more: Any) -> dict[str, Any]:
    return {"batch_idx": slot, "pair": [ip(own), ip(peer)], "self_ip": ip(own), "status": status, **more}


def raw(node: int, *batches: dict[str, Any], size: int = 4, **more: Any) -> dict[str, Any]:
    return {
        "workload_size": size,
        "node_name": f"n{node}",
        "node_ip": ip(node),
        "gpu_check": 1,
        "storage_check": 1,
        "batches": list(batches),
        **more,
    }


# --- reading


def test_a_full_report_is_parsed() -> None:
    found = preflight.read(json.dumps(raw(1, batch(1, 1, 3, "fail"), batch(0, 1, 2))))
    assert found == preflight.Report(
        node="n1",
        size=4,
        address="10.0.0.1",
        passed_checks=True,
        batches=(
            preflight.Batch(slot=0, own="10.0.0.1", peer="10.0.0.2", failed=False),
            preflight.Batch(slot=1, own="10.0.0.1", peer="10.0.0.3", failed=True),
        ),
    )
    assert preflight.read(json.dumps(raw(1)).encode()) == preflight.read(raw(1))


def test_a_compact_report_is_parsed() -> None:
    found = preflight.read({"workload_size": 2, "node_name": "n1"})
    assert found == preflight.Report(node="n1", size=2)
    assert found.addresses == frozenset()
    assert preflight.read({"workload_size": 2, "node_name": "n1", "node_ip": "", "batches": None}) == found


def test_addresses_are_normalized() -> None:
    long = "2001:0DB8:0000:0000:0000:0000:0000:0001"
    item = {"batch_idx": 0, "pair": ["2001:db8::2", long], "self_ip": "2001:db8::1", "status": "ok"}
    [found] = preflight.read({**raw(1, item), "node_ip": long}).batches
    assert (found.own, found.peer) == ("2001:db8::1", "2001:db8::2")


def test_a_nodes_addresses() -> None:
    item = {"batch_idx": 0, "pair": ["10.1.0.1", "10.1.0.2"], "self_ip": "10.1.0.2", "status": "ok"}
    assert preflight.read(raw(1, item)).addresses == {"10.0.0.1", "10.1.0.2"}


@pytest.mark.parametrize(
    ("checks", "failed"),
    [
        ({}, ()),
        ({"gpu_check": 0, "storage_check": 0}, ()),
        ({"gpu_check": 2}, ("gpu_check",)),
        ({"storage_check": 2}, ("storage_check",)),
        ({"gpu_check": 2, "storage_check": 2}, ("gpu_check", "storage_check")),
        ({"gpu_check": 3}, ()),
        ({"gpu_check": "2"}, ()),
        ({"gpu_check": None, "storage_check": True}, ()),
    ],
)
def test_failed_checks(checks: dict[str, Any], failed: tuple[str, ...]) -> None:
    assert preflight.read(raw(1, **checks)).failed_checks == failed


def test_the_batches_of_an_abnormal_node_are_not_parsed() -> None:
    found = preflight.read(raw(1, {"batch_idx": "nonsense"}, gpu_check=2, node_check_busbw_threshold_gbps="x"))
    assert (found.failed_checks, found.batches) == (("gpu_check",), ())


@pytest.mark.parametrize(("size", "slots"), [(2, 1), (4, 3), (6, 5), (8, 5), (16, 5)])
def test_the_number_of_expected_slots(size: int, slots: int) -> None:
    assert preflight.expected_batches(size) == slots
    fifteen = [batch(slot, 1, 2) for slot in range(15)]
    assert [one.slot for one in preflight.read(raw(1, *fifteen, size=size)).batches] == list(range(slots))


def test_an_unexpected_slot_is_ignored() -> None:
    assert preflight.read(raw(1, {"batch_idx": 3, "pair": None})).batches == ()


REFUSED: list[tuple[Any, str, str]] = [
    ("{", "", "preflight_not_json"),
    (b"\xff", "", "preflight_not_json"),
    ("[" * 100_000, "", "preflight_not_json"),
    ("[]", "", "preflight_not_object"),
    (raw(1, workload_size=None), "workload_size", "preflight_size_invalid"),
    (raw(1, workload_size=0), "workload_size", "preflight_size_invalid"),
    (raw(1, workload_size=-2), "workload_size", "preflight_size_invalid"),
    (raw(1, workload_size=10_002), "workload_size", "preflight_size_invalid"),
    (raw(1, workload_size="4"), "workload_size", "preflight_size_invalid"),
    (raw(1, workload_size=True), "workload_size", "preflight_size_invalid"),
    (raw(1, workload_size=3), "workload_size", "preflight_size_odd"),
    (raw(1, workload_size=1), "workload_size", "preflight_size_odd"),
    (raw(1, node_name=""), "node_name", "preflight_node_missing"),
    (raw(1, node_name=None), "node_name", "preflight_node_missing"),
    (raw(1, node_name=7), "node_name", "preflight_node_missing"),
    (raw(1, node_ip="gpu-1"), "node_ip", "preflight_not_an_ip"),
    (raw(1, node_ip=7), "node_ip", "preflight_not_an_ip"),
    (raw(1, batches={}), "batches", "preflight_batches_type"),
    (raw(1, "x"), "batches/0", "preflight_batch_type"),
    (
        raw(1, batch(0, 1, 2), {**batch(1, 1, 2), "batch_idx": "1"}),
        "batches/1/batch_idx",
        "preflight_slot_invalid",
    ),
    (raw(1, batch(-1, 1, 2)), "batches/0/batch_idx", "preflight_slot_invalid"),
    (raw(1, batch(True, 1, 2)), "batches/0/batch_idx", "preflight_slot_invalid"),
    (raw(1, batch(0, 1, 2), batch(0, 1, 2)), "batches/1/batch_idx", "preflight_slot_twice"),
    (raw(1, batch(9, 1, 2), batch(9, 1, 2)), "batches/1/batch_idx", "preflight_slot_twice"),
    (raw(1, {**batch(0, 1, 2), "pair": None}), "batches/0/pair", "preflight_pair_type"),
    (raw(1, {**batch(0, 1, 2), "pair": "ab"}), "batches/0/pair", "preflight_pair_type"),
    (raw(1, {**batch(0, 1, 2), "pair": [ip(1)]}), "batches/0/pair", "preflight_pair_type"),
    (raw(1, {**batch(0, 1, 2), "pair": [ip(1), ip(2), ip(3)]}), "batches/0/pair", "preflight_pair_type"),
    (raw(1, {**batch(0, 1, 2), "pair": [ip(1), "x"]}), "batches/0/pair/1", "preflight_not_an_ip"),
    (raw(1, {**batch(0, 1, 2), "pair": [None, ip(1)]}), "batches/0/pair/0", "preflight_not_an_ip"),
    (raw(1, batch(0, 1, 1)), "batches/0/pair", "preflight_pair_same"),
    (raw(1, {**batch(0, 1, 2), "self_ip": ip(3)}), "batches/0/self_ip", "preflight_not_in_pair"),
    (raw(1, {**batch(0, 1, 2), "self_ip": None}), "batches/0/self_ip", "preflight_not_an_ip"),
    *(
        (
            raw(1, node_check_busbw_threshold_gbps=value),
            "node_check_busbw_threshold_gbps",
            "preflight_threshold_invalid",
        )
        for value in ("five", "-1", -1, "nan", "inf", True, [5], 10**400)
    ),
]


@pytest.mark.parametrize(("body", "path", "code"), REFUSED)
def test_an_invalid_report_is_rejected(body: Any, path: str, code: str) -> None:
    with pytest.raises(preflight.ReportInvalid) as caught:
        preflight.read(body)
    assert caught.value.path == path
    reason = caught.value.reason
    assert reason.code == code
    assert str(caught.value) == (f"{path}: {reason}" if path else str(reason))


@pytest.mark.parametrize("size", [2, 10_000])
def test_valid_sizes(size: int) -> None:
    assert preflight.read(raw(1, size=size)).size == size


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists, max_leaves=5))
def test_any_value_is_parsed_or_rejected(value: Any) -> None:
    for name in ("workload_size", "node_name", "node_ip", "batches", "node_check_busbw_threshold_gbps", "gpu_check"):
        try:
            preflight.read(raw(1, **{name: value}))
        except preflight.ReportInvalid as refused:
            assert refused.path.split("/")[0] == name  # noqa: PT017
    for name in ("batch_idx", "pair", "self_ip", "status", *GOOD):
        try:
            preflight.read(raw(1, {**batch(0, 1, 2, **GOOD), name: value}, node_check_busbw_threshold_gbps="5"))
        except preflight.ReportInvalid as refused:
            assert refused.path.startswith("batches/0/")  # noqa: PT017


# --- figures


def failed(threshold: Any, status: str = "ok", **figures: Any) -> bool:
    item = batch(0, 1, 2, status, **{**GOOD, **figures})
    return preflight.read(raw(1, item, node_check_busbw_threshold_gbps=threshold)).batches[0].failed


def test_the_bus_bandwidth() -> None:
    found = preflight.bus_bandwidth(elements=2**30, element_bytes=4, milliseconds=1000, ranks=16)
    assert found == pytest.approx(7.5)
    found = preflight.bus_bandwidth(elements=2**30, element_bytes=2, milliseconds=250, ranks=2)
    assert found == pytest.approx(8.0)


@pytest.mark.parametrize("name", ["elements", "element_bytes", "milliseconds", "ranks"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), 10**400])
def test_invalid_figures_have_no_bandwidth(name: str, value: float) -> None:
    figures: dict[str, Any] = {"elements": 1, "element_bytes": 1, "milliseconds": 1, "ranks": 2, name: value}
    assert preflight.bus_bandwidth(**figures) is None


@pytest.mark.parametrize("figures", [{"milliseconds": 5e-324}, {"elements": 1e308, "element_bytes": 1e308}])
def test_extreme_figures_have_no_bandwidth(figures: dict[str, float]) -> None:
    assert (
        preflight.bus_bandwidth(**{"elements": 1, "element_bytes": 1, "milliseconds": 1, "ranks": 2, **figures}) is None
    )


def test_a_single_rank_has_no_bandwidth() -> None:
    assert preflight.bus_bandwidth(elements=1, element_bytes=1, milliseconds=1, ranks=1) is None
    assert preflight.bus_bandwidth(elements=1, element_bytes=1, milliseconds=1, ranks=1.5) is not None


@pytest.mark.parametrize("threshold", ["7.5", 7.5, "7", 7, "0", 0, "", " ", None, "1e0"])
def test_a_slot_at_the_threshold_or_without_one_did_not_fail(threshold: Any) -> None:
    assert not failed(threshold)


@pytest.mark.parametrize("threshold", ["7.51", 8, " 8 "])
def test_a_slot_below_the_threshold_failed(threshold: Any) -> None:
    assert failed(threshold)


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("value", [0, -1, None, "16", True, []])
def test_invalid_figures_fail_if_there_is_a_threshold(name: str, value: Any) -> None:
    assert failed("0.001", **{name: value})
    assert not failed("", **{name: value})
    assert not failed("0", **{name: value})


@pytest.mark.parametrize(("status", "bad"), [("ok", False), ("fail", True), ("skip", True), ("other", False)])
def test_the_status_of_a_slot(status: str, bad: bool) -> None:
    assert failed("", status) is bad
    assert failed("1", status) is bad


# --- receiving


def report(node: int, *batches: dict[str, Any], **more: Any) -> preflight.Report:
    return preflight.read(raw(node, *batches, **more))


def received(*reports: preflight.Report, each: timedelta = SECOND) -> tuple[preflight.Run, list[str]]:
    run, changes = None, []
    for place, one in enumerate(reports):
        got = preflight.receive(run, one, now=NOW + place * each, within=WITHIN)
        run = got.run
        changes.append(got.change)
        assert (got.because is not None) is (got.change == "restarted")
    assert run is not None
    return run, changes


def test_reports_are_counted_by_node() -> None:
    run, changes = received(report(1), report(2), report(1), report(2, batch(0, 2, 1)), report(2, batch(0, 2, 1)))
    assert changes == ["counted", "counted", "same", "replaced", "same"]
    assert run.first_at == NOW
    assert run.reports == {"n1": report(1), "n2": report(2, batch(0, 2, 1))}
    assert not run.complete
    assert received(*(report(node) for node in range(4)))[0].complete
    assert set(changes) | {"restarted"} == set(preflight.CHANGES)


@pytest.mark.parametrize(("after", "change"), [(WITHIN - SECOND, "counted"), (WITHIN, "restarted")])
def test_the_time_to_collect_counts_from_the_first_report(after: timedelta, change: str) -> None:
    run = preflight.receive(None, report(1), now=NOW).run
    run = preflight.receive(run, report(2), now=NOW + WITHIN / 2).run
    assert preflight.receive(run, report(1), now=NOW + WITHIN - SECOND).run.first_at == NOW
    got = preflight.receive(run, report(3), now=NOW + after)
    assert got.change == change
    assert preflight.expired(run, now=NOW + after) is (change == "restarted")
    if change == "restarted":
        assert got.run == preflight.Run(size=4, first_at=NOW + WITHIN, reports={"n3": report(3)})
        assert str(got.because) == "Only 2 of 4 reports arrived within 30 min, from n1, n2. They get no verdict."


def test_a_new_report_after_completion_starts_a_new_run() -> None:
    run = preflight.receive(None, report(1), now=NOW).run
    assert preflight.receive(run, report(1), now=NOW + WITHIN).change == "restarted"


def test_the_default_time_to_collect() -> None:
    assert WITHIN.total_seconds() == preflight.COLLECT_TIMEOUT.total_seconds() == 1800


def test_a_different_size_starts_a_new_run() -> None:
    run, _ = received(report(1), report(2))
    got = preflight.receive(run, report(3, size=2), now=NOW + SECOND)
    assert (got.change, got.run) == (
        "restarted",
        preflight.Run(size=2, first_at=NOW + SECOND, reports={"n3": report(3, size=2)}),
    )
    assert str(got.because) == "n3 reports a run of 2 nodes, not 4. The 2 earlier reports are dropped."


def test_a_complete_run_does_not_expire_or_grow() -> None:
    run, _ = received(report(1, size=2), report(2, size=2))
    assert not preflight.expired(run, now=NOW + 9 * WITHIN)
    assert preflight.receive(run, report(1, size=2), now=NOW + 9 * WITHIN).change == "same"
    again = preflight.receive(run, report(1, batch(0, 1, 2), size=2), now=NOW + 9 * WITHIN)
    assert (again.change, len(again.run.reports)) == ("restarted", 1)
    assert str(again.because) == "n1 reported again after the verdict. A new run begins."


# --- the verdict

# Three slots of four nodes: who meets whom.
MATCHES = [[(1, 2), (3, 4)], [(1, 3), (2, 4)], [(1, 4), (2, 3)]]


def job(bad: set[tuple[int, int, int]] = frozenset(), **abnormal: str) -> list[preflight.Report]:  # type: ignore[assignment]
    """Four nodes; ``bad`` are (slot, own, peer) that the first of the two reports as failed."""
    batches: dict[int, list[dict[str, Any]]] = {node: [] for node in range(1, 5)}
    for slot, pairs in enumerate(MATCHES):
        for one, other in pairs:
            for own, peer in ((one, other), (other, one)):
                status = "fail" if (slot, own, peer) in bad else "ok"
                batches[own].append(batch(slot, own, peer, status))
    return [
        report(node, *batches[node], **({abnormal[f"n{node}"]: 2} if f"n{node}" in abnormal else {}))
        for node in range(1, 5)
    ]


def judged(*reports: preflight.Report, at: datetime = NOW) -> preflight.Verdict:
    return preflight.evaluate(received(*reports)[0], now=at, within=WITHIN)


def said(verdict: preflight.Verdict) -> list[str]:
    return [str(one) for one in verdict.because]


def test_a_healthy_job() -> None:
    verdict = judged(*job())
    assert verdict == preflight.Verdict(
        state="complete",
        received=4,
        expected=4,
        expected_slots=3,
        abnormal=(),
        slow=(),
        suspects=(),
        slots={"n1": 3, "n2": 3, "n3": 3, "n4": 3},
        because=(),
    )
    assert verdict.isolate == ()


EVERY_SLOT_OF_1 = {(0, 1, 2), (1, 1, 3), (2, 1, 4)}


def test_a_node_that_failed_in_every_slot_is_slow() -> None:
    verdict = judged(*job(EVERY_SLOT_OF_1))
    assert (verdict.slow, verdict.isolate, verdict.suspects) == (("n1",), ("n1",), ())
    assert said(verdict) == ["n1 failed all 3 rounds that count."]


def test_either_node_of_a_pair_may_report_it() -> None:
    assert judged(*job({(0, 2, 1), (1, 3, 1), (2, 4, 1)})).slow == ("n1",)
    assert judged(*job({(0, 1, 2), (1, 3, 1), (2, 1, 4)})).slow == ("n1",)


@pytest.mark.parametrize("missing", sorted(EVERY_SLOT_OF_1))
def test_a_node_that_passed_once_is_not_slow(missing: tuple[int, int, int]) -> None:
    assert judged(*job(EVERY_SLOT_OF_1 - {missing})).slow == ()


def test_two_slow_nodes() -> None:
    bad = EVERY_SLOT_OF_1 | {(1, 2, 4), (2, 2, 3)}
    assert judged(*job(bad)).slow == ("n1", "n2")


@pytest.mark.parametrize("dropped", range(1, 5))
def test_a_missing_report_means_incomplete_never_slow(dropped: int) -> None:
    reports = [one for one in job(EVERY_SLOT_OF_1) if one.node != f"n{dropped}"]
    waiting = judged(*reports)
    assert (waiting.state, waiting.received, waiting.expected, waiting.slow) == ("waiting", 3, 4, ())
    assert said(waiting) == ["3 of 4 reports have arrived."]
    late = judged(*reports, at=NOW + WITHIN)
    assert (late.state, late.slow) == ("expired", ())
    names = ", ".join(one.node for one in reports)
    assert said(late) == [f"Only 3 of 4 reports arrived within 30 min, from {names}. They get no verdict."]


def test_an_abnormal_node_is_known_at_once() -> None:
    first = report(1, gpu_check=2, storage_check=2)
    verdict = judged(first)
    assert (verdict.state, verdict.abnormal, verdict.isolate) == ("waiting", ("n1",), ("n1",))
    assert said(verdict) == ["n1 failed gpu_check, storage_check.", "1 of 4 reports have arrived."]
    assert judged(first, at=NOW + WITHIN).abnormal == ("n1",)


def test_slots_against_an_abnormal_node_do_not_count() -> None:
    """kcover flags n2, whose only failures are against the abnormal node and one transient pair."""
    verdict = judged(*job({(0, 2, 1), (1, 2, 4)}, n1="gpu_check"))
    assert (verdict.abnormal, verdict.slow, verdict.isolate) == (("n1",), (), ("n1",))
    assert verdict.slots == {"n2": 2, "n3": 2, "n4": 2}
    verdict = judged(*job({(1, 2, 4), (2, 3, 2)}, n1="storage_check"))
    assert (verdict.abnormal, verdict.slow, verdict.isolate) == (("n1",), ("n2",), ("n1", "n2"))
    assert said(verdict) == ["n1 failed storage_check.", "n2 failed all 2 rounds that count."]


def test_the_names_are_sorted_together() -> None:
    bad = {(0, 1, 2), (1, 1, 3)}
    assert judged(*job(bad, n4="gpu_check")).isolate == ("n1", "n4")


def test_a_node_paired_only_with_abnormal_nodes_is_not_slow() -> None:
    bad = {(slot, 4, peer) for slot, peer in enumerate((3, 2, 1))}
    verdict = judged(*job(bad, n1="gpu_check", n2="gpu_check", n3="gpu_check"))
    assert (verdict.slow, verdict.slots) == ((), {"n4": 0})


def test_without_abnormal_nodes_every_slot_must_be_run() -> None:
    def without(report: preflight.Report, slot: int) -> preflight.Report:
        kept = tuple(one for one in report.batches if one.slot != slot)
        return preflight.Report(node=report.node, size=report.size, address=report.address, batches=kept)

    reports = [without(one, 2) for one in job(EVERY_SLOT_OF_1)]
    verdict = judged(*reports)
    assert (verdict.slow, verdict.slots) == ((), {"n1": 2, "n2": 2, "n3": 2, "n4": 2})
    assert said(verdict)[0] == "n1 ran 2 of 3 rounds, too few to call it slow."
    assert len(verdict.because) == 4
    # one end's word for a slot is enough
    one_end = [without(one, 2) if one.node == "n1" else one for one in job({(0, 1, 2), (1, 1, 3), (2, 4, 1)})]
    assert judged(*one_end).slow == ("n1",)


def test_a_job_of_two_has_suspects() -> None:
    one, other = report(1, batch(0, 1, 2, "fail"), size=2), report(2, batch(0, 2, 1), size=2)
    verdict = judged(one, other)
    assert (verdict.slow, verdict.suspects, verdict.isolate) == ((), ("n1", "n2"), ())
    assert verdict.because == (reasons.of("preflight_suspects", nodes="n1, n2"),)
    fine = judged(report(1, batch(0, 1, 2), size=2), other)
    assert (fine.suspects, fine.because) == ((), ())


def test_the_peer_of_an_abnormal_node_in_a_job_of_two_is_no_suspect() -> None:
    verdict = judged(report(1, gpu_check=2, size=2), report(2, batch(0, 2, 1, "fail"), size=2))
    assert (verdict.abnormal, verdict.slow, verdict.suspects) == (("n1",), (), ())


def test_an_address_claimed_by_two_nodes_belongs_to_neither() -> None:
    reports = job(EVERY_SLOT_OF_1)
    doubled = [report(9, batch(0, 1, 2)) if one.node == "n4" else one for one in reports]
    assert judged(*doubled).slow == judged(*reversed(doubled)).slow == ()


def test_an_unknown_address_is_ignored() -> None:
    reports = job(EVERY_SLOT_OF_1)
    stranger = [report(9, batch(0, 9, 8)) if one.node == "n4" else one for one in reports]
    verdict = judged(*stranger)
    assert (verdict.slow, verdict.slots["n9"], verdict.slots["n1"]) == ((), 0, 2)


def test_every_state_is_known() -> None:
    states = {judged(*job()).state, judged(report(1)).state, judged(report(1), at=NOW + WITHIN).state}
    assert states == set(preflight.STATES)


# --- invariant 41


@st.composite
def jobs(draw: st.DrawFn) -> tuple[int, list[list[tuple[int, int]]], set[int], set[tuple[int, int, int]]]:
    """A job: its size, who met whom in each slot, its abnormal nodes, and which ends reported a failure."""
    size = draw(st.sampled_from([2, 4, 6, 8]))
    slots = draw(st.integers(0, preflight.expected_batches(size)))
    matches = []
    for _ in range(slots):
        order = draw(st.permutations(range(1, size + 1)))
        matches.append([(order[place], order[place + 1]) for place in range(0, size, 2)])
    abnormal = draw(st.sets(st.integers(1, size), max_size=2))
    slow = draw(st.sets(st.integers(1, size), max_size=2))
    ends = [(slot, own, peer) for slot, pairs in enumerate(matches) for a, b in pairs for own, peer in ((a, b), (b, a))]
    bad = {end for end in ends if slow & {end[1], end[2]}} | (
        draw(st.sets(st.sampled_from(ends), max_size=4)) if ends else set()
    )
    return size, matches, abnormal, bad


def reports_of(
    size: int, matches: list[list[tuple[int, int]]], abnormal: set[int], bad: set[tuple[int, int, int]]
) -> list[preflight.Report]:
    return [
        report(
            node,
            *(
                batch(slot, node, other, "fail" if (slot, node, other) in bad else "ok")
                for slot, pairs in enumerate(matches)
                for pair in pairs
                if node in pair
                for other in pair
                if other != node
            ),
            size=size,
            gpu_check=2 if node in abnormal else 1,
        )
        for node in range(1, size + 1)
    ]


@given(jobs())
def test_inv_41_the_verdict_follows_the_rule(made: Any) -> None:
    size, matches, abnormal, bad = made
    verdict = judged(*reports_of(*made))
    slow = set()
    for node in set(range(1, size + 1)) - abnormal:
        effective = [
            (slot, one, other)
            for slot, pairs in enumerate(matches)
            for one, other in pairs
            if node in (one, other) and not {one, other} & abnormal
        ]
        enough = len(effective) >= (1 if abnormal else preflight.expected_batches(size))
        if enough and effective and all({(s, a, b), (s, b, a)} & bad for s, a, b in effective):
            slow.add(f"n{node}")
    assert verdict.abnormal == tuple(sorted(f"n{node}" for node in abnormal))
    assert verdict.slow == (() if size == 2 else tuple(sorted(slow)))
    assert verdict.suspects == (tuple(sorted(slow)) if size == 2 else ())


@given(jobs(), st.data())
def test_inv_41_order_and_duplicates_change_nothing(made: Any, data: st.DataObject) -> None:
    reports = reports_of(*made)
    expected = judged(*reports)
    mixed = data.draw(st.permutations(reports + data.draw(st.lists(st.sampled_from(reports), max_size=6))))
    got = judged(*mixed)
    assert got == expected
    assert said(got) == said(expected)


@given(jobs(), st.data())
def test_inv_41_the_reporting_node_of_a_pair_does_not_matter(made: Any, data: st.DataObject) -> None:
    size, matches, abnormal, bad = made
    normal = {(slot, a, b) for slot, a, b in bad if not {a, b} & abnormal}  # an abnormal node's word is not read
    turned = {(slot, b, a) if data.draw(st.booleans()) else (slot, a, b) for slot, a, b in normal}
    assert judged(*reports_of(size, matches, abnormal, turned)) == judged(*reports_of(size, matches, abnormal, normal))


@given(jobs(), st.data())
def test_inv_41_missing_reports_mean_incomplete(made: Any, data: st.DataObject) -> None:
    reports = reports_of(*made)
    part = data.draw(
        st.lists(st.sampled_from(reports), min_size=1, max_size=len(reports) - 1, unique_by=lambda one: one.node)
    )
    for at, state in ((NOW, "waiting"), (NOW + WITHIN, "expired")):
        verdict = judged(*part, at=at)
        assert (verdict.state, verdict.slow, verdict.suspects) == (state, (), ())
        assert set(verdict.abnormal) == {one.node for one in part if one.failed_checks}
