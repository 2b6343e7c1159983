"""Checks the ledger during a walk: the chain is intact, each write has its answer, and each request was allowed."""

from kcover_portal.ledger import queries as ledger
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue.models import Decision, Rescue
from tests.invariants import sql
from tests.invariants.observed_cluster import must
from tests.invariants.told_faults import ToldFaults

Key = tuple[int | None, str, str]  # a rescue, the verb and the subject of its write


class AuditLogCheck:
    """Follows the chain of cluster c1."""

    def __init__(self, told: ToldFaults) -> None:
        self._told = told
        self._end = (0, "")
        self._unanswered: dict[Key, int] = {}
        self._forgiven: set[Key] = set()
        self._asks: dict[tuple[int, str], set[str]] = {}

    def follow(self) -> None:
        """Goes on from where it was left; what the chain tells of asks for a reboot is held against the rules."""
        sequence, digest = self._end
        if sql.ask("SELECT sequence, digest FROM ledger_chain WHERE cluster = 'c1'") == [self._end]:
            return
        for entry in Entry.objects.filter(cluster="c1", sequence__gt=sequence).order_by("sequence"):
            must(entry.sequence == sequence + 1 and entry.previous == digest, 46, "the chain is broken")
            must(ledger.digest(entry) == entry.digest, 46, "an entry does not match its digest")
            sequence, digest = entry.sequence, entry.digest
            self._read(entry)
        self._end = (sequence, digest)

    def _read(self, entry: Entry) -> None:
        verb, _, end = entry.verb.rpartition(".")
        key = (entry.rescue, verb, entry.subject)
        if end == "begun":
            self._unanswered[key] = self._unanswered.get(key, 0) + 1
            if verb == "reboot":
                self._read_ask(entry)
            elif verb == "replace":
                self._read_replacement(entry)
        elif self._unanswered.get(key) and end in ("done", "failed"):
            self._unanswered[key] -= 1
        if entry.verb in ("decision.rescue", "decision.approve"):
            self._read_decision(Decision.objects.select_related("incident").get(pk=entry.data["decision"]))

    def _read_ask(self, entry: Entry) -> None:
        """Invariants 13, 16, 21: one ask a boot and a person's word; none of a node that was not drained."""
        assert entry.rescue is not None
        wanted = entry.data["wanted"]
        asks = self._asks.setdefault((entry.rescue, wanted["boot_id"]), set())
        asks.add(wanted["key"])
        words = Entry.objects.filter(rescue=entry.rescue, verb__in=("step.retried", "step.skipped")).count()
        must(len(asks) <= 1 + words, 16, f"boot {wanted['boot_id'][:8]} of {entry.node} was asked to end as {asks}")
        for drain in Rescue.objects.get(pk=entry.rescue).steps.filter(name="drain"):
            ended = drain.state in ("done", "skipped") or drain.index > _index_of(wanted["key"])
            must(ended, 21, f"{entry.node} is to be rebooted while its drain is {drain.state}")

    def _read_replacement(self, entry: Entry) -> None:
        """Invariants 21, 53: one machine a rescue, which was drained; more only by a person's word. An unknown result
        is not followed by another request."""
        rescue = Entry.objects.filter(rescue=entry.rescue, sequence__lte=entry.sequence)
        words = rescue.filter(verb__in=("step.retried", "step.skipped")).count()
        asks = rescue.filter(verb="replace.begun")
        uids = {one.data["wanted"]["uid"] for one in asks}
        must(len(uids) <= 1 + words, 53, f"{entry.node}: the replacement of {uids} was requested")
        unclear = asks.count() - rescue.filter(verb__in=("replace.failed", "replace.done")).count()
        must(unclear <= 1 + words, 53, f"{entry.node}: a request with an unknown result was repeated")
        for drain in Rescue.objects.get(pk=entry.rescue).steps.filter(name="drain", index__lt=entry.data["step"]):
            must(drain.state in ("done", "skipped"), 21, f"{entry.node} is to be replaced, its drain is {drain.state}")

    def _read_decision(self, row: Decision) -> None:
        must(row.mode not in ("paused", "shadow"), 48, f"decision {row.pk} says {row.answer} in mode {row.mode}")
        if row.incident is not None:
            self._told.check_cause(row.incident)
        settings = row.facts["counts"]
        must(settings is None or settings["eligible"] > 0, 30, f"decision {row.pk} was made over no eligible node")

    def check_answers(self, *, died: bool) -> None:
        """After a worker: every write has its answer, save those of one that ``died``."""
        self.follow()
        open_ = {key for key, count in self._unanswered.items() if count}
        if died:
            self._forgiven |= open_
        left = open_ - self._forgiven
        must(not left, 46, f"writes without an answer in the ledger: {left}")


def _index_of(key: str) -> int:
    """The place of the step that asked under a key, ``reboot-<rescue>-<index>-<retry>``."""
    return int(key.split("-")[2])
