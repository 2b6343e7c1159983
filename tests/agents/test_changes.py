"""The selection of repeated findings to report."""

from datetime import UTC, datetime, timedelta

from agents.probes.changes import ChangeFilter
from agents.probes.finding import Severity, finding

START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


class Teller:
    def __init__(self):
        self.changes, self.now = ChangeFilter(), START

    def tell(self, *findings, after=60.0):
        self.now += timedelta(seconds=after)
        checks, faults = self.changes.select(findings, now=self.now, source="nvml")
        return [(check.name, check.status) for check in checks], [(fault.kind, fault.code) for fault in faults]


def test_a_result_is_reported_when_it_changes_and_each_hour():
    teller = Teller()
    good, bad = finding("ecc", Severity.OK), finding("ecc", Severity.FAILURE, message="1 error")
    assert teller.tell(good) == ([("ecc", "pass")], [])
    assert [teller.tell(good) for _ in range(58)] == [([], [])] * 58
    assert teller.tell(good, after=120) == ([("ecc", "pass")], [])
    assert teller.tell(bad) == ([("ecc", "fail")], [])
    assert teller.tell(good) == ([("ecc", "pass")], [])


def test_a_changing_value_is_reported_at_intervals():
    teller = Teller()
    reported = [teller.tell(finding("clock", Severity.WARNING, value=n, message=f"{n} ms off"))[0] for n in range(25)]
    assert [bool(one) for one in reported] == [n % 10 == 0 for n in range(25)]
    assert teller.tell(finding("clock", Severity.OK, value=3), after=1) == ([("clock", "pass")], [])
    assert teller.tell(finding("clock", Severity.OK, value=2), after=3000) == ([], [])


def test_a_fault_is_reported_at_once_and_again_while_it_lasts():
    teller = Teller()
    bad = finding("fabric", Severity.FAULT, device="GPU-aaaaaaaa", message="late", pci="0000:4e:00")
    assert teller.tell(bad) == ([("fabric", "fail")], [("check", "fabric")])
    assert [teller.tell(bad)[1] for _ in range(9)] == [[]] * 9
    assert teller.tell(bad)[1] == [("check", "fabric")]
    good = finding("fabric", Severity.OK, device="GPU-aaaaaaaa")
    assert teller.tell(good)[1] == []
    assert teller.tell(bad)[1] == [("check", "fabric")]


def test_a_finding_that_is_not_a_fault_reports_no_fault():
    for severity in (Severity.WARNING, Severity.FAILURE, Severity.ERROR, Severity.SKIPPED):
        assert Teller().tell(finding("fabric", severity))[1] == []


def test_results_of_different_devices_are_reported_separately():
    teller = Teller()
    assert len(teller.tell(finding("ecc", Severity.OK, device="a"), finding("ecc", Severity.OK, device="b"))[0]) == 2


def test_a_clock_that_is_set_back_suppresses_no_result():
    teller = Teller()
    bad = finding("fabric", Severity.FAULT)
    teller.tell(bad)
    assert teller.tell(bad, after=-86400) == ([("fabric", "fail")], [("check", "fabric")])


def test_the_fault_names_its_gpu():
    one = finding("fabric", Severity.FAULT, device="GPU-aaaaaaaa", message="late", pci="0000:4e:00")
    _, (fault,) = ChangeFilter().select([one], now=START, source="nvml")
    assert (fault.gpu_uuid, fault.pci, fault.message, fault.source) == ("GPU-aaaaaaaa", "0000:4e:00", "late", "nvml")
    _, (fault,) = ChangeFilter().select([finding("ib_port", Severity.FAULT, device="mlx5_0/1")], now=START)
    assert fault.gpu_uuid is None
