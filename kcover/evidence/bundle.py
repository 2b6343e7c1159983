"""A bundle: one gzip file with the text of several sections, each under a line that says how it was read.

The format is that of ``nvidia-bug-report``: ``zless`` shows it, and no program is needed to unpack it.
"""

import gzip
import hashlib
import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import BinaryIO

from kcover.evidence.redaction import Redactor

COMMAND = "collect_evidence"  # the kind of the command to an agent
SINCE_AGENT = "1.0.0"  # older agents leave commands of a kind that they do not know unanswered
MAX_BYTES = 4 << 20  # of a bundle, compressed
MAX_CHUNK_BYTES = 1 << 20  # of a bundle, in one request
CUT_BYTES = MAX_BYTES - (256 << 10)  # of a bundle; then its text is cut, because the compressor still holds some of it
MAX_SECTIONS = 32  # listed with a bundle
MAX_NOTE_CHARACTERS = 200
STATUSES = ("ok", "failed", "late", "missing")  # of a section; missing: the tool or the file does not exist
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """How one part was read. ``note``: why it is not whole, or the tool to install. ``bytes``: of its text."""

    name: str
    status: str
    seconds: float = 0.0
    bytes: int = 0
    note: str = ""

    @property
    def heading(self) -> str:
        """The line above its text."""
        note = f", {self.note}" if self.note else ""
        return f"===== {self.name} ({self.status}, {self.seconds:.1f} s{note}) ====="


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """One request of an upload. ``offset``: of its chunk. ``size``, ``sha256``: of the whole bundle.

    ``age``: whole seconds since the evidence was collected, because the clocks of nodes may be wrong.
    """

    bundle: uuid.UUID
    offset: int
    size: int
    sha256: str
    age: int = 0

    def query(self) -> dict[str, str]:
        """The parameters of the request."""
        return {name: str(value) for name, value in asdict(self).items()}


def read_upload(parameters: Mapping[str, str]) -> Upload:
    """The upload that the parameters of a request describe. Raises ValueError with the name of an invalid one."""
    try:
        bundle = uuid.UUID(parameters.get("bundle", ""))
    except ValueError:
        raise ValueError("bundle") from None
    size = _number("size", parameters, most=MAX_BYTES, least=1)
    sha256 = parameters.get("sha256", "")
    if not _SHA256.fullmatch(sha256):
        raise ValueError("sha256")
    return Upload(
        bundle=bundle,
        offset=_number("offset", parameters, most=size - 1),
        size=size,
        sha256=sha256,
        age=_number("age", parameters, most=10**9, default="0"),
    )


def _number(name: str, parameters: Mapping[str, str], *, most: int, least: int = 0, default: str = "") -> int:
    text = parameters.get(name, default)
    if not (text.isascii() and text.isdecimal() and len(text) <= 10) or not least <= int(text) <= most:
        raise ValueError(name)
    return int(text)


class Writer:
    """Writes a bundle to a file. Every line is redacted here, so no caller can forget it."""

    def __init__(self, file: BinaryIO) -> None:
        self._target = file
        self._file = gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=6, mtime=0)

    def add(self, section: Section, lines: Iterable[str] = ()) -> None:
        """Add a section. ``lines`` have no ends of line."""
        redactor = Redactor()
        self._file.write(f"{redactor.line(section.heading)}\n".encode())
        for line in lines:
            if self._target.tell() > CUT_BYTES:
                self._file.write(b"===== cut: the bundle is full =====\n")
                break
            self._file.write(f"{redactor.line(line)}\n".encode(errors="backslashreplace"))
        self._file.write(b"\n")

    def close(self) -> None:
        """End the file; the file object given stays open."""
        self._file.close()


def sha256_of(file: BinaryIO) -> str:
    """The SHA-256 of a file in hex, read in pieces."""
    digest = hashlib.sha256()
    while piece := file.read(1 << 16):
        digest.update(piece)
    return digest.hexdigest()


def read_sections(value: object) -> list[Section]:
    """The sections in the output of a command. Whatever is not one is left out: an agent may send anything."""
    found = []
    for item in value[:MAX_SECTIONS] if isinstance(value, list) else ():
        if isinstance(item, dict) and item.get("status") in STATUSES and isinstance(item.get("name"), str):
            found.append(
                Section(
                    name=item["name"][:60],
                    status=item["status"],
                    seconds=_figure(item.get("seconds")),
                    bytes=int(_figure(item.get("bytes"))),
                    note=str(item.get("note", ""))[:MAX_NOTE_CHARACTERS],
                )
            )
    return found


def _figure(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        return 0.0
    return float(value)
