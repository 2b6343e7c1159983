"""The weight of a report: what is a fault of the node, and what only resembles one."""

import pytest

from kcover.faults import weight
from kcover.faults.weight import Weight


@pytest.mark.parametrize(
    ("code", "text", "expected"),
    [
        (79, "", Weight.NODE),
        (13, "", Weight.PROGRAM),
        (43, "", Weight.PROGRAM),
        (51, "", Weight.INFO),
        (162, "", Weight.INFO),
        (99_999, "", Weight.NODE),
        (145, "", Weight.NODE),
        (145, "NVRM: Xid (PCI:0000:c5:00): 145, RLW_SRC_TRACK Nonfatal XC1 i0 Link 17 (0x0408", Weight.PROGRAM),
        (145, "NVRM: Xid (PCI:0000:c5:00): 145, RLW_SRC_TRACK Fatal XC1 i0", Weight.NODE),
        (62, "NVRM: Xid (PCI:0000:c5:00): 62, x, caused by previous Xid 13", Weight.PROGRAM),
        (79, "NVRM: Xid (PCI:0000:c5:00): 13, another", Weight.NODE),
    ],
)
def test_the_weight_of_an_xid(code: int, text: str, expected: Weight) -> None:
    assert weight.of_xid(code, text) is expected


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("GPU 0 had an uncontained error (XID 95)", 95),
        ("Xid: 79", 79),
        ("GPUXid79", 79),
        ("xid=13.", 13),
        ("XID error 48 on gpu-3", 48),
        ("MESSAGE=kernel: [1.0] NVRM: Xid (PCI:0000:18:00): 119, pid=1, name=nvc, Timeout", 119),
        ("Xid errors > 5 in 10m", None),
        ("XID 79 and XID 48", None),
        ("XID 31, 79 detected", None),
        ("Xid 31 and 79 found", None),
        ("XID 13/31/79", None),
        ("XID error 3 times on GPU 2", None),
        ("Xid 79, 2 GPUs affected", 79),
        ("Xid 79, 10 minutes ago", 79),
        ("Xid 79, pid=1234", 79),
        ("XID : 79", 79),
        ("Xid (79)", 79),
        ("GPU Xid errors: 13", 13),
        ("XID errors: 13, 13", 13),
        ("Xid error detected: 31", 31),
        ("Xid Error code 43", 43),
        ("XID 错误：43", 43),
        ("XID：13", 13),
        ("XID value is 43", 43),
        ('{"xid":43}', 43),
        ("Xid errors: 13 in the last 5 minutes", None),
        ("XID errors detected 2 times", None),
        ("XID 149.37 (err status 0x00000000) NVLINK_NETIR_ERROR detected on GPU PCI:0000:9b:00", 149),
        ("XID 149.37", None),
        ("GpuXidErrors5m", None),
        ("NVRM: Xid (PCI:0000:dc:00): 45, pid=1, name=python3, Ch 00000001 caused by previous Xid 149", 45),
        ("SXid 12028", None),
        ("Xid 0", None),
        ("", None),
    ],
)
def test_the_xid_that_a_text_names(text: str, code: int | None) -> None:
    assert weight.named_xid(text) == code


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        (
            # The message of a condition of NVSentinel, whose monitor writes all faults of the node into one line.
            "ErrorCode:13 PCI:0002:00:00 kernel: [16450076.435595] NVRM: Xid (PCI:0002:00:00): 13, pid=1, name=a, "
            "Graphics Exception. Recommended Action=NONE;ErrorCode:79 PCI:0001:00:00 kernel: [16450077.435595] "
            "NVRM: Xid (PCI:0001:00:00): 79, GPU has fallen off the bus. Recommended Action=RESTART_BM;",
            {13, 79},
        ),
        ("NVRM: Xid (PCI:0002:00:00): 13, pid=1, name=NVRM: Xid: 79, Graphics Exception", {13}),
        ("GPU 3: Xid 13, pid='<unknown>', name=xid 79, Graphics Exception", {13}),
        ("出现 Xid：31，79", {31, 79}),
        ("Xid 31、79 和 13", {13, 31, 79}),
        ("Xid 31 & 79", {31, 79}),
        # What NVSentinel's check of lost GPUs quotes: the driver printed no Xid.
        (
            "NVRM: The NVIDIA GPU 0000:b3:00.0 NVRM: (PCI ID: 10de:26b5) NVRM: fallen off the bus and is not",
            {79},
        ),
        ("a user said that the GPU has fallen off the bus", set()),
        ("Xid 79，2 GPUs", {79}),
        # What could come weighs no more than what is named, and no less than nothing.
        ("Application could not continue: Xid 31 on GPU 3", {31}),
        ("GPU error occurred if any: Xid 43", {43}),
        ("GPU 3 could not be reset, Xid 79", {79}),
        ("the error may be of a program, such as Xid 13", {13}),
        ("corrected errors may escalate to Xid 48", set()),
        # Windows, counts and dates.
        ("XID 错误在 5 分钟内增加", set()),
        ("XID 告警发生在 10 秒内", set()),
        ("XID 告警 3 台 GPU", set()),
        ("XIDエラー 5分間", set()),
        ("XID errors < 5", set()),
        ("XID <79>", {79}),
        ("Xid: [31]", {31}),
        ("Xid 31, 2026-11-29 10:00:00", {31}),
        ("Xid 31 | 10:00:00", {31}),
        ("Xid 43, 128 processes", {43}),
        ("Xid errors: 2 GPUs affected", set()),
        ("Xid 79 GPU 3", {79}),
        ("NVRM: Xid (PCI:0000:3b:00): 31, pid=1234, name=x,Xid 79, Ch 00000010", {31}),
        ("NVRM: Xid (PCI:0000:3b:00): 31, pid=1234, name=,NVRM: Xid ():9, Ch 00000010", {31}),
    ],
)
def test_all_xids_in_a_text_are_found(text: str, codes: set[int]) -> None:
    """The first of them alone told the others away."""
    assert weight.named_xids(text) == codes


@pytest.mark.parametrize(
    ("word", "severity"),
    [
        ("critical", "fatal"),
        ("CRITICAL", "fatal"),
        ("Error", "degraded"),
        ("none", "info"),
        ("", "warning"),
        ("x", "warning"),
    ],
)
def test_each_word_maps_to_a_severity(word: str, severity: str) -> None:
    assert weight.severity_of(word) == severity


@pytest.mark.parametrize(
    ("check", "text", "is_monitor"),
    [
        ("GpuDcgmConnectivityFailure", "", True),
        ("UnhealthyNvidiaDCGMServices", "", True),
        ("DCGMExporterDown", "", True),
        ("TargetDown", "", True),
        ("NodeExporterAbsent", "", True),
        ("docker", "docker installed but docker service is not active or failed to check", True),
        ("x", "Failed to connect to DCGM: connection refused", True),
        ("x", "nv-hostengine is not running", True),
        ("GpuMetricsMissing", "", True),
        ("GPUMetricsAbsent", "", True),
        ("DcgmMetricsAbsent", "", True),
        ("DCGMExporterCrashLooping", "", True),
        ("DCGMExporterScrapeError", "", True),
        ("NvidiaExporterNotReporting", "", True),
        ("DCGMNotReporting", "", True),
        ("DCGMDaemonsetNotReady", "", True),
        ("PrometheusTargetMissing", "", True),
        ("x", "failed to initialize DCGM: Error connecting to nv-hostengine", True),
        ("x", "Error connecting to nv-hostengine: Host engine connection invalid/disconnected", True),
        ("DatasourceNoData", "", True),
        ("DatasourceError", "", True),
        ("PostgresDatasourceError", "", False),
        ("IscsiTargetDown", "", False),
        ("NVMeTargetLost", "", False),
        ("GPULost", "", False),
        ("DCGM_FR_NVLINK_DOWN", "", False),
        ("DcgmGpuDown", "", False),
        ("DcgmExporterXidErrors", "", False),
        ("NodeNetworkConnectionDown", "", False),
        ("GpuNvlinkWatch", "GPU 3 NVLink down", False),
        ("GpuMissing", "GPU 3 is not found", False),
    ],
)
def test_a_monitor_that_does_not_work(check: str, text: str, is_monitor: bool) -> None:
    assert weight.is_of_monitor(check, text) is is_monitor


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("recovery action changed from 0x1 to 0x0 (None)", Weight.INFO),
        ("recovery action changed from 0x0 to 0x1 (GPU Reset)", Weight.NODE),
        ("", Weight.INFO),  # the action is what it is about
    ],
)
def test_an_xid_154_is_a_fault_by_its_action(text: str, expected: Weight) -> None:
    assert weight.of_xid(154, f"NVRM: Xid (PCI:0000:c5:00): 154, pid=1, {text}" if text else "") is expected


@pytest.mark.parametrize(
    ("codes", "expected"),
    [({43, 45}, Weight.PROGRAM), ({43, 79}, Weight.NODE), ({154}, Weight.INFO), (set(), Weight.NODE)],
)
def test_several_xids_weigh_as_the_worst(codes: set[int], expected: Weight) -> None:
    assert weight.of_xids(codes) is expected
