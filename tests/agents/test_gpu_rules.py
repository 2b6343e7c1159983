"""The meaning of GPU states by the published limits; the test sets time and states."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from agents.checks import gpu_state
from agents.probes.changes import ChangeFilter
from agents.probes.gpu import nvml
from agents.probes.gpu.device import Device, NvLinks, PcieLink, RowRemapping
from agents.probes.gpu.nvidia import NvidiaProbe

START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
ROWS = RowRemapping(corrected=0, uncorrected=0, pending=False, failed=False, banks_without_spares=0)
LINKS = NvLinks(count=4, active=4, errors={"replay": 0, "recovery": 0})
GOOD = Device(
    index=0,
    uuid="GPU-aaaaaaaa",
    pci="0000:4e:00",
    model="NVIDIA H100 80GB HBM3",
    busy=True,
    processes=(),
    recovery_action=0,
    rows=ROWS,
    repair_pending=False,
    ecc=True,
    ecc_corrected=0,
    ecc_uncorrected=0,
    sram_threshold=False,
    clock_reasons=0x4,
    throttled_ns={"thermal": 0, "board": 0},
    pcie=PcieLink(width=16, max_width=16, generation=5, max_generation=5, replays=0),
    nvlink=LINKS,
    fabric=(3, 0, 0),
    slowdown_margin=40,
    power_limit=700_000,
    power_default=700_000,
)


class Node:
    def __init__(self, *devices, expected=None):
        self.devices = list(devices)
        self.now = START
        self.error = None
        self.expected = len(devices) if expected is None else expected
        self.probe = NvidiaProbe(expected=lambda: self.expected, query=self.ask)

    def ask(self):
        if self.error:
            raise self.error
        return tuple(self.devices)

    def set(self, place=0, **changes):
        self.devices[place] = replace(self.devices[place], **changes)

    def observe(self, *, after=60.0):
        self.now += timedelta(seconds=after)
        return self.probe.observe(self.now)

    def links(self):
        """What the next look says of NVLinks."""
        return [one.check for one in self.observe().findings if one.check.name == "nvlink"]

    def bad(self, **kwargs):
        """Name, status, whether it is a fault: of everything that is not a pass."""
        findings = self.observe(**kwargs).findings
        return [(one.check.name, one.check.status, one.is_fault) for one in findings if one.check.status != "pass"]


@pytest.fixture
def node():
    return Node(GOOD, replace(GOOD, index=1, uuid="GPU-bbbbbbbb", pci="0000:5e:00"))


def test_a_healthy_node_passes_everything(node):
    for _ in range(15):
        assert node.bad() == []
    names = sorted({one.check.name for one in node.observe().findings})
    assert names == [
        "clock_limits",
        "clocks",
        "driver",
        "ecc",
        "ecc_mode",
        "fabric",
        "gpu",
        "gpu_count",
        "nvlink",
        "nvlink_errors",
        "pcie_generation",
        "pcie_replays",
        "pcie_width",
        "power_limit",
        "recovery_action",
        "remap_failure",
        "remap_spares",
        "remapped",
        "repair_pending",
        "sram_threshold",
        "temperature",
    ]


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"recovery_action": 1}, ("recovery_action", "fail", True)),
        ({"recovery_action": 2}, ("recovery_action", "fail", True)),
        ({"recovery_action": 3}, ("recovery_action", "warn", False)),
        ({"recovery_action": 7}, ("recovery_action", "fail", True)),
        ({"rows": replace(ROWS, pending=True)}, ("remapped", "fail", False)),
        ({"rows": replace(ROWS, uncorrected=512)}, ("remap_failure", "fail", True)),
        ({"rows": replace(ROWS, banks_without_spares=1)}, ("remap_spares", "warn", False)),
        ({"rows": None, "pages_retired": 4, "pages_pending": True}, ("retired_pages", "fail", False)),
        ({"rows": None, "pages_retired": 63, "pages_pending": False}, ("retired_pages", "fail", True)),
        ({"repair_pending": True}, ("repair_pending", "warn", False)),
        ({"ecc": False}, ("ecc_mode", "warn", False)),
        ({"ecc_uncorrected": 1}, ("ecc", "fail", False)),
        ({"ecc_corrected": 20_000_001}, ("ecc", "warn", False)),
        ({"sram_threshold": True}, ("sram_threshold", "fail", True)),
        ({"pcie": replace(GOOD.pcie, width=8)}, ("pcie_width", "fail", True)),
        ({"pcie": replace(GOOD.pcie, generation=1)}, ("pcie_generation", "warn", False)),
        ({"nvlink": replace(LINKS, recovery_failed=1)}, ("nvlink_errors", "fail", True)),
        ({"fabric": (3, 1, 0)}, ("fabric", "fail", True)),
        ({"fabric": (3, 0, 0x1)}, ("fabric", "fail", True)),
        ({"fabric": (3, 0, 0x200)}, ("fabric", "fail", True)),
        ({"slowdown_margin": 4}, ("temperature", "warn", False)),
        ({"slowdown_margin": None, "temperature": 86, "slowdown": 90}, ("temperature", "warn", False)),
        ({"slowdown_margin": 0, "temperature": 91, "slowdown": 90}, ("temperature", "warn", False)),
        ({"power_limit": 500_000}, ("power_limit", "warn", False)),
        ({"errors": ("Margin: Unknown Error",)}, ("nvml", "error", False)),
    ],
)
def test_a_state_is_judged_by_one_look(node, changes, found):
    node.set(**changes)
    assert node.bad() == [found]


@pytest.mark.parametrize(("pending", "failed"), [(False, False), (True, False), (False, True), (True, True)])
def test_the_check_agrees_with_the_probe_of_its_name(node, pending, failed):
    node.set(rows=replace(ROWS, pending=pending, failed=failed))
    found = {one.check.name: one.check for one in node.observe().findings if one.check.device == GOOD.uuid}
    (check,) = gpu_state.Remapped(lambda: tuple(node.devices[:1])).run({})
    assert check == found["remapped"]
    assert check.status == ("fail" if pending or failed else "pass")
    assert found["remap_failure"].status == ("fail" if failed else "pass")


@pytest.mark.parametrize(
    "changes",
    [
        {"pcie": replace(GOOD.pcie, generation=1), "busy": False},  # an idle link slows down by design
        {"ecc_corrected": 20_000_000},
        {"slowdown_margin": 0},  # some H100 do not know
        {"slowdown_margin": -3},
        {"slowdown_margin": 4, "busy": False},
        {"slowdown_margin": None, "temperature": 86, "slowdown": 90, "busy": False},
        {"slowdown_margin": None, "temperature": 85, "slowdown": 90},
        {"slowdown_margin": None, "temperature": 85},
        {"rows": replace(ROWS, uncorrected=511, corrected=9)},
        {"fabric": (2, 0, 0)},  # under way
        {"fabric": (3, 0, 0x2)},  # "degraded bandwidth: false"
        {"clock_reasons": 0x40},  # one sample
        {"fabric": None, "nvlink": None, "rows": None, "ecc": None},
    ],
)
def test_harmless_states_are_not_findings(node, changes):
    node.set(**changes)
    assert node.bad() == []


def test_a_slowdown_warns_only_if_it_lasts_most_of_ten_minutes(node):
    for _ in range(4):
        node.set(clock_reasons=0x48)
        assert node.bad() == []
    assert node.bad() == [("clocks", "warn", False)]
    node.set(clock_reasons=0x4)
    assert [node.bad() for _ in range(4)][-1] == []


@pytest.mark.parametrize(("degrees", "words"), [(86, "4 °C below"), (90, "0 °C below"), (91, "1 °C above")])
def test_a_hot_gpu_is_described_relative_to_its_slowdown_temperature(node, degrees, words):
    node.set(slowdown_margin=None, temperature=degrees, slowdown=90)
    (check, _) = [one.check for one in node.observe().findings if one.check.name == "temperature"]
    assert (check.status, check.message, check.value) == ("warn", f"{words} the slowdown temperature", 90 - degrees)


def test_an_idle_gpu_is_not_judged_by_its_clocks(node):
    node.set(clock_reasons=0x48, busy=False)
    assert [node.bad() for _ in range(12)] == [[]] * 12


def test_time_under_a_clock_limit_is_a_share_of_the_time_since_the_last_look(node):
    node.observe()
    node.set(throttled_ns={"thermal": int(5e9), "board": 0})
    assert node.bad() == []
    node.set(throttled_ns={"thermal": int(15e9), "board": 0})
    assert node.bad() == [("clock_limits", "warn", False)]


def test_replays_are_judged_by_the_link_and_only_if_they_last(node):
    node.observe()
    for minute in range(1, 4):
        node.set(pcie=replace(GOOD.pcie, replays=32 * minute))  # Gen5 x16: 31 a minute are accepted
        found = node.bad()
    assert found == [("pcie_replays", "fail", True)]
    assert node.bad() == []


def test_counters_of_a_reloaded_driver_start_from_zero(node):
    node.set(pcie=replace(GOOD.pcie, replays=1_000_000), ecc_uncorrected=0)
    node.observe()
    node.set(pcie=replace(GOOD.pcie, replays=3))
    assert [node.bad() for _ in range(4)] == [[]] * 4


def test_nvlink_errors_count_when_they_grow(node):
    node.set(nvlink=replace(LINKS, errors={"replay": 7, "recovery": 1}))
    assert node.bad() == []
    node.set(nvlink=replace(LINKS, errors={"replay": 8, "recovery": 1}))
    assert node.bad() == [("nvlink_errors", "warn", False)]
    assert node.bad() == []
    node.set(nvlink=replace(LINKS, errors={"replay": 8, "recovery": 1, "ECC": 3}))  # a new counter is no growth
    assert node.bad() == []
    node.set(nvlink=replace(LINKS, errors={"replay": 8, "recovery": 1, "ECC": 4}))
    assert [one.check.message for one in node.observe().findings if one.check.status == "warn"] == [
        "1 ECC errors since the last run"
    ]


@pytest.mark.parametrize(
    ("grown", "found"),
    [
        ((59, 59, 59, 59), []),  # under one a second on each of them
        ((0, 0, 60, 0), [("nvlink_errors", "warn", False)]),
        ((0, 0, 5_999, 0), [("nvlink_errors", "warn", False)]),
        ((0, 0, 0, 6_000), [("nvlink_errors", "fail", True)]),
        ((-500, 0, 0, 0), []),  # a reset
    ],
)
def test_crc_errors_are_a_rate_of_one_link(node, grown, found):
    node.set(nvlink=replace(LINKS, crc=(1_000, 1_000, 1_000, 1_000)))
    assert node.bad() == []
    node.set(nvlink=replace(LINKS, crc=tuple(1_000 + count for count in grown)))
    assert node.bad() == found
    assert node.bad() == []


def test_a_missing_link_is_confirmed_by_three_looks_and_by_the_peers():
    node = Node(*(replace(GOOD, index=index, uuid=f"GPU-{index:08}") for index in range(4)))
    node.set(2, nvlink=replace(LINKS, active=3))
    assert [node.bad(), node.bad()] == [[], []]
    assert node.bad() == [("nvlink", "fail", True)]
    node.set(2, nvlink=LINKS)
    assert node.bad() == []


def test_links_that_all_of_them_lost_warn():
    node = Node(*(replace(GOOD, index=index, uuid=f"GPU-{index:08}") for index in range(4)))
    node.observe()
    for place in range(4):
        node.set(place, nvlink=replace(LINKS, active=3))
    assert [node.bad(), node.bad()] == [[], []]
    assert node.bad() == [("nvlink", "warn", False)] * 4
    assert {check.message for check in node.links()} == {"3 links are up; there were 4 before"}


def test_without_a_fabric_a_link_is_missing_only_where_all_peers_have_it():
    """GPUs in two bridged pairs, one of which lost a bridge, and one GPU without any: all of it may be by design."""
    node = Node(*(replace(GOOD, index=index, uuid=f"GPU-{index:08}", fabric=None) for index in range(5)))
    for place, active in enumerate((4, 4, 2, 2, 0)):
        node.set(place, nvlink=replace(LINKS, active=active))
    assert [node.bad() for _ in range(4)] == [[]] * 4
    for place in range(1, 5):
        node.set(place, nvlink=LINKS)
    node.set(0, nvlink=replace(LINKS, active=3))
    assert [node.bad() for _ in range(3)] == [[], [], [("nvlink", "fail", True)]]
    node.set(0, nvlink=replace(LINKS, active=0))  # as if its bridge were taken out
    assert node.bad() == [("nvlink", "warn", False)]


@pytest.mark.parametrize("gone", ["in MIG mode", "lost", "taken out"])
@pytest.mark.parametrize("others", [0, 1])
def test_the_partner_of_a_gpu_that_goes_lacks_no_link(gone, others):
    bridged = [replace(GOOD, index=index, uuid=f"GPU-{index:08}", fabric=None) for index in range(2 + others)]
    node = Node(*bridged, expected=0)
    node.observe()
    node.set(0, nvlink=replace(LINKS, active=0))
    match gone:
        case "in MIG mode":
            node.set(1, mig=True, nvlink=replace(LINKS, active=0))
        case "lost":
            node.devices[1] = Device(index=1, lost="GPU is lost", code=nvml.GPU_IS_LOST)
        case _:
            del node.devices[1]
    for _ in range(5):
        node.observe()
        assert {check.status for check in node.links()} == {"pass"}


@pytest.mark.parametrize("error", [nvml.DriverError("away", code=9), nvml.ResetInProgress("a reset", code=9)])
def test_links_known_before_the_driver_was_away_are_forgotten(node, error):
    node.set(0, fabric=None)
    node.set(1, fabric=None)
    node.observe()
    node.error = error
    node.observe()
    node.error = None
    node.set(0, nvlink=replace(LINKS, active=2))
    node.set(1, nvlink=replace(LINKS, active=2))
    assert [node.bad() for _ in range(4)] == [[]] * 4


def test_a_gpu_in_mig_mode_uses_no_links():
    node = Node(GOOD, replace(GOOD, index=1, uuid="GPU-bbbbbbbb"), replace(GOOD, index=2, uuid="GPU-cccccccc"))
    node.set(0, nvlink=replace(LINKS, active=3))
    assert [node.bad() for _ in range(3)][-1] == [("nvlink", "fail", True)]
    node.set(0, mig=True, nvlink=replace(LINKS, active=0))
    node.observe()
    assert [(check.device, check.status) for check in node.links()] == [
        (device.uuid, "pass") for device in node.devices
    ]
    node.set(1, nvlink=replace(LINKS, active=3))
    assert [node.bad() for _ in range(3)][-1] == [("nvlink", "warn", False)]  # who is right, of two?


@pytest.mark.parametrize(
    ("active", "fabric", "status"),
    [
        (3, (3, 0, 0), "warn"),
        (0, (3, 0, 0), "warn"),  # NVSwitches join all of them
        (2, None, "pass"),  # links without a bridge, for all that anybody knows
        (4, None, "pass"),
        (0, None, "pass"),
    ],
)
def test_a_link_that_the_only_gpu_never_had_up_warns_where_there_is_a_fabric(active, fabric, status):
    node = Node(replace(GOOD, nvlink=replace(LINKS, active=active), fabric=fabric))
    assert [node.bad(), node.bad()] == [[], []]
    (check,) = node.links()
    assert check.status == status
    assert check.message == ("" if status == "pass" else f"{active} of its 4 links are up")


def test_a_fabric_that_never_ends_registering(node):
    node.set(fabric=(2, 0, 0))
    assert [node.bad() for _ in range(5)] == [[]] * 5
    assert node.bad() == [("fabric", "fail", True)]


def test_an_uncorrected_error_is_xid_48_once(node):
    assert node.observe().faults == ()
    node.set(ecc_uncorrected=2)
    (fault,) = node.observe().faults
    assert (fault.kind, fault.code, fault.pci, fault.gpu_uuid) == ("xid", 48, "0000:4e:00", "GPU-aaaaaaaa")
    assert fault.source == "nvml"
    assert node.observe().faults == ()


def test_errors_from_before_the_agent_started_are_not_reported(node):
    node.set(ecc_uncorrected=2)
    assert node.observe().faults == ()


def test_a_lost_gpu_is_xid_79_in_the_slot_where_it_was(node):
    node.observe()
    node.devices[0] = Device(index=0, lost="GPU is lost", code=nvml.GPU_IS_LOST)
    reading = node.observe()
    assert [(fault.code, fault.pci) for fault in reading.faults] == [(79, "0000:4e:00")]
    found = {one.check.name: one for one in reading.findings if one.check.status == "fail"}
    assert set(found) == {"gpu", "gpu_count"}
    assert (found["gpu"].check.device, found["gpu"].pci) == ("GPU-aaaaaaaa", "0000:4e:00")
    assert found["gpu_count"].check.message.startswith("1 of 2 GPUs answer")
    assert node.observe().faults == ()


def test_a_gpu_that_hangs_is_late_and_then_broken(node):
    node.observe()
    calm = node.devices[0]
    node.devices[0] = Device(index=0, lost="EccMode has not returned for 5 s", code=nvml.TIMEOUT, hung_seconds=5.0)
    found = {(one.check.name, one.check.device): one for one in node.observe().findings}
    late = found["gpu", GOOD.uuid]
    assert (late.check.status, late.is_fault, late.pci) == ("warn", False, "0000:4e:00")
    assert late.check.message == "the GPU does not answer: EccMode has not returned for 5 s"
    assert found["gpu_count", ""].check.status == "pass"
    assert found["gpu", "GPU-bbbbbbbb"].check.status == found["ecc", "GPU-bbbbbbbb"].check.status == "pass"
    node.set(hung_seconds=119.0)
    assert node.bad() == [("gpu_count", "fail", True), ("gpu", "fail", True)]
    assert node.observe().faults == ()
    node.devices[0] = calm
    assert node.bad() == []


def test_a_gpu_that_hangs_from_the_start_is_late_and_then_broken(node):
    node.devices[0] = Device(index=0, lost="the driver has not returned for 5 s", hung_seconds=5.0)
    assert node.bad() == [("gpu", "warn", False)]
    node.set(hung_seconds=119.0)
    assert node.bad() == [("gpu_count", "fail", True), ("gpu", "fail", True)]


def test_a_gpu_that_needs_a_reset_is_no_xid(node):
    node.observe()
    node.set(lost="GPU requires reset", code=nvml.RESET_REQUIRED)
    reading = node.observe()
    assert reading.faults == ()
    assert any(one.check.message.startswith("the GPU needs a reset") for one in reading.findings)


def test_a_gpu_lost_from_the_start_leaves_no_failure_behind_once_it_answers(node):
    """It has no UUID until then, and its place is no name that it is found by later."""
    changes = ChangeFilter()

    def reported():
        checks, faults = changes.select(node.observe().findings, now=node.now)
        return {check.device: check.status for check in checks if check.name == "gpu"}, [one.code for one in faults]

    second = node.devices[1]
    node.devices[1] = Device(index=1, lost="GPU is lost", code=nvml.GPU_IS_LOST)
    gpus, codes = reported()
    assert gpus == {GOOD.uuid: "pass", "": "fail"}
    assert "gpu" in codes
    node.devices[1] = second
    gpus, codes = reported()
    assert (gpus, codes) == ({"": "pass", second.uuid: "pass"}, [])


def test_fewer_gpus_than_there_must_be():
    assert Node(GOOD, expected=8).bad() == [("gpu_count", "fail", True)]


def test_another_gpu_in_the_slot_starts_without_history(node):
    node.observe()
    node.set(uuid="GPU-cccccccc", ecc_uncorrected=5)
    assert node.observe().faults == ()


def test_a_driver_that_is_gone_is_a_software_finding_where_there_are_gpus(node):
    node.error = nvml.DriverError("Driver Not Loaded", code=nvml.DRIVER_NOT_LOADED)
    assert node.bad() == [("driver", "fail", False)]
    node.error = nvml.DriverError("NVML Shared Library Not Found", code=nvml.LIBRARY_NOT_FOUND)
    assert node.bad() == [("driver", "error", False)]
    node.error = nvml.ResetInProgress("a GPU of this node is being reset", code=nvml.IN_USE)
    assert node.observe().findings == ()  # true of the reset alone
    node.error = nvml.DriverError("Driver Not Loaded", code=nvml.DRIVER_NOT_LOADED)
    node.expected = 0
    assert node.observe().findings == ()  # no GPU node
