"""Disks and mounts: room left, and file systems that hang, vanished or turned read-only."""

import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime

from agents import programs
from agents.probes.finding import Finding, Reading, finding

FULL, NEARLY_FULL = 97.0, 90.0  # percent of blocks or inodes
STAT_TIMEOUT = 5.0
# Kinds whose server may go away; asking about a file on them may block for ever, even for root.
REMOTE = ("nfs", "nfs4", "lustre", "ceph", "cifs", "smb3", "gpfs", "beegfs", "wekafs", "9p")
MAX_ASKED = 32
_STAT = "import os, sys; os.statvfs(sys.argv[1])"


class StorageProbe:
    """An ``agents.probes.finding.Probe``. Local folders are asked directly, remote ones by a child that may hang."""

    name = "storage"
    deadline = 120.0
    hung_is_fault = False

    def __init__(
        self,
        *,
        every: float = 300.0,
        folders: Sequence[pathlib.Path] = (pathlib.Path("/"),),
        mounts: Sequence[str] = (),
        table: pathlib.Path = pathlib.Path("/proc/self/mounts"),
    ) -> None:
        """``folders``: whose file systems must have room. ``mounts``: mount points that must be there."""
        self.every = every
        self._folders, self._mounts, self._table = tuple(folders), tuple(mounts), table
        self._writable: set[str] = set()
        self._stuck: dict[str, subprocess.Popen[bytes]] = {}  # children that hang in the kernel, by mount point

    def look(self, now: datetime) -> Reading:
        """See ``Probe.look``. The device is the folder or mount point."""
        mounted = self._mounted()
        return Reading(findings=(*self._room(), *self._answer(mounted), *self._read_only(mounted)))

    def _mounted(self) -> dict[str, tuple[str, tuple[str, ...]]]:
        """Mount point -> kind and options; a later mount hides an earlier one."""
        found = {}
        for line in self._table.read_text(errors="replace").splitlines():
            words = line.split()
            if len(words) >= 4:
                point = words[1].encode().decode("unicode_escape")  # \040 is a space
                found[point] = words[2], tuple(words[3].split(","))
        return found

    def _room(self) -> Iterator[Finding]:
        for folder in self._folders:
            try:
                there = os.statvfs(folder)
            except FileNotFoundError:
                continue
            used = [100.0 * (1 - free / total) for free, total in _shares(there) if total]
            worst = max(used, default=0.0)
            bad = "fail" if worst >= FULL else "warn" if worst >= NEARLY_FULL else False
            message = f"{worst:.0f} % of the blocks or inodes are used"
            yield finding("disk", bad, device=str(folder), value=round(worst, 1), unit="%", message=message)

    def _answer(self, mounted: dict[str, tuple[str, tuple[str, ...]]]) -> Iterator[Finding]:
        for point in self._mounts:
            if point not in mounted:
                yield finding("mount", True, device=point, message="is not mounted", fault=True)
        remote = [point for point, (kind, _) in mounted.items() if kind.startswith(REMOTE) or point in self._mounts]
        for point in remote[:MAX_ASKED]:
            yield finding("mount", bool(why := self._why_silent(point)), device=point, message=why, fault=True)

    def _why_silent(self, point: str) -> str:
        """Why a mount point does not answer; "" where it does. One child a mount at most: none can be killed while the
        server is away, and the next would hang as well."""
        silent = f"does not answer within {STAT_TIMEOUT:.0f} s"
        stuck = self._stuck.get(point)
        if stuck is not None and stuck.poll() is None:
            return silent
        self._stuck.pop(point, None)
        try:
            ended = programs.run((sys.executable, "-S", "-c", _STAT, point), timeout=STAT_TIMEOUT)
        except programs.TookTooLong as late:
            if late.process is not None and late.process.poll() is None:
                self._stuck[point] = late.process
            return silent
        return ended.said.splitlines()[-1] if ended.status and ended.said else ""

    def _read_only(self, mounted: dict[str, tuple[str, tuple[str, ...]]]) -> Iterator[Finding]:
        """A local disk that was writable and is no more: the kernel found it damaged."""
        for point, (kind, options) in mounted.items():
            if kind not in ("ext4", "xfs", "btrfs"):
                continue
            if "rw" in options:
                self._writable.add(point)
            if point in self._writable:
                message = "turned read-only"
                yield finding("disk_writable", "rw" not in options, device=point, message=message, fault=True)


def _shares(there: os.statvfs_result) -> tuple[tuple[int, int], tuple[int, int]]:
    return (there.f_bavail, there.f_blocks), (there.f_favail, there.f_files)
