"""Disks and mounts: room left, and file systems that hang, vanished or turned read-only.

The mounts are those of the node's first process: an agent in a container has others. It sees them where it shares the
host's PID namespace.
"""

import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from agents import programs
from agents.probes.finding import Finding, Reading, finding

FULL, NEARLY_FULL = 97.0, 90.0  # percent of blocks or inodes
STAT_TIMEOUT = 5.0
# Kinds whose server may go away; asking about a file on them may block for ever, even for root.
REMOTE = ("nfs", "nfs4", "lustre", "ceph", "cifs", "smb3", "gpfs", "beegfs", "wekafs", "9p")
MAX_ASKED = 32
HOSTS_PIDS = "pid:[4026531836]"  # the machine's first PID namespace (linux/proc_ns.h, PROC_PID_INIT_INO)
_STAT = "import os, sys; os.statvfs(sys.argv[1])"

Mounts = dict[str, tuple[str, tuple[str, ...]]]  # by mount point: kind and options


@dataclass(frozen=True, slots=True)
class _View:
    """Mounts as one process sees them: ``root`` is where this one finds them. ``short``: why the node may have more."""

    mounts: Mounts
    root: str
    short: str = ""


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
        proc: pathlib.Path = pathlib.Path("/proc"),
    ) -> None:
        """``folders``: whose file systems must have room. ``mounts``: mount points that must be there."""
        self.every = every
        self._folders, self._mounts, self._proc = tuple(folders), tuple(mounts), proc
        self._writable: set[str] = set()
        self._stuck: dict[str, subprocess.Popen[bytes]] = {}  # children that hang in the kernel, by mount point

    def look(self, now: datetime) -> Reading:
        """See ``Probe.look``. The device is the folder or mount point."""
        view = self._view()
        return Reading(findings=(*self._room(), *self._answer(view), *self._read_only(view.mounts)))

    def _view(self) -> _View:
        """The node's mounts, or this process's own where it does not see the node's first process."""
        try:
            if os.readlink(self._proc / "self/ns/pid") == HOSTS_PIDS:
                os.readlink(
                    self._proc / "1/root"
                )  # whoever may not look at that process may read its mounts all the same
                return _View(_mounted(self._proc / "1/mounts"), str(self._proc / "1/root"))
            why = "set hostPID for the agent's pod"
        except OSError as error:
            why = str(error)
        return _View(_mounted(self._proc / "self/mounts"), "", f"only the agent's own mounts can be seen: {why}")

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

    def _answer(self, view: _View) -> Iterator[Finding]:
        for point in self._mounts:
            if point not in view.mounts:
                message = view.short or "is not mounted"
                yield finding("mount", "skipped" if view.short else "fail", device=point, message=message, fault=True)
        wanted = [point for point in self._mounts if point in view.mounts]  # first: a node may have more than are asked
        remote = [point for point, (kind, _) in view.mounts.items() if kind.startswith(REMOTE) and point not in wanted]
        for point in (*wanted, *remote)[:MAX_ASKED]:
            why = self._why_silent(f"{view.root}{point}")
            yield finding("mount", bool(why), device=point, message=why, fault=True)

    def _why_silent(self, point: str) -> str:
        """Why a mount does not answer at its path; "" where it does. One child a mount at most: none can be killed
        while the server is away, and the next would hang as well."""
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

    def _read_only(self, mounted: Mounts) -> Iterator[Finding]:
        """A local disk that was writable and is no more: the kernel found it damaged."""
        for point, (kind, options) in mounted.items():
            if kind not in ("ext4", "xfs", "btrfs"):
                continue
            if "rw" in options:
                self._writable.add(point)
            if point in self._writable:
                message = "turned read-only"
                yield finding("disk_writable", "rw" not in options, device=point, message=message, fault=True)


def _mounted(table: pathlib.Path) -> Mounts:
    """What a process has mounted; a later mount hides an earlier one."""
    found: Mounts = {}
    for line in table.read_text(errors="replace").splitlines():
        words = line.split()
        if len(words) >= 4:
            point = words[1].encode().decode("unicode_escape")  # \040 is a space
            found[point] = words[2], tuple(words[3].split(","))
    return found


def _shares(there: os.statvfs_result) -> tuple[tuple[int, int], tuple[int, int]]:
    return (there.f_bavail, there.f_blocks), (there.f_favail, there.f_files)
