"""The parts of the evidence on a Linux node: programs, the kernel log and small files, each with its limits."""

import contextlib
import errno
import os
import pathlib
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agents import VERSION

KERNEL_LOG_BYTES = 1536 << 10  # the latest of it: some ten thousand lines
MAX_FILE_BYTES = 4096
RECORD_BYTES = 16 * 1024
DMI = pathlib.Path("/sys/class/dmi/id")
DMI_FIELDS = (
    *("sys_vendor", "product_name", "product_serial", "board_vendor", "board_name", "board_serial"),
    *("board_version", "bios_vendor", "bios_version", "bios_date", "chassis_serial"),
)
VERSION_FILES = (
    pathlib.Path("/proc/driver/nvidia/version"),
    pathlib.Path("/sys/module/nvidia/version"),
    pathlib.Path("/etc/os-release"),
    pathlib.Path("/proc/version"),
    pathlib.Path("/proc/uptime"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A program whose output is evidence. ``install``: the package that has it. ``max_bytes``: of its output."""

    command: tuple[str, ...]
    install: str
    seconds: float
    max_bytes: int

    @property
    def name(self) -> str:
        """Its section in the bundle."""
        return " ".join(self.command)


# All of them run at the same time. The sum of the bounds is below that of a bundle, even if nothing can be compressed.
TOOLS: Sequence[Tool] = (
    Tool(command=("nvidia-smi", "-q"), install="the NVIDIA driver", seconds=10.0, max_bytes=1 << 20),
    Tool(
        command=("nvidia-smi", "nvlink", "--errorcounters"),
        install="the NVIDIA driver",
        seconds=8.0,
        max_bytes=96 << 10,
    ),
    Tool(command=("dcgmi", "health", "-c"), install="datacenter-gpu-manager", seconds=8.0, max_bytes=128 << 10),
    Tool(command=("ipmitool", "sel", "elist", "last", "500"), install="ipmitool", seconds=12.0, max_bytes=256 << 10),
    Tool(command=("lspci", "-nnvv"), install="pciutils", seconds=8.0, max_bytes=640 << 10),
)


def kernel_log(path: pathlib.Path, target: int) -> int:
    """Copy the kernel log's records to the file ``target`` as lines with their time; return the size of the copy.

    ``path`` is the kernel's device, which is read without moving any other reader, or a plain file, of which the end
    is read. Raises OSError.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        is_file = stat.S_ISREG(os.fstat(handle).st_mode)
        if is_file:
            os.lseek(handle, max(0, os.fstat(handle).st_size - KERNEL_LOG_BYTES), os.SEEK_SET)
        else:
            with contextlib.suppress(OSError):  # a pipe cannot seek
                os.lseek(handle, 0, os.SEEK_SET)
        size = 0
        for data in _reads(handle):
            size += os.write(target, data if is_file else _readable(data))
        return size
    finally:
        os.close(handle)


def _reads(handle: int) -> Iterator[bytes]:
    """The kernel's ring buffer has an end, but a log that is written to while it is read may have none."""
    left = 64 << 20
    while left > 0:
        try:
            data = os.read(handle, RECORD_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno in (errno.EPIPE, errno.EINVAL):  # overwritten meanwhile, or larger than the buffer
                left -= RECORD_BYTES
                continue
            raise
        if not data:
            return
        left -= len(data)
        yield data


def _readable(record: bytes) -> bytes:
    """``6,1234,5678000,-;text`` as ``[    5.678000] text``, as ``dmesg`` prints it."""
    header, semicolon, text = record.partition(b";")
    fields = header.split(b",")
    if not semicolon or len(fields) < 3 or not fields[2].isdigit():
        return record
    return b"[%12.6f] %s" % (int(fields[2][:18]) / 1e6, text)


def versions(boot_id: str) -> Iterator[str]:
    """What runs on which machine, as lines ``name: value``."""
    system = os.uname()
    yield f"agent: {VERSION}"
    yield f"boot id: {boot_id}"
    yield f"kernel: {system.release} {system.version} {system.machine}"
    for field in DMI_FIELDS:
        if (value := _small(DMI / field)) is not None:
            yield f"{field}: {value}"
    for path in VERSION_FILES:
        for number, line in enumerate((_small(path) or "").splitlines()):
            yield f"{path}: {line}" if number == 0 else f"    {line}"


def _small(path: pathlib.Path) -> str | None:
    with contextlib.suppress(OSError), path.open("rb") as file:
        return file.read(MAX_FILE_BYTES).decode(errors="replace").strip()
    return None
