"""A real disk of a few pages: a tmpfs in its own mount namespace, accessed through the process that holds it."""

import contextlib
import errno
import os
import pathlib
import subprocess

import pytest

SIZE = 64 << 10
MOUNT = 'mount -t tmpfs -o "size=$1,mode=700" none "$2" && echo mounted && exec cat'
WAYS = (("--mount",), ("--user", "--map-root-user", "--mount"))  # as root; as anybody, where that is allowed


class SmallDisk:
    """Gone with ``close``, or with this process."""

    def __init__(self, folder: pathlib.Path) -> None:
        """Skips the test where nobody may mount here."""
        whys = []
        for way in WAYS:
            self._keeper = subprocess.Popen(
                ("unshare", *way, "sh", "-c", MOUNT, "sh", str(SIZE), str(folder)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            if self._keeper.stdout.readline() == b"mounted\n":
                self.path = pathlib.Path(f"/proc/{self._keeper.pid}/root{folder}")
                return
            whys.append(self._end())
        pytest.skip(f"no disk of our own can be mounted here: {'; '.join(whys)}")

    def fill(self) -> None:
        """Leaves no room at all."""
        there = os.statvfs(self.path)
        (self.path / "filler").write_bytes(bytes(there.f_bavail * there.f_bsize))
        with pytest.raises(OSError, match=f"Errno {errno.ENOSPC}"):
            (self.path / "more").write_bytes(b"x")
        (self.path / "more").unlink()

    def empty(self) -> None:
        """There is room again."""
        (self.path / "filler").unlink()

    def close(self) -> None:
        self._end()

    def _end(self) -> str:
        """What it said on its way out."""
        with contextlib.suppress(BrokenPipeError):
            self._keeper.stdin.close()
        self._keeper.wait(timeout=60)
        said = self._keeper.stderr.read().decode(errors="replace").strip()
        self._keeper.stdout.close()
        self._keeper.stderr.close()
        return said
