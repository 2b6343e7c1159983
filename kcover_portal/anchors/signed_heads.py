"""Signed heads as JSON: the heads of all chains at one time, and a signature of them.

::

    {"kind": "kcover-ledger-heads", "at": "2026-11-22T21:00:00.000000+00:00", "key_id": "…", "signature": "…",
     "heads": [{"cluster": "east", "sequence": 120, "digest": "…", "entries": 120}, …]}

The signature covers the canonical JSON (``signatures.canonical``) without ``key_id`` and ``signature``. Both are empty
if the portal had no key. Cluster "" is the installation. An anchor is a file with one such object a line.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from kcover import reasons
from kcover_portal.ledger import signatures

KIND: Final = "kcover-ledger-heads"
TAIL_BYTES: Final = 1024 * 1024  # read from the end of an anchor to find its newest heads


class AnchorUnreadable(reasons.ExplainedError):
    """An anchor's file cannot be read, or a line of it is not signed heads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The head of one chain: its newest entry's sequence number and digest, and the number of entries up to it."""

    cluster: str
    sequence: int
    digest: str
    entries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedHeads:
    """The heads of all chains at one time. ``signature`` is None if the portal had no key."""

    at: datetime
    heads: tuple[Head, ...]
    signature: signatures.Signature | None = None

    def content(self) -> dict[str, Any]:
        """The signed part of the document."""
        at = self.at.astimezone(UTC).isoformat(timespec="microseconds")
        return {"kind": KIND, "at": at, "heads": [asdict(head) for head in self.heads]}

    def document(self) -> dict[str, Any]:
        signature = self.signature or signatures.Signature(key_id="", signature="")
        return {**self.content(), **asdict(signature)}

    def line(self) -> str:
        """The document as one line, without the line feed."""
        return json.dumps(self.document(), sort_keys=True, separators=(",", ":"))

    def fingerprint(self) -> str:
        """SHA-256 of the document."""
        return hashlib.sha256(self.line().encode()).hexdigest()

    def signed(self) -> "SignedHeads":
        """The same heads with a signature. Raises SigningKeyUnusable."""
        signature = signatures.sign(signatures.canonical(self.content()))
        return SignedHeads(at=self.at, heads=self.heads, signature=signature)

    def is_genuine(self, keys: Mapping[str, str]) -> bool:
        """Returns whether one of the keys made the signature."""
        content = signatures.canonical(self.content())
        return self.signature is not None and signatures.verify(content, self.signature, keys)


def parse(line: str) -> SignedHeads:
    """Reads one line of an anchor; the signature is not verified. Raises AnchorUnreadable."""
    try:
        document = json.loads(line)
        if document["kind"] != KIND:
            raise ValueError(f"kind is not {KIND}")
        heads = tuple(
            Head(
                cluster=str(head["cluster"]),
                sequence=int(head["sequence"]),
                digest=str(head["digest"]),
                entries=int(head["entries"]),
            )
            for head in document["heads"]
        )
        at = datetime.fromisoformat(document["at"])
        if at.tzinfo is None:
            raise ValueError("at has no time zone")
        key_id, signature = str(document["key_id"]), str(document["signature"])
        found = SignedHeads(at=at.astimezone(UTC), heads=heads)
        signatures.canonical(found.content())  # no key signs what has no UTF-8
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise AnchorUnreadable(reasons.of("anchor_line_invalid", error=str(error)[:200])) from error
    given = signatures.Signature(key_id=key_id, signature=signature) if signature else None
    return replace(found, signature=given)


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yields the number and text of each line of an anchor. Raises AnchorUnreadable."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line
    except OSError as error:
        raise _unreadable(path, error) from error


def newest(path: Path, keys: Mapping[str, str]) -> SignedHeads | None:
    """Returns the newest heads of an anchor with a valid signature, or None. Raises AnchorUnreadable.

    Reads the end of the file. A line that was cut by a crash, and lines without a valid signature, are passed over. The
    newest are those with the latest time, not the last ones: somebody may have appended an old line again.
    """
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - TAIL_BYTES))
            tail = file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(path, error) from error
    parsed = sorted(_parsed(tail), key=lambda one: one.at, reverse=True)
    return next((one for one in parsed if one.is_genuine(keys)), None)


def _parsed(tail: Iterable[str]) -> Iterator[SignedHeads]:
    """The lines that are signed heads, whoever signed them, the last first."""
    for line in reversed([*tail]):
        try:
            yield parse(line)
        except AnchorUnreadable:
            continue


def _unreadable(path: Path, error: OSError) -> AnchorUnreadable:
    return AnchorUnreadable(reasons.of("anchor_unreadable", path=str(path), error=error.strerror or str(error)))
