"""Collects a bundle of evidence into a file, within a time limit and without holding it in memory."""

import contextlib
import pathlib
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agents.evidence import captures, parts
from kcover.evidence import bundle
from kcover.evidence.bundle import Section

COLLECT_SECONDS = 15.0  # for all tools together: the portal waits 20 s for the bundle, with its way there and back
SUFFIX = ".gz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """A bundle in a file."""

    path: pathlib.Path
    size: int
    sha256: str
    sections: tuple[Section, ...]

    def output(self) -> dict[str, Any]:
        return {"size": self.size, "sha256": self.sha256, "sections": [asdict(section) for section in self.sections]}


class Collector:
    """The evidence of this node. ``folder``: where bundles wait until the portal has them."""

    def __init__(
        self,
        folder: pathlib.Path,
        *,
        kernel_log: pathlib.Path,
        boot_id: Callable[[], str],
        tools: Sequence[parts.Tool] = parts.TOOLS,
        seconds: float = COLLECT_SECONDS,
    ) -> None:
        self._folder, self._kernel_log, self._boot_id = folder, kernel_log, boot_id
        self._tools, self._seconds = tuple(tools), seconds

    def collect(self, name: uuid.UUID) -> Collected:
        """Collect the bundle with this name. Raises OSError if it cannot be written."""
        until = time.monotonic() + self._seconds
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._folder / f"{name}{SUFFIX}"
        draft, scratch = self._folder / f"{name}.tmp", self._folder / f"{name}.part"
        scratch.mkdir(exist_ok=True, mode=0o700)
        try:
            with draft.open("wb") as file:
                sections = self._write(bundle.Writer(file), scratch, until=until)
            with draft.open("rb") as file:
                sha256 = bundle.sha256_of(file)
            draft.replace(path)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
            draft.unlink(missing_ok=True)
        return Collected(path=path, size=path.stat().st_size, sha256=sha256, sections=tuple(sections))

    def _write(self, writer: bundle.Writer, scratch: pathlib.Path, *, until: float) -> list[Section]:
        log = self._copy_kernel_log(scratch / "log")  # first: a driver that hangs cannot hold it up
        files = [(tool, scratch / str(index)) for index, tool in enumerate(self._tools)]
        ran = captures.run(files, until=until)
        versions = Section(name="versions", status="ok")
        writer.add(versions, parts.versions(self._boot_id()))
        writer.add(log, _lines(scratch / "log", last=parts.KERNEL_LOG_BYTES))
        for section, (_, file) in zip(ran, files, strict=True):
            writer.add(section, _lines(file))
        writer.close()
        return [versions, log, *ran]

    def _copy_kernel_log(self, target: pathlib.Path) -> Section:
        started = time.monotonic()
        status, note, size = "ok", "", 0
        with target.open("wb", buffering=0) as file:
            try:
                size = parts.kernel_log(self._kernel_log, file.fileno())
            except OSError as error:
                status = "missing" if isinstance(error, FileNotFoundError) else "failed"
                note = str(error.strerror or error)
        seconds = round(time.monotonic() - started, 2)
        size = min(size, parts.KERNEL_LOG_BYTES)
        return Section(name="kernel log", status=status, seconds=seconds, bytes=size, note=note)


def _lines(path: pathlib.Path, *, last: int | None = None) -> Iterator[str]:
    """The lines of a file, or of its last bytes, without their ends. Very long ones come in pieces."""
    with path.open("rb") as file:
        if last is not None and (start := path.stat().st_size - last) > 0:
            file.seek(start)
            file.readline()  # the rest of a line whose beginning is left out
        while line := file.readline(1 << 16):
            yield line.rstrip(b"\r\n").decode(errors="backslashreplace")


def clear(folder: pathlib.Path) -> None:
    """Remove what a collection that was interrupted has left."""
    for leftover in (*folder.glob("*.part"), *folder.glob("*.tmp")):
        with contextlib.suppress(OSError):
            shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
