"""``manage.py ledger verify``: the chains by themselves, and the chains against anchors."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from django.core.management.base import CommandError

from kcover import reasons
from kcover_portal.anchors import queries, signed_heads
from kcover_portal.ledger import queries as ledger, signatures

BROKEN = 1  # exit status: a chain is broken or missing, or the database contradicts an anchor
UNPROVED = 3  # exit status: nothing contradicts, but an anchor has no valid line, or lines that are not valid


class LedgerVerification:
    """Collects what is wrong; ``conclude`` raises CommandError with the exit status."""

    def __init__(self, *, say: Callable[[str], object]) -> None:
        self._say = say
        self._broken: list[str] = []
        self._unproved: list[str] = []

    def chains(self, clusters: Sequence[str] | None = None) -> None:
        """Verifies these chains, or every chain; registered clusters must have one."""
        missing = [name for name in queries.missing_chains() if clusters is None or name in clusters]
        found = ledger.chains() if clusters is None else [name for name in clusters if name not in missing]
        broken = len(missing)
        for cluster in found:
            verdict = ledger.verify(cluster)
            if verdict.intact:
                self._say(f"{_name(cluster)}: {verdict.entries} entries, intact")
            else:
                broken += 1
                row = f" (row {verdict.row})" if verdict.row else ""
                self._say(f"{_name(cluster)}: broken at entry {verdict.broken_at}{row}: {verdict.because}")
        for cluster in missing:
            self._say(f"{_name(cluster)}: {reasons.of('chain_missing')}")
        if broken:
            self._broken.append(f"{broken} of {len(found) + len(missing)} chains are broken")

    def anchor(self, path: Path, *, keys: Path | None, since: datetime | None) -> None:
        """Compares the database with each signed line of an anchor that was published since then."""
        if since is not None and since.tzinfo is None:
            since = since.replace(tzinfo=UTC)
        try:
            trusted = signatures.public_keys() if keys is None else signatures.read_public_keys(keys)
            file = queries.read_anchor(path, trusted)
        except (signatures.SigningKeyUnusable, signed_heads.AnchorUnreadable) as error:
            raise CommandError(str(error), returncode=UNPROVED) from error
        anchors = [each for each in file.genuine if since is None or each.at >= since]
        contradictions = list(queries.contradictions(anchors))
        for each in contradictions:
            self._say(f"{path}: {each.because}")
        if contradictions:
            self._broken.append(f"the database contradicts {path} in {len(contradictions)} heads")
        if file.bad_lines:
            numbers = ", ".join(map(str, file.bad_lines[:10]))
            self._unproved.append(f"{path} has {len(file.bad_lines)} lines without a valid signature: {numbers}")
        if file.unsigned:
            self._unproved.append(f"{path} has {file.unsigned} unsigned lines; the portal had no key then")
        if not anchors:
            self._unproved.append(f"{path} has no signed heads to compare with")
        elif not contradictions:
            period = f"{reasons.moment(anchors[0].at)} to {reasons.moment(anchors[-1].at)}"
            self._say(f"{path}: {len(anchors)} signed heads from {period}, all in the database")

    def conclude(self) -> None:
        """Raises CommandError unless everything was intact and proved."""
        if self._broken:
            raise CommandError("; ".join([*self._broken, *self._unproved]), returncode=BROKEN)
        if self._unproved:
            raise CommandError("; ".join(self._unproved), returncode=UNPROVED)


def _name(cluster: str) -> str:
    return cluster or "(installation)"
