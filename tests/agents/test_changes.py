"""What is told of findings that repeat."""

from datetime import UTC, datetime, timedelta

from agents.probes.changes import Changes
from agents.probes.finding import finding

START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


class Teller:
    def __init__(self):
        self.changes, self.now = Changes(), START

    def tell(self, *findings, after=60.0):
        self.now += timedelta(seconds=after)
        checks, faults = self.changes.news(findings, now=self.now, source="nvml")
        return [(check.name, check.status) for check in checks], [(fault.kind, fault.code) for fault in faults]


def test_a_result_is_told_when_it_changes_and_each_hour():
    teller = Teller()
    good, bad = finding("ecc", False), finding("ecc", True, message="1 error")
    assert teller.tell(good) == ([("ecc", "pass")], [])
    assert [teller.tell(good) for _ in range(58)] == [([], [])] * 58
    assert teller.tell(good, after=120) == ([("ecc", "pass")], [])
    assert teller.tell(bad) == ([("ecc", "fail")], [])
    assert teller.tell(good) == ([("ecc", "pass")], [])


def test_a_value_that_moves_is_told_now_and_then():
    teller = Teller()
    told = [teller.tell(finding("clock", "warn", value=n, message=f"{n} ms off"))[0] for n in range(25)]
    assert [bool(one) for one in told] == [n % 10 == 0 for n in range(25)]
    assert teller.tell(finding("clock", False, value=3), after=1) == ([("clock", "pass")], [])
    assert teller.tell(finding("clock", False, value=2), after=3000) == ([], [])


def test_a_fault_is_told_at_once_and_again_while_it_lasts():
    teller = Teller()
    bad = finding("fabric", True, device="GPU-aaaaaaaa", message="late", fault=True, pci="0000:4e:00")
    assert teller.tell(bad) == ([("fabric", "fail")], [("check", "fabric")])
    assert [teller.tell(bad)[1] for _ in range(9)] == [[]] * 9
    assert teller.tell(bad)[1] == [("check", "fabric")]
    good = finding("fabric", False, device="GPU-aaaaaaaa", fault=True)
    assert teller.tell(good)[1] == []
    assert teller.tell(bad)[1] == [("check", "fabric")]


def test_what_only_warns_or_broke_is_no_fault():
    for status in ("warn", "error", "skipped"):
        assert Teller().tell(finding("fabric", status, fault=True))[1] == []


def test_devices_are_told_apart():
    teller = Teller()
    assert len(teller.tell(finding("ecc", False, device="a"), finding("ecc", False, device="b"))[0]) == 2


def test_a_clock_that_is_set_back_silences_nothing():
    teller = Teller()
    bad = finding("fabric", True, fault=True)
    teller.tell(bad)
    assert teller.tell(bad, after=-86400) == ([("fabric", "fail")], [("check", "fabric")])


def test_the_fault_names_its_gpu():
    one = finding("fabric", True, device="GPU-aaaaaaaa", message="late", fault=True, pci="0000:4e:00")
    _, (fault,) = Changes().news([one], now=START, source="nvml")
    assert (fault.gpu_uuid, fault.pci, fault.message, fault.source) == ("GPU-aaaaaaaa", "0000:4e:00", "late", "nvml")
    _, (fault,) = Changes().news([finding("ib_port", True, device="mlx5_0/1", fault=True)], now=START)
    assert fault.gpu_uuid is None
