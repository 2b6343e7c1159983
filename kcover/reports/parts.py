"""Which part of a machine a fault is about, by the names of the repair desk (``repairs.PART_KINDS``)."""

from collections.abc import Mapping
from typing import Final

from kcover.faults import driver_line

NODE: Final = "node"
GPU: Final = "gpu"
OF_CHECKS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("gpu", "gpu_count", "driver", "recovery_action", "remapped", "remap_failure", "ecc"), GPU),
    **dict.fromkeys(("gpumem", "gpupower", "dcgm", "temperature", "nvlink", "nvlink_errors", "fabric"), GPU),
    **dict.fromkeys(("ib_port", "ib_rate", "ib_errors", "metax_hca"), "nic"),
    **dict.fromkeys(("disk", "disk_writable", "mount", "nvme"), "disk"),
    **dict.fromkeys(("pcie_errors", "pcie_width", "pciebw"), "board"),
    "host_memory": "memory",
}
OF_KINDS: Final[Mapping[str, str]] = {"xid": GPU, "sxid": "nvswitch"}
VENDORS: Final = ("amd_", "metax_", "accelerator-")  # prefixes of checks and components about GPUs


def of_fault(kind: str, code: str) -> str:
    """The part; NODE if the fault does not say which one."""
    if kind in OF_KINDS:
        return OF_KINDS[kind]
    if code == "mce":
        return "cpu"
    if kind == driver_line.KIND and code in driver_line.SEVERITIES:
        return GPU
    if code in OF_CHECKS:
        return OF_CHECKS[code]
    return GPU if code.startswith(VENDORS) else NODE


def of_cause(cause: str) -> str:
    """The part of ``Fault.cause``."""
    kind, _, code = cause.partition(" ")
    return of_fault(kind, code)
