"""Which lines of a kernel log are machine checks that were not corrected."""

import pytest

from kcover.faults import machine_check

SYSLOG = "Nov 21 08:00:00 gpu-1 kernel: [   12.345678] "


@pytest.mark.parametrize(
    "line",
    [
        "mce: [Hardware Error]: CPU 2: Machine Check Exception: 5 Bank 4: be00000000800400",
        "[Hardware Error]: CPU 17: Machine Check Exception: f Bank 1: bd80000000100134",
        "[Hardware Error]: Uncorrected, software restartable error.",
        "{23}[Hardware Error]: event severity: fatal",
    ],
)
def test_uncorrected_errors(line):
    assert machine_check.is_uncorrected(line)
    assert machine_check.is_uncorrected(SYSLOG + line)


@pytest.mark.parametrize(
    "line",
    [
        "mce: [Hardware Error]: CPU 2: Machine Check Exception: 5 Bank 7: 9c00004000010091",  # corrected: bit 61
        "mce: [Hardware Error]: CPU 2: Machine Check Exception: 5 Bank 7: a000000000000108",  # not enabled: bit 60
        "mce: [Hardware Error]: CPU 2: Machine Check Exception: 5 Bank 7: 3e00000000800400",  # not valid: bit 63
        "mce: [Hardware Error]: CPU 8: Machine Check: 0 Bank 5: bea0000000000108",  # left over from before a reset
        "[Hardware Error]: System Fatal error.",  # its decoded form
        "[Hardware Error]: Uncorrected, software containable error.",
        "mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 13: bc000001010000c0",  # nobody has consumed it
        "mce: [Hardware Error]: Machine check events logged",
        "mce: [Hardware Error]: TSC 0 ADDR 1ffff MISC 86",
        "[Hardware Error]: Corrected error, no action required.",
        "[Hardware Error]: Deferred error, no action required.",
        "[Hardware Error]: CPU:2 (17:31:0) MC4_STATUS[Over|CE|MiscV|-|AddrV|-|-|SyndV|CECC|-|-|-]: 0xdc2040000000011b",
        "{1}[Hardware Error]: It has been corrected by h/w and requires no further action",
        "{1}[Hardware Error]: event severity: corrected",
        "{1}[Hardware Error]: event severity: info",
        "{1}[Hardware Error]: event severity: recoverable",  # of PCIe, for all that the line tells
        "{1}[Hardware Error]:  Error 0, type: fatal",  # a part of the one above
        "[Hardware Error]: event severity: fatal",  # the last boot's, told at each boot
        "nvidia 0000:4e:00.0: NVRM: {1}[Hardware Error]: event severity: recoverable",  # its Xid tells
        "mce: [Hardware Error]: CPU 2: Machine Check: 0 Bank 7: " + "f" * 17,
        "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0",
        "mce: CPU0: Thermal monitoring enabled (TM1)",
        "[Hardware Error]: ",
        "",
    ],
)
def test_lines_that_are_not_uncorrected_errors(line):
    assert not machine_check.is_uncorrected(line)
    assert not machine_check.is_uncorrected(SYSLOG + line)
