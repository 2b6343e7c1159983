"""Lines of one fault in a log store: each is an entry of its own, and the fault counts once."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from kcover.sources import log_lines, loki
from kcover_portal.fleet.models import Cluster
from kcover_portal.incidents.models import Incident
from tests.portal.sources.conftest import add, pull
from tests.portal.sources.stand_ins import StandIns

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
SXID = "nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 20034, "
PARTS = (f"{SXID}Data {{0x0000002b}}", f"{SXID}Non-fatal, Link 44 LTSSM", f"{SXID}Severity 0 Engine instance 44")
XID = "NVRM: Xid (PCI:0000:01:00): 79, pid=1122, GPU has fallen off the bus."
PLAIN = "NVRM: GPU 0000:01:00.0: GPU has fallen off the bus."
OTHER = "NVRM: GPU 0000:02:00.0: GPU has fallen off the bus."
CARD = "NVRM: The NVIDIA GPU 0000:02:00.0 (PCI ID: 10de:2c31)"
NEEDS_OPEN = "NVRM: installed in this system requires use of the NVIDIA open kernel modules."
INIT = "NVRM: GPU 0000:02:00.0: RmInitAdapter failed! (0x22:0x56:884)"
SECOND = 10**9


def told(lines: Sequence[tuple[float, str]], node: str = "gpu-1") -> list[tuple[int | str, str]]:
    begin = log_lines.nanoseconds(NOW)
    values = [[str(begin + int(after * SECOND)), line] for after, line in lines]
    body = {"data": {"resultType": "streams", "result": [{"stream": {"node": node}, "values": values}]}}
    page = loki.read(body, loki.queries({})[0], now=NOW + timedelta(minutes=1))
    assert not page.batch.rejected
    return [(one.code, one.device.slot) for one in page.batch.observations]


def test_an_sxid_of_three_lines_counts_once_with_its_severity(
    east: Cluster, stand_ins: StandIns, now: datetime
) -> None:
    for number, line in enumerate(PARTS):
        stand_ins.logs.add_kernel_line("gpu-1", line, now - timedelta(milliseconds=10 - number))
    source = pull(add(east, "loki", now=now, url=stand_ins.url), at=now + timedelta(seconds=1))
    assert source.rejected == 0
    [row] = Incident.objects.all()
    assert (row.code, row.count, row.severity) == ("20034", 1, "warning")


@pytest.mark.parametrize(
    ("lines", "slots"),
    [
        ([XID, PLAIN], ["0000:01:00"]),
        ([PLAIN, XID], ["0000:01:00"]),
        ([PLAIN], ["0000:01:00"]),
        ([XID, OTHER], ["0000:01:00", "0000:02:00"]),
    ],
)
def test_a_lost_gpu_of_two_lines_counts_once(lines: list[str], slots: list[str]) -> None:
    assert told([(0, line) for line in lines]) == [(79, slot) for slot in slots]


def test_lines_of_another_time_count() -> None:
    assert told([(0, XID), (30, PLAIN)]) == [(79, "0000:01:00")] * 2


@pytest.mark.parametrize(
    ("lines", "codes"),
    [
        ([f"{CARD}#012{NEEDS_OPEN}", INIT], []),
        ([CARD, NEEDS_OPEN, INIT], []),
        ([f"{CARD.replace('02:00', '5d:00')}#012{NEEDS_OPEN}", INIT], ["gpu_init_failed"]),
        ([f"Nov 21 08:00:00 gpu-1 alice: {NEEDS_OPEN}", INIT], ["gpu_init_failed"]),
        ([INIT], ["gpu_init_failed"]),
    ],
)
def test_a_card_that_the_driver_cannot_run_is_no_fault(lines: list[str], codes: list[str]) -> None:
    assert [code for code, _ in told([(0, line) for line in lines])] == codes
    if not codes:
        assert told([(0, line) if line != INIT else (30, line) for line in lines]) != []


@pytest.mark.parametrize(
    "form", ["%b %d %H:%M:%S gpu-1 kernel: ", "[%a %b %d %H:%M:%S %Y] ", "%m月 %d %H:%M:%S gpu-1 kernel: "]
)
def test_a_line_that_a_collector_reads_again_is_no_new_fault(
    east: Cluster, stand_ins: StandIns, now: datetime, form: str
) -> None:
    """It has lost its position, and gives the old lines the present time: a healthy node was rebooted once more."""
    source = add(east, "loki", now=now, url=stand_ins.url)
    second = timedelta(seconds=1)
    line = (now - 2 * second).strftime(form) + XID
    for after in (-1 * second, timedelta(), 20 * second, timedelta(hours=2)):
        stand_ins.logs.add_kernel_line("gpu-1", line, now + after)
    old = (now - timedelta(days=3)).strftime(form) + XID.replace("79", "62")
    stand_ins.logs.add_kernel_line("gpu-1", old, now)
    stand_ins.logs.add_kernel_line("gpu-1", (now - second).strftime(form) + XID, now)
    pull(source, at=now + second)
    pull(source, at=now + timedelta(hours=2, seconds=1))
    assert list(Incident.objects.values_list("code", "count")) == [("79", 2)]


@pytest.mark.parametrize("hours", [-12, -8, 0, 8, 14])
def test_a_time_without_a_zone_may_be_of_any_zone(hours: int) -> None:
    header = (NOW + timedelta(hours=hours)).strftime("%b %d %H:%M:%S gpu-1 kernel: ")
    begin = log_lines.nanoseconds(NOW)
    body = {
        "data": {
            "resultType": "streams",
            "result": [{"stream": {"node": "gpu-1"}, "values": [[str(begin), header + XID]]}],
        }
    }
    [seen] = loki.read(body, loki.queries({})[0], now=NOW).batch.observations
    assert seen.seen_at == NOW


@pytest.mark.parametrize("year", ["9999-12-31 23:59:59", "[Fri Dec 31 23:59:59 9999]"])
def test_a_time_at_the_end_of_all_times_harms_no_other_line(year: str) -> None:
    assert told([(0, f"{year} {XID}"), (1, OTHER)])[-1] == (79, "0000:02:00")
    pods = loki.queries({})[1]
    values = [[str(log_lines.nanoseconds(NOW)), f"{year} invalid device ordinal"]]
    body = {"data": {"resultType": "streams", "result": [{"stream": {"node": "gpu-1"}, "values": values}]}}
    assert len(loki.read(body, pods, now=NOW).batch.observations) == 1


def test_the_line_of_another_driver_explains_no_failed_start() -> None:
    other = "mlx5_core 0000:17:00.0: tunable is not supported by this firmware"
    assert told([(0, other), (1, INIT)]) == [("gpu_init_failed", "0000:02:00")]
