"""Kernel log lines as the NVIDIA drivers print them, one function for each family.

Forms: NVIDIA's open kernel modules (``NVRM: Xid (PCI:%04x:%02x:%02x): %d, ...`` with the process if it is known,
``nvidia-nvswitch%d: SXid (PCI:...): %05d, ...``). The messages are those that operators find in their logs. A code
without a message here is printed with its number alone.
"""

from dataclasses import dataclass

_PROGRAM = (13, 31, 32, 43, 45, 68, 69, 94, 109)  # codes that the driver prints with the process of the channel
_XID_TEXT = {
    13: "Graphics SM Warp Exception on (GPC 2, TPC 3, SM 1): Out Of Range Address",
    31: "Ch 00000010, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC1 GPCCLIENT_T1_3 faulted @ 0x7f2a_44000000. "
    "Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
    43: "Ch 00000010",
    45: "Ch 00000010",
    46: "Uncorrectable GPU timeout",
    48: "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer "
    "at partition 6, subpartition 0.",
    62: "1fde8c35 00006a2c 00000000 20206d1c 20200e96 2020104e 00000007",
    63: "Row Remapper: New row (0x00000000012bc3ff) marked for remapping, reset gpu to activate.",
    64: "Row Remapper: Failed to add row (0x00000000012bc3ff) to the remap table.",
    74: "NVLink: fatal error detected on link 5(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
    79: "GPU has fallen off the bus.",
    92: "High single-bit ECC error rate",
    94: "Contained: SM (0x2). RST: No, D-RST: No",
    95: "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No",
    109: "errorString CTX SWITCH TIMEOUT, Info 0x5c003",
    110: "SEC fault",
    119: "Timeout after 6s of waiting for RPC response from GPU1 GSP! "
    "Expected function 76 (GSP_RM_CONTROL) (0x20800a7a 0x4).",
    120: "GSP task exception: page fault (cause:0xf) @ pc:0x1cc8f2e",
    122: "SPI PMU RPC read fail",
    140: "Unrecovered ECC error escape",
    143: "GPU initialization failure",
    145: "RLW_SRC_TRACK Nonfatal XC0 i0 Link 09 (0x00000004 0x00000002 0x00000000 0x00000000 0x00000000 0x00000000)",
    149: "NETIR_LINK_EVT Fatal XC0 i0 Link 09 (0x004505c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
    154: "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
    158: "GPU fatal timeout",
    171: "An uncorrectable DRAM error was detected",
    172: "An uncorrectable SRAM error was detected",
}
_SXID_TEXT = {
    11001: (True, "ingress invalid command"),
    12020: (True, "egress sequence ID error"),
    12028: (False, "egress non-posted PRIV error"),
    19084: (False, "AN1 Heartbeat Timeout Error"),
    20001: (False, "TX Replay Error"),
    20034: (True, "LTSSM Fault Up"),
    22003: (True, "SOE halted"),
    23001: (True, "ingress SRC-VC buffer overflow"),
    24007: (True, "sourcetrack timeout error"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """The process whose channel a fault hit."""

    pid: int
    name: str


def xid(code: int, pci: str, *, process: Process | None = None, cause: int | None = None) -> list[str]:
    """The lines of one Xid on the GPU at ``pci`` (``0000:4e:00``): one line, for Xid 79 two.

    ``cause``: the Xid that tore a channel down, printed at the end of an Xid 45.
    """
    text = _XID_TEXT.get(code, f"Xid {code}")
    if code == 79:
        return [
            f"NVRM: Xid (PCI:{pci}): 79, pid='<unknown>', name=<unknown>, {text}",
            f"NVRM: GPU {pci}.0: {text}",
        ]
    if process and code in _PROGRAM:
        text = f"pid={process.pid}, name={process.name}, {text}"
    if cause is not None:
        text = f"{text}, caused by previous Xid {cause}"
    return [f"NVRM: Xid (PCI:{pci}): {code}, {text}"]


def before(code: int, pci: str) -> list[str]:
    """The lines of other parts of the kernel that come before an Xid: the slot of a lost GPU loses its link first."""
    bus = int(pci.split(":")[1], 16)
    return [f"pcieport 0000:{bus - 1:02x}:00.0: pciehp: Slot({bus}): Link Down"] if code == 79 and bus else []


def sxid(code: int, *, switch: int = 0, link: int = 30) -> list[str]:
    """The three lines of one SXid: severity, engine, data."""
    fatal, text = _SXID_TEXT.get(code, (False, f"SXid {code}"))
    head = f"nvidia-nvswitch{switch}: SXid (PCI:0000:{_SWITCH_BUS[switch % len(_SWITCH_BUS)]:02x}:00.0): {code:05d}, "
    severity = "Fatal" if fatal else "Non-fatal"
    return [
        f"{head}{severity}, Link {link:02d} {text} (First)",
        f"{head}Severity {1 if fatal else 0} Engine instance {link:02d} Sub-engine instance 00",
        f"{head}Data {{0x00000001, 0x00000001, 0x00000000, 0x00000001, 0x00000000, 0x00000000}}",
    ]


_SWITCH_BUS = (0x05, 0x06, 0x07, 0x08)
