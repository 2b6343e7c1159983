"""Disks and mounts: free space, and file systems that hang, disappeared or turned read-only.

The mounts are those of the node's first process. An agent in a container has others; it sees the node's mounts if it
shares the host's PID namespace. Mounts that the settings require and the node's own disks are faults of the node. Other
remote mounts belong to a program or tenant, whose server may be gone for good, so they are warnings. Mounts that the
kubelet makes for pods are ignored; they come and go with the pods.
"""

import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from agents.host import programs
from agents.probes.finding import Finding, Observation, Severity, finding

FULL_PERCENT, NEARLY_FULL_PERCENT = 97.0, 90.0  # of blocks or inodes
STAT_TIMEOUT_SECONDS = 5.0
# File systems whose server may go away; a stat on them may block for ever, even for root.
REMOTE_FILESYSTEMS = ("nfs", "nfs4", "lustre", "ceph", "cifs", "smb3", "gpfs", "beegfs", "wekafs", "9p")
MAX_MOUNTS = 32
MAX_TIMEOUTS = 4  # per run, for mounts that no setting requires
# The kubelet's mounts, wherever its folder is, and names that are not valid text and so cannot be read.
_IGNORED = re.compile("/kubelet/|/pods/[0-9a-f-]{36}/|\N{REPLACEMENT CHARACTER}")
_ESCAPED = re.compile(r"\\([0-7]{3})")  # \040 is a space; a backslash is \134
HOST_PID_NAMESPACE = "pid:[4026531836]"  # the machine's first PID namespace (linux/proc_ns.h, PROC_PID_INIT_INO)
STATVFS_PROGRAM = "import os, sys; os.statvfs(sys.argv[1])"


@dataclass(frozen=True, slots=True)
class _Mount:
    """One line of a table of mounts (proc_mounts(5))."""

    source: str
    kind: str
    options: tuple[str, ...]


Mounts = dict[str, _Mount]  # by mount point


@dataclass(frozen=True, slots=True)
class _View:
    """The mounts that one process sees.

    ``root``: where this process finds them. ``incomplete``: why the node may have more.
    """

    mounts: Mounts
    root: str
    incomplete: str = ""


class StorageProbe:
    """Local folders are read directly, remote ones by a child process that may hang."""

    name = "storage"
    deadline_seconds = 120.0
    hang_severity = Severity.FAILURE

    def __init__(
        self,
        *,
        interval_seconds: float = 300.0,
        folders: Sequence[pathlib.Path] = (pathlib.Path("/"),),
        mounts: Sequence[str] = (),
        proc: pathlib.Path = pathlib.Path("/proc"),
        statvfs: Callable[[pathlib.Path], os.statvfs_result] = os.statvfs,
        stat_mount: Callable[[str], programs.ProgramResult] | None = None,
    ) -> None:
        """``folders``: their file systems must have free space. ``mounts``: mount points that must be present.
        ``stat_mount`` reads a mount, see ``stat_in_child``."""
        self.interval_seconds = interval_seconds
        self._statvfs, self._stat_mount = statvfs, stat_mount or stat_in_child
        self._folders, self._mounts, self._proc = tuple(folders), tuple(mounts), proc
        self._writable: set[tuple[str, str]] = set()  # by source and mount point
        # Problems reported, by check and mount point, with the source that was mounted there.
        self._reported: dict[tuple[str, str], str | None] = {}
        self._hung_children: dict[str, subprocess.Popen[bytes]] = {}  # children that hang in the kernel, by mount point

    def observe(self, now: datetime) -> Observation:
        """The device is the folder or mount point."""
        view = self._view()
        found = [*self._mount_findings(view), *self._read_only(view.mounts)]
        return Observation(findings=(*self._space(), *found, *self._unmounted(found, view.mounts)))

    def _unmounted(self, found: Sequence[Finding], mounts: Mounts) -> list[Finding]:
        """Passes for problems that cannot be found any more because the file system was unmounted.

        Unmounting a file system that hangs solves the problem.
        """
        now = {(result.check.name, result.check.device): result.check.status for result in found}
        sources = {point: mount.source for point, mount in mounts.items()}
        gone = [key for key, source in self._reported.items() if key not in now and sources.get(key[1]) != source]
        for key in gone:
            del self._reported[key]
        for key, status in now.items():
            if status == "pass":
                self._reported.pop(key, None)
            else:
                self._reported[key] = sources.get(key[1])
        return [finding(name, Severity.OK, device=point) for name, point in gone]

    def _view(self) -> _View:
        """The node's mounts, or those of this process if it cannot see the node's first process."""
        try:
            if os.readlink(self._proc / "self/ns/pid") == HOST_PID_NAMESPACE:
                # The mounts of a process can be read even if its root cannot be used, so test the root first.
                os.readlink(self._proc / "1/root")
                return _View(_mounted(self._proc / "1/mounts"), str(self._proc / "1/root"))
            why = "set hostPID for the agent's pod"
        except OSError as error:
            why = str(error)
        return _View(_mounted(self._proc / "self/mounts"), "", f"only the agent's own mounts are visible: {why}")

    def _space(self) -> Iterator[Finding]:
        for folder in self._folders:
            try:
                usage = self._statvfs(folder)
            except FileNotFoundError:
                continue
            used = [100.0 * (1 - free / total) for free, total in _free_and_total(usage) if total]
            worst = max(used, default=0.0)
            nearly_full = Severity.WARNING.when(worst >= NEARLY_FULL_PERCENT)
            severity = Severity.FAILURE if worst >= FULL_PERCENT else nearly_full
            message = f"{worst:.0f} % of the blocks or inodes are in use"
            yield finding("disk", severity, device=str(folder), value=round(worst, 1), unit="%", message=message)

    def _mount_findings(self, view: _View) -> Iterator[Finding]:
        for point in self._mounts:
            if point not in view.mounts:
                message = view.incomplete or "not mounted"
                severity = Severity.SKIPPED if view.incomplete else Severity.FAULT
                yield finding("mount", severity, device=point, message=message)
        wanted = [
            point for point in self._mounts if point in view.mounts
        ]  # required mounts first: a node may have more than MAX_MOUNTS
        for point in wanted[:MAX_MOUNTS]:
            why = self._why_unresponsive(f"{view.root}{point}")
            yield finding("mount", Severity.FAULT.when(bool(why)), device=point, message=why)
        others = [
            point
            for point, mount in view.mounts.items()
            if mount.kind.startswith(REMOTE_FILESYSTEMS) and point not in wanted and not _IGNORED.search(point)
        ]
        waited = 0
        for point in others[: max(0, MAX_MOUNTS - len(wanted))]:
            path = f"{view.root}{point}"
            hung = self._is_hanging(path)
            if not hung and waited == MAX_TIMEOUTS:
                continue
            why = self._why_unresponsive(path)
            waited += why == _timeout_message() and not hung
            if why and point not in self._view().mounts:
                continue  # unmounted meanwhile
            yield finding("mount", Severity.WARNING.when(bool(why)), device=point, message=why)

    def _is_hanging(self, point: str) -> bool:
        """Return whether a child still hangs on the mount.

        Then the next one would too, and none can be killed while the server is away.
        """
        child = self._hung_children.get(point)
        if child is not None and child.poll() is None:
            return True
        self._hung_children.pop(point, None)
        return False

    def _why_unresponsive(self, point: str) -> str:
        """The reason why a mount does not answer at its path; empty if it does. At most one child for each mount."""
        if self._is_hanging(point):
            return _timeout_message()
        try:
            result = self._stat_mount(point)
        except programs.ProgramTimeout as late:
            if late.process is not None and late.process.poll() is None:
                self._hung_children[point] = late.process
            return _timeout_message()
        return result.diagnostics.splitlines()[-1] if result.status and result.diagnostics else ""

    def _read_only(self, mounts: Mounts) -> Iterator[Finding]:
        """A local disk that was writable and is read-only now: the kernel found it damaged.

        Another disk mounted in its place does not count, nor the same disk mounted elsewhere.
        """
        local = {
            (mount.source, point): "rw" in mount.options
            for point, mount in mounts.items()
            if mount.kind in ("ext4", "xfs", "btrfs") and not _IGNORED.search(point)
        }
        self._writable &= local.keys()
        self._writable |= {key for key, writable in local.items() if writable}
        for key, writable in local.items():
            if key in self._writable:
                message = "the file system turned read-only"
                yield finding("disk_writable", Severity.FAULT.when(not writable), device=key[1], message=message)


def stat_in_child(
    path: str, *, program: str = STATVFS_PROGRAM, timeout: float = STAT_TIMEOUT_SECONDS
) -> programs.ProgramResult:
    """Call statvfs(2) on a path in a child process. Raises ProgramTimeout if the file system does not answer."""
    return programs.run((sys.executable, "-S", "-c", program, path), timeout=timeout)


def _timeout_message() -> str:
    return f"no answer within {STAT_TIMEOUT_SECONDS:.0f} s"


def _mounted(table: pathlib.Path) -> Mounts:
    """The mounts of a process; a later mount hides an earlier one."""
    found: Mounts = {}
    for line in table.read_text(encoding="utf-8", errors="replace").split("\n"):
        fields = line.split(" ")
        if len(fields) >= 4:
            source, point = (_ESCAPED.sub(lambda code: chr(int(code[1], 8)), field) for field in fields[:2])
            found[point] = _Mount(source, fields[2], tuple(fields[3].split(",")))
    return found


def _free_and_total(usage: os.statvfs_result) -> tuple[tuple[int, int], tuple[int, int]]:
    return (usage.f_bavail, usage.f_blocks), (usage.f_favail, usage.f_files)
