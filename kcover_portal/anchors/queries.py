"""Heads of the chains, and their comparison with anchors."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from kcover import reasons
from kcover_portal.anchors import signed_heads
from kcover_portal.anchors.models import Divergence, Publication
from kcover_portal.anchors.signed_heads import Head, SignedHeads
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger import queries as ledger
from kcover_portal.ledger.models import Chain, Entry
from kcover_portal.runtime import queries as runtime
from kcover_portal.runtime.models import Mode

CHUNK_HEADS = 500  # heads in one query; SQLite's limit is 999 parameters
INSTALLATION = ""  # the cluster of the installation's own chain


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """A contradiction between an anchor and the database."""

    cluster: str
    because: reasons.Reason


def heads() -> tuple[Head, ...]:
    """The head of every chain. Chains of one statement; entries that are appended meanwhile are not counted."""
    return tuple(
        Head(
            cluster=chain.cluster,
            sequence=chain.sequence,
            digest=chain.digest,
            entries=Entry.objects.filter(cluster=chain.cluster, sequence__lte=chain.sequence).count(),
        )
        for chain in Chain.objects.order_by("cluster")
    )


def missing_chains(anchored: Iterable[str] = ()) -> list[str]:
    """Clusters that are registered or anchored and have no chain."""
    known = {*Cluster.objects.values_list("name", flat=True), *anchored}
    return sorted(known - set(ledger.chains()))


def contradictions(anchors: Iterable[SignedHeads]) -> Iterator[Contradiction]:
    """Yields each anchored head that the database does not have, once, by cluster and sequence number."""
    anchored: dict[str, dict[tuple[int, str], datetime]] = {}
    for anchor in anchors:
        for head in anchor.heads:
            anchored.setdefault(head.cluster, {}).setdefault((head.sequence, head.digest), anchor.at)
    for cluster, wanted in sorted(anchored.items()):
        yield from _contradictions(cluster, wanted)


def _contradictions(cluster: str, wanted: dict[tuple[int, str], datetime]) -> Iterator[Contradiction]:
    newest = Entry.objects.filter(cluster=cluster).order_by("-sequence").values_list("sequence", flat=True).first()
    ordered = sorted((sequence, digest, at) for (sequence, digest), at in wanted.items() if sequence)
    if newest is None:  # one finding instead of one for each head
        ordered = ordered[-1:]
    for start in range(0, len(ordered), CHUNK_HEADS):
        chunk = ordered[start : start + CHUNK_HEADS]
        rows = Entry.objects.filter(cluster=cluster, sequence__in=[sequence for sequence, _, _ in chunk])
        digests = dict(rows.values_list("sequence", "digest"))
        for sequence, digest, at in chunk:
            if digests.get(sequence) == digest:
                continue
            yield Contradiction(cluster=cluster, because=_why(cluster, sequence, at, newest=newest or 0))


def _why(cluster: str, sequence: int, at: datetime, *, newest: int) -> reasons.Reason:
    named: dict[str, reasons.Value] = {"cluster": _name(cluster), "at": reasons.moment(at), "number": sequence}
    if not newest:
        return reasons.of("anchored_chain_missing", **named)
    if sequence > newest:
        return reasons.of("anchored_chain_behind", newest=newest, **named)
    return reasons.of("anchored_chain_rewritten", **named)


def read_anchor(path: Path, keys: dict[str, str]) -> "AnchorFile":
    """Reads a whole anchor. Raises AnchorUnreadable if the file cannot be read."""
    genuine, unsigned, bad = [], 0, []
    for number, line in signed_heads.lines(path):
        try:
            found = signed_heads.parse(line)
        except signed_heads.AnchorUnreadable:
            bad.append(number)
            continue
        if found.signature is None:
            unsigned += 1
        elif found.is_genuine(keys):
            genuine.append(found)
        else:
            bad.append(number)
    return AnchorFile(genuine=tuple(genuine), unsigned=unsigned, bad_lines=tuple(bad))


@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorFile:
    """The content of an anchor. ``bad_lines``: numbers of lines that are cut, altered or signed by an unknown key."""

    genuine: tuple[SignedHeads, ...]
    unsigned: int
    bad_lines: tuple[int, ...]


def publications() -> list[Publication]:
    """The state of publication, by place."""
    return list(Publication.objects.order_by("place"))


def unanswered_divergence() -> Divergence | None:
    """The newest divergence after which nobody has resumed automation yet."""
    newest = Divergence.objects.order_by("-at").first()
    whole = runtime.installation()
    resumed = whole.mode != Mode.PAUSED and whole.changed_at is not None and newest and whole.changed_at > newest.at
    return None if resumed else newest


def _name(cluster: str) -> str:
    return cluster or "(installation)"
