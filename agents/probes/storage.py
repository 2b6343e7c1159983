"""Disks and mounts: room left, and file systems that hang, vanished or turned read-only.

The mounts are those of the node's first process: an agent in a container has others. It sees them where it shares the
host's PID namespace. A fault of the node are mounts that somebody said must be there, and its own disks; other remote
mounts are a program's or a tenant's, whose server may be gone for good: they warn. What the kubelet mounts for pods is
not looked at, as it comes and goes with them.
"""

import os
import pathlib
import re
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
MAX_WAITED = 4  # mounts that nobody configured and that one look waits for in vain: each takes STAT_TIMEOUT
# Below its folder, wherever that is; and names that are no text, by which nothing can be asked.
_NOT_ASKED = re.compile("/kubelet/|/pods/[0-9a-f-]{36}/|\N{REPLACEMENT CHARACTER}")
_ESCAPED = re.compile(r"\\([0-7]{3})")  # \040 is a space; a backslash is \134
HOSTS_PIDS = "pid:[4026531836]"  # the machine's first PID namespace (linux/proc_ns.h, PROC_PID_INIT_INO)
_STAT = "import os, sys; os.statvfs(sys.argv[1])"


@dataclass(frozen=True, slots=True)
class _Mount:
    source: str
    kind: str
    options: tuple[str, ...]


Mounts = dict[str, _Mount]  # by mount point


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
        self._writable: set[tuple[str, str]] = set()  # source and mount point
        self._bad: dict[
            tuple[str, str], str | None
        ] = {}  # what was told, check and mount point: which source was there
        self._stuck: dict[str, subprocess.Popen[bytes]] = {}  # children that hang in the kernel, by mount point

    def look(self, now: datetime) -> Reading:
        """See ``Probe.look``. The device is the folder or mount point."""
        view = self._view()
        found = [*self._answer(view), *self._read_only(view.mounts)]
        return Reading(findings=(*self._room(), *found, *self._ended(found, view.mounts)))

    def _ended(self, found: Sequence[Finding], mounts: Mounts) -> list[Finding]:
        """Passes for what was told and cannot be found any more, as it is no longer mounted: who unmounts what hangs
        has mended it."""
        now = {(one.check.name, one.check.device): one.check.status for one in found}
        there = {point: mount.source for point, mount in mounts.items()}
        gone = [key for key, source in self._bad.items() if key not in now and there.get(key[1]) != source]
        for key in gone:
            del self._bad[key]
        for key, status in now.items():
            if status == "pass":
                self._bad.pop(key, None)
            else:
                self._bad[key] = there.get(key[1])
        return [finding(name, False, device=point) for name, point in gone]

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
        for point in wanted[:MAX_ASKED]:
            why = self._why_silent(f"{view.root}{point}")
            yield finding("mount", bool(why), device=point, message=why, fault=True)
        others = [
            point
            for point, mount in view.mounts.items()
            if mount.kind.startswith(REMOTE) and point not in wanted and not _NOT_ASKED.search(point)
        ]
        waited = 0
        for point in others[: max(0, MAX_ASKED - len(wanted))]:
            path = f"{view.root}{point}"
            hung = self._hangs(path)
            if not hung and waited == MAX_WAITED:
                continue
            why = self._why_silent(path)
            waited += why == _silent() and not hung
            if why and point not in self._view().mounts:
                continue  # unmounted while it was asked
            yield finding("mount", "warn" if why else False, device=point, message=why)

    def _hangs(self, point: str) -> bool:
        """Whether a child still hangs on it: then the next would, too, and none can be killed while the server is
        away."""
        stuck = self._stuck.get(point)
        if stuck is not None and stuck.poll() is None:
            return True
        self._stuck.pop(point, None)
        return False

    def _why_silent(self, point: str) -> str:
        """Why a mount does not answer at its path; "" where it does. One child a mount at most."""
        if self._hangs(point):
            return _silent()
        try:
            ended = programs.run((sys.executable, "-S", "-c", _STAT, point), timeout=STAT_TIMEOUT)
        except programs.TookTooLong as late:
            if late.process is not None and late.process.poll() is None:
                self._stuck[point] = late.process
            return _silent()
        return ended.said.splitlines()[-1] if ended.status and ended.said else ""

    def _read_only(self, mounts: Mounts) -> Iterator[Finding]:
        """A local disk that was writable and is no more: the kernel found it damaged. Another disk in its place, or the
        same one mounted again elsewhere, is not meant."""
        local = {
            (mount.source, point): "rw" in mount.options
            for point, mount in mounts.items()
            if mount.kind in ("ext4", "xfs", "btrfs") and not _NOT_ASKED.search(point)
        }
        self._writable &= local.keys()
        self._writable |= {key for key, writable in local.items() if writable}
        for key, writable in local.items():
            if key in self._writable:
                message = "turned read-only"
                yield finding("disk_writable", not writable, device=key[1], message=message, fault=True)


def _silent() -> str:
    return f"does not answer within {STAT_TIMEOUT:.0f} s"


def _mounted(table: pathlib.Path) -> Mounts:
    """What a process has mounted; a later mount hides an earlier one."""
    found: Mounts = {}
    for line in table.read_text(encoding="utf-8", errors="replace").split("\n"):
        words = line.split(" ")
        if len(words) >= 4:
            source, point = (_ESCAPED.sub(lambda code: chr(int(code[1], 8)), word) for word in words[:2])
            found[point] = _Mount(source, words[2], tuple(words[3].split(",")))
    return found


def _shares(there: os.statvfs_result) -> tuple[tuple[int, int], tuple[int, int]]:
    return (there.f_bavail, there.f_blocks), (there.f_favail, there.f_files)
