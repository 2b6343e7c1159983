"""Verify the proof of a rescue: ``verify_proof.py FILE --key PUBLIC_KEY [--anchor FILE]``.

This file needs Python 3.11 and the package ``cryptography``: no portal, no database, and no code of the portal. It
prints ``valid``, or the first broken claim as a code and a sentence, and exits with 0 or 1.

What a proof states, and how each statement is derived again:

1. *Signature.* The portal's Ed25519 key signed exactly these statements.
2. *Chain.* The entries of the rescue are a segment of the cluster's audit log. The digest of an entry is SHA-256 over
   the previous digest, its rescue and the digest of its content. So entries of others are present as their rescue and
   the digest of their content, the links can be computed, and none of them is of this rescue. The longest runs of such
   entries are left out beyond 2,000 entries; then only their last digest is given. Entries of older portals name no
   rescue. The script prints how many entries could hide an act so.
   ``--anchor`` compares the digests with heads that the portal published elsewhere. It finds a history that was
   rewritten as a whole and signed again, which no other statement can show.
3. *Decision.* The entry of the decision has the digest of the facts: the fault, the node, the modes, the guards'
   settings and counts, and the digest of all rules in force. From these the decision is derived again: which rule
   applies, whether something else prevents the rescue, whether each guard lets it pass, which mode holds, which steps
   the rule asks for, and which approval it needs. The reasons that the entry gives must be the derived ones.
4. *Votes.* A vote counts only if it is about this plan (its hash), step, node and machine, in time, by a person who
   neither requested the rescue nor voted before. Accounts that one person controls are one person. The portal's own
   count must agree, and so must the votes that it keeps apart from the log.
5. *Order.* The entries are played again: a step begins after all steps before it ended; no call of a gated step
   precedes its approval; each answer follows its call; each attempt that ended has all its answers; a reboot ends one
   boot once, a power cycle switches the machine off once, and a machine is replaced once; and the rescue ends as its
   steps say. The states of the steps that the portal keeps apart from the log are those that the entries lead to.
6. *Guards.* Before each call that takes work away, and before a late isolation, the log has the figures of the guards.
   Their arithmetic is repeated: the act must pass, or a named person must have overridden the guard.

A proof does not show that the facts were true when they were recorded, nor that calls had the effect they report.
"""

import argparse
import base64
import hashlib
import itertools
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

KINDS = ("kcover.io/rescue-proof/v2", "kcover.io/rescue-proof/v1")  # in v1, no entry names its rescue
MAX_DIGESTS = 2_000  # of entries of others; only what exceeds it is left out
MODES = ("paused", "shadow", "approve", "enforce")  # strictest first
CLOCKS_DIFFER = timedelta(seconds=5)  # of two workers
UPLOADS_WAIT = timedelta(minutes=1)  # an agent's entry has the time of its request, which may wait for a busy database
COUNTED_BEFORE = timedelta(minutes=1)  # how old the guards' figures may be when an isolation begins
REFRESHED = timedelta(seconds=20)  # how old they may be when a call takes work away; the portal counts every 2 s

# The fixed order of a plan's steps, and the steps that one implies.
ORDER = (
    *(
        "cordon",
        "taint",
        "label",
        "quarantine_device",
        "notify",
        "standby",
        "restart_jobs",
        "stop_jobs",
        "drain",
        "webhook",
        "reset",
        "reboot",
        "power_cycle",
        "offline",
        "replace",
        "repair",
        "ready",
    ),
    *("run_checks", "verify", "validate", "uncordon", "release", "end_exclusion", "escalate", "exclude"),
)
NAMES = {
    "gpuReset": "reset",
    "powerCycle": "power_cycle",
    "restartJobs": "restart_jobs",
    "stopJobs": "stop_jobs",
    "runChecks": "run_checks",
    "unCordon": "uncordon",
    "enableWarmStandby": "standby",
    "quarantineDevice": "quarantine_device",
}
BOOTS = ("reboot", "power_cycle")  # steps that end a boot
IMPLIED = {
    "drain": ("cordon",),
    "reset": ("cordon", "verify"),
    **dict.fromkeys(BOOTS, ("cordon", "ready", "verify")),
    **dict.fromkeys(("offline", "repair"), ("cordon", "drain", "verify")),
    "replace": ("cordon",),
    "validate": ("verify",),
}
ISOLATES = (
    *("cordon", "taint", "quarantine_device", "restart_jobs", "stop_jobs", "drain", "reset", *BOOTS),
    *("offline", "replace", "repair"),
)
TAKES_AWAY = ("restart_jobs", "stop_jobs", "drain", "reset", *BOOTS, "replace")
HARMLESS = ("cordon", "taint", "quarantine_device", "notify", "escalate", "exclude")  # approve mode asks before others
SYSTEM_KEY = re.compile(r"([^/]+\.)?(kubernetes|k8s)\.io/.*")  # and before a taint on which a controller may act
MENDS = ("reset", *BOOTS, "replace")
RETURNS = ("uncordon", "release")
# Steps that always call.
MAKES = {"cordon": "cordon", "taint": "taint", "uncordon": "uncordon"}
MAKES |= dict.fromkeys(("label", "exclude", "end_exclusion"), "label")
POWER = ("power_off", "power_cycle")  # calls that end a boot through the machine's controller
DESTRUCTIVE = (
    "evict",
    "delete",
    "command",
    "reboot",
    *POWER,
    "reset",
    "replace",
)  # calls; a taint with NoExecute is one, too
TAINTS = {"taint": "taint", "taint_device": "quarantine_device"}  # calls, each with its step
ISOLATING = ("cordon", "taint", "mark_device", "taint_device", *DESTRUCTIVE)
CLEANS_UP = (
    "withdraw",
    "yield",
    "release",
    "give_back",
    "end_probation",
    "untaint_device",
)  # calls that only take back what the portal did
FINISHED = ("done", "skipped", "cancelled")
CLOSED = ("succeeded", "failed", "cancelled")
AFTER_END = (
    "step.failed",
    "step.started_over",
    "step.overruled",
    "step.replaced",
    "command.late",
    "marks.",
    "evidence.",
    "probation.",
)
REMARKS = (
    "rescue.question_cancelled",
    "rescue.link_made",
    "rescue.called_back",
    "command.late",
    "evidence.kept",
    "evidence.missed",
    "marks.gone",
    "marks.found",
    "marks.device_rule_gone",
    "probation.end_requested",
    "probation.ended",
    "job.moving",
    "job.moved",
)

ORIGINS = ("policy", "api", "manual")
REQUESTERS = ("person", "token", "policy", "system", "external")

Json = dict[str, Any]


class Broken(Exception):
    """A claim of the proof does not hold."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


def claim(holds: bool, code: str, sentence: str) -> None:
    """Raises Broken unless the claim holds."""
    if not holds:
        raise Broken(code, sentence)


# ------------------------------------------------------------------------------------------------------- the document


def canonical(value: Any) -> bytes:
    """The JSON value with sorted keys and without spaces, in UTF-8."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest(value: Any) -> str:
    """The SHA-256 of the canonical JSON."""
    return hashlib.sha256(canonical(value)).hexdigest()


def moment(text: Any) -> datetime:
    """A time with its zone."""
    at = datetime.fromisoformat(text)
    claim(at.tzinfo is not None, "format", f"the time {text} has no time zone")
    return at


def read_keys(path: Path) -> dict[str, Ed25519PublicKey]:
    """The public keys of a PEM file by their ids. Raises ValueError if it has none."""
    found = {}
    for pem in re.findall(rb"-----BEGIN PUBLIC KEY-----.+?-----END PUBLIC KEY-----", path.read_bytes(), re.DOTALL):
        key = serialization.load_pem_public_key(pem)
        if not isinstance(key, Ed25519PublicKey):
            raise ValueError(f"{path} has a key that is not Ed25519")
        raw = key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        found[hashlib.sha256(raw).hexdigest()[:16]] = key
    if not found:
        raise ValueError(f"{path} has no public key; write the PEM file of the portal")
    return found


def read(text: str) -> Json:
    """The document of a file. Raises Broken."""

    def unique(pairs: list[tuple[str, Any]]) -> Json:
        claim(len(dict(pairs)) == len(pairs), "format", "a key occurs twice in one object")
        return dict(pairs)

    try:
        document = json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise Broken("format", f"the file is not JSON: {error}") from error
    claim(isinstance(document, dict), "format", "the file is not a JSON object")
    return dict(document)


def verify(document: Json, keys: Mapping[str, Ed25519PublicKey], heads: Iterable[Json] | None = None) -> "Story":
    """Checks every claim. Raises Broken for the first one that does not hold."""
    try:
        proof = check_signature(document, keys, "proof", *KINDS)
        chain = Chain(proof["segment"], proof["rescue"]["id"])
        chain.check()
        if heads is not None:
            chain.compare(heads)
        story = Story(proof, chain.entries, unseen=chain.unseen)
        story.check()
    except Broken:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise Broken("format", f"a part of the proof is missing or malformed: {error!r}") from error
    return story


def check_signature(document: Json, keys: Mapping[str, Ed25519PublicKey], part: str, *kinds: str) -> Json:
    """The signed part of a document. Raises Broken."""
    signed = document.get(part)
    claim(isinstance(signed, dict), "format", f"the document has no {part}")
    key = keys.get(str(document.get("key_id")))
    claim(key is not None, "key", f"the key {document.get('key_id')} is not among the given public keys")
    try:
        key.verify(base64.b64decode(str(document.get("signature")), validate=True), canonical(signed))
    except (InvalidSignature, ValueError) as error:
        raise Broken("signature", f"the signature is not one of the key over this {part}") from error
    claim(signed.get("kind") in kinds, "format", f"the document is not a {kinds[0]}")
    return dict(signed)


class Chain:
    """A segment of a cluster's audit log: entries of the rescue, and digests of the others.

    ``unseen``: how many of the others do not name their rescue, so that they could be of this one.
    """

    def __init__(self, segment: Json, rescue: int) -> None:
        self.cluster: str = segment["cluster"]
        self._segment, self._rescue = segment, rescue
        self._named_from = segment.get("named_from", math.inf)
        self.entries: list[Json] = []
        self.unseen = 0
        self._runs: list[tuple[int, bool]] = [(0, True)]  # entries between those of the rescue, and whether shown
        self._parts: list[dict[int, str]] = [{}]  # digest by sequence number, anew after entries that were left out

    def check(self) -> None:
        """Computes every digest."""
        previous, sequence = self._segment["previous"], self._segment["first"]
        for item in self._segment["links"]:
            if isinstance(item, dict) and "omitted" in item:
                self._leave_out(item["omitted"])
                sequence, previous = sequence + item["omitted"] - 1, item["digest"]
                self._parts.append({})
            else:
                said = self._own(item, sequence) if isinstance(item, dict) and "verb" in item else self._of_others(item)
                if sequence >= self._named_from:
                    claim(isinstance(said, dict), "unnamed", f"entry {sequence} does not name its rescue")
                    said = digest(said)
                claim(isinstance(said, str), "format", f"entry {sequence} names a rescue before named_from")
                previous = hashlib.sha256(f"{previous}:{said}".encode()).hexdigest()
            self._parts[-1][sequence] = previous
            sequence += 1
        claim(previous == self._segment["head"], "chain", "the entries do not lead to the head of the segment")
        self._check_left_out()

    def _own(self, entry: Json, sequence: int) -> Json | str:
        claim(entry["sequence"] == sequence, "chain_sequence", f"entry {sequence} has another number")
        claim(entry["cluster"] == self.cluster, "chain_cluster", f"entry {sequence} is of another cluster")
        self.entries.append(entry)
        self._runs.append((0, True))
        return {"rescue": entry["rescue"], "content": digest(entry)} if sequence >= self._named_from else digest(entry)

    def _of_others(self, item: Json | str) -> Json | str:
        if isinstance(item, dict):
            claim(set(item) == {"rescue", "content"}, "format", "a digest of another entry has other fields")
            claim(item["rescue"] != self._rescue, "hidden", "an entry of the rescue is shown as a digest only")
        else:
            self.unseen += 1
        count, is_shown = self._runs[-1]
        claim(is_shown, "chain", "a run of entries is left out in part")
        self._runs[-1] = count + 1, True
        return item

    def _leave_out(self, count: int) -> None:
        claim(isinstance(count, int) and count > 0, "chain", "a run of entries that was left out is empty")
        claim(self._runs[-1] == (0, True), "chain", "a run of entries is left out in part")
        self._runs[-1] = count, False
        self.unseen += count

    def _check_left_out(self) -> None:
        """Only the longest runs are left out, and only so many that the bound holds."""
        between = self._runs[1:-1]
        left_out = [count for count, is_shown in between if not is_shown]
        kept = [count for count, is_shown in between if is_shown]
        claim(self._runs[0] == (0, True) and self._runs[-1][1], "left_out", "the segment begins or ends with a gap")
        if left_out:
            claim(sum(kept) + min(left_out) > MAX_DIGESTS, "left_out", "entries are left out although there is room")
            claim(min(left_out) >= max(kept, default=0), "left_out", "a shorter run of entries is left out")

    def compare(self, heads: Iterable[Json]) -> None:
        """Compares with published heads; every part between entries that were left out must have one."""
        covered = set()
        for head in heads:
            if head["cluster"] != self.cluster:
                continue
            for number, part in enumerate(self._parts):
                if head["sequence"] in part:
                    same = part[head["sequence"]] == head["digest"]
                    claim(same, "anchor", f"the published head {head['sequence']} has another digest")
                    covered.add(number)
        claim(len(covered) == len(self._parts), "anchor_missing", "no published head is in a part of the segment")


def read_heads(path: Path, keys: Mapping[str, Ed25519PublicKey]) -> list[Json]:
    """The published heads of a file with one signed JSON object a line. Raises Broken."""
    found: list[Json] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip():
            published = read(line)
            made = {name: published.pop(name, None) for name in ("key_id", "signature")}
            found += check_signature({"heads": published, **made}, keys, "heads", HEADS_KIND)["heads"]
    return found


HEADS_KIND = "kcover-ledger-heads"


# --------------------------------------------------------------------------------------------------------- the guards


def limit_of(limit: int | str, total: int) -> int:
    """A count, or a percentage of the total, rounded down to at least one."""
    if isinstance(limit, int):
        return limit
    return max(1, total * int(limit.removesuffix("%")) // 100) if total > 0 else 0


# The windows of the rate guard: hours, and how much faults clump in the public trace.
WINDOWS = {"ten_minutes": (1 / 6, 0.4), "hour": (1.0, 0.5), "six_hours": (6.0, 0.9)}


def not_by_chance(nodes: int, window: str, past: Json) -> int:
    """From how many faulty nodes on the negative binomial law holds back at most 0.1 % of all faults."""
    hours, prior = WINDOWS[window]
    faults = 300 + past.get("faults", 0)
    expected = faults / (300 / 1.8e-4 + past.get("node_hours", 0)) * nodes * hours
    observed = past.get(window, 0) - past.get("faults", 0) * expected
    clumping = max((300 * prior * min(nodes / 400, 1) + observed) / faults, 0.01)
    ratio, size = 2 * clumping / (1 + 2 * clumping), expected / (2 * clumping)
    most = min(max(8, nodes * 2 // 100), nodes) if window == "ten_minutes" else nodes

    def chance(count: int) -> float:
        ways = math.lgamma(count + size) - math.lgamma(size) - math.lgamma(count + 1)
        return math.exp(ways + size * math.log1p(-ratio) + count * math.log(ratio))

    at_most = chance(0)
    above, count = expected - (1 - at_most), 1
    while above > 0.001 * expected and count + 1 < most:
        at_most += chance(count)
        above -= 1 - at_most
        count += 1
    return count + 1


def span(seconds: int) -> Json:
    """A duration as reasons name it."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds and seconds % length == 0:
            return {"code": f"span_{unit}", "params": {"n": seconds // length}}
    return {"code": "span_s", "params": {"n": seconds}}


def pool_of(name: str) -> str | Json:
    """A pool as reasons name it."""
    return name or {"code": "pool_unnamed", "params": {}}


def scope_of(slots: Json) -> Json:
    """The scope of a budget as reasons name it."""
    name = pool_of(slots["name"]) if slots["by"] == "pool" else slots["name"]
    return {"code": f"scope_{slots['by']}", "params": {"name": name}}


@dataclass(frozen=True)
class Finding:
    """The result of one guard: whether it holds the act back, and otherwise its reason with the figures."""

    guard: str
    holds: bool
    code: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)


class Guards:
    """The arithmetic of the guards over recorded settings and counts."""

    def __init__(self, settings: Json, facts: Json, *, at: datetime, rule: Json | None, excluded: bool) -> None:
        self.settings, self.facts, self.at, self.rule, self.excluded = settings, facts, at, rule or {}, excluded
        self.eligible: int = facts["eligible"]

    def check(self, act: str, overrides: Iterable[str]) -> list[Finding]:
        """Returns the guards that let the act pass. Raises Broken if one holds it back."""
        claim(self.eligible >= 1, "guards", f"no node was eligible, so {act} had to wait")
        found = list(self._isolation() if act == "isolation" else self._destructive())
        held = [finding.guard for finding in found if finding.holds and finding.guard not in overrides]
        claim(not held, "guards", f"by its figures the guard {', '.join(held)} holds back {act}")
        return [finding for finding in found if not finding.holds]

    def _isolation(self) -> Iterable[Finding]:
        settings, facts, rule = self.settings, self.facts, self.rule
        mine = facts.get("rules", {}).get(rule.get("name"), {})
        yield self._maintenance()
        if settings["storm"]["enabled"]:
            yield self._storm_cordon() if facts.get("hardware") else self._storm()
        if settings["breaker"]["enabled"]:
            yield self._breaker()
        if settings["budget"]["limit"] is not None:
            yield self._budget(facts["slots"], settings["budget"]["limit"])
        for place, slots in facts.get("scoped", {}).items():
            yield self._budget(slots, settings["budget"]["scopes"][int(place)]["limit"])
        if rule.get("budget") is not None:
            yield self._budget(mine["slots"], rule["budget"])
        if settings["floor"]["percent"] is not None:
            yield self._floor()
        if settings["cooldown"]:
            yield self._cooldown(settings["cooldown"], facts.get("last_rescue_ended_at"))
        if rule.get("cooldown") is not None:
            yield self._cooldown(rule["cooldown"], mine.get("last_ended_at"))

    def _destructive(self) -> Iterable[Finding]:
        yield Finding("exclusion", self.excluded)
        yield self._maintenance()
        if self.settings["storm"]["enabled"]:
            yield self._storm()
        if self.settings["rate"]["enabled"]:
            yield self._rate()
        if self.settings["floor"]["percent"] is not None:
            yield self._floor()

    def _maintenance(self) -> Finding:
        facts = self.facts
        names = {"cluster": facts["cluster"], "pool": facts.get("pool", {}).get("name"), "node": facts["node"]}
        covers = [
            window
            for window in facts.get("maintenance", ())
            if moment(window["start"]) <= self.at < moment(window["end"]) and self._is_covered(window, names)
        ]
        return Finding("maintenance", bool(covers), "no_maintenance")

    @staticmethod
    def _is_covered(window: Json, names: Mapping[str, Any]) -> bool:
        """Windows by label, rack or several names record whether they cover the node."""
        scope = window["scope"]
        if scope not in names and scope != "all":
            claim(isinstance(window.get("covers"), bool), "guards", f"a window by {scope} must say whether it covers")
        return bool(window.get("covers") or scope == "all" or window["name"] == names.get(scope))

    def _storm(self) -> Finding:
        storm = self.settings["storm"]
        reached = max(storm["nodes"], limit_of(f"{storm['percent']}%", self.eligible))
        nodes = max((symptom["nodes"] for symptom in self.facts.get("symptoms", ())), default=0)
        params = {"nodes": nodes, "limit": reached, "within": span(storm["window"])}
        return Finding("storm", nodes >= reached, "no_storm", params)

    def _storm_cordon(self) -> Finding:
        """A storm lets a node with a hardware fault of its own be isolated, within the budget."""
        held, taken = self._storm(), self.facts["slots"]["taken"]
        if not held.holds:
            return held
        most = min(limit_of("25%", self.eligible), limit_of(self.settings["breaker"]["limit"], self.eligible))
        full = self.settings["budget"]["limit"] is None and not self.facts.get("holds_slot") and taken >= most
        return Finding("storm", full, "storm_cordon", held.params)

    def _rate(self) -> Finding:
        faulty, past = self.facts.get("faulty", {}), self.facts.get("past", {})
        trips = any(faulty.get(name, 0) >= not_by_chance(self.eligible, name, past) for name in WINDOWS)
        return Finding("rate", trips, "rate_of_chance")

    def _breaker(self) -> Finding:
        breaker, isolated = self.settings["breaker"], self.facts.get("isolated_lately", 0)
        limit = limit_of(breaker["limit"], self.eligible)
        params = {"isolated": isolated, "limit": limit, "eligible": self.eligible, "within": span(breaker["window"])}
        return Finding("breaker", not self.facts.get("holds_slot") and isolated >= limit, "breaker_closed", params)

    def _budget(self, slots: Json, limit: int | str) -> Finding:
        most = limit_of(limit, slots["eligible"])
        params = {"scope": scope_of(slots), "taken": slots["taken"], "limit": most, "eligible": slots["eligible"]}
        return Finding("budget", not self.facts.get("holds_slot") and slots["taken"] >= most, "budget_left", params)

    def _floor(self) -> Finding:
        pool = self.facts["pool"]
        floor = limit_of(f"{self.settings['floor']['percent']}%", pool["eligible"])
        params = {
            "pool": pool_of(pool["name"]),
            "healthy": pool["healthy"],
            "floor": floor,
            "eligible": pool["eligible"],
        }
        return Finding("floor", self.facts["serving"] and pool["healthy"] - 1 < floor, "above_floor", params)

    def _cooldown(self, seconds: int, ended: str | None) -> Finding:
        holds = ended is not None and self.at < moment(ended) + timedelta(seconds=seconds)
        return Finding("cooldown", holds, "cooled_down", {"within": span(seconds)})


# ------------------------------------------------------------------------------------------------------- the decision


def seconds_of(text: str) -> int:
    """The seconds of a duration of a policy: ``1day2h3min``."""
    units = {"day": 86400, "h": 3600, "min": 60}
    return sum(int(count) * units[unit] for count, unit in re.findall(r"([0-9]+)(day|h|min)", text))


class Rule:
    """A rule as its policy writes it."""

    def __init__(self, candidate: Json, *, drained: str = "hold") -> None:
        self.candidate, self.written, self.drained = candidate, candidate["rule"], drained
        self.name = f"{candidate['policy']}#{candidate['index'] + 1}"
        self.priority: int = self.written["priority"]
        self.mode: str = self.written.get("mode", "enforce")
        self.approval: Json | None = self.written.get("approval")

    @property
    def rank(self) -> tuple[Any, ...]:
        """The order in which rules are tried."""
        candidate = self.candidate
        return self.added, -self.priority, moment(candidate["created_at"]), candidate["policy"], candidate["index"]

    @property
    def added(self) -> bool:
        """True if a cluster keeps its policy as an object: such rules come last. Old proofs do not tell."""
        return bool(self.candidate.get("added", False))

    def limits(self) -> Json:
        """Its budget and cooldown."""
        cooldown = self.written.get("cooldown")
        return {
            "name": self.name,
            "budget": self.written.get("budget"),
            "cooldown": seconds_of(cooldown) if cooldown is not None else None,
        }

    def covers(self, facts: Json) -> bool:
        """True if it is about the fault on the node, however often it must be seen."""
        return self._covers(facts) and self._selects(facts["node"]["labels"])

    def _covers(self, facts: Json) -> bool:
        match, codes = self.written.get("match", {}), self.written.get("errorCode")
        kind, code = facts["fault"]["kind"], facts["fault"]["code"]
        listed = {"xid": codes or (), "sxid": match.get("sxid", ()), "check": match.get("checks", ())}
        listed |= match.get("codes", {})
        if code in listed.get(kind, ()):
            return True
        numeric = kind in ("xid", "sxid")
        names_none = codes is None and not any(match.get(key) for key in ("sxid", "checks", "codes", "kinds"))
        if kind not in match.get("kinds", ()) and not (names_none and numeric):
            return False
        if numeric:
            return not facts["program_fault"]
        if facts["fault"].get("harmless", False):  # not in old proofs
            return False
        return match.get("applicationFaults", True) or not facts["fault"].get("application", False)  # not in old proofs

    def _selects(self, labels: Json) -> bool:
        selector = self.written.get("nodeSelector")
        if not selector or not selector["labels"]:
            return True
        hits = [labels.get(key) == value for key, value in selector["labels"].items()]
        return any(hits) if selector["operator"] == "any" else all(hits)

    def often(self, fault: Json) -> bool:
        """True if the fault was seen as often as it requires."""
        match = self.written.get("match", {})
        if "minCount" not in match:
            return True
        return bool(fault["seen_within"].get(str(seconds_of(match["within"])), 1) >= match["minCount"])

    def steps(self, code: str) -> list[Json]:
        """The plan of the rule for a fault with this code."""
        listed = {NAMES.get(action["name"], action["name"]): action.get("attribute", {}) for action in self.actions}
        wanted = set(listed)
        if self.written.get("verify"):
            wanted.add("verify")
        if self.written.get("validate") is not None:
            wanted.add("validate")
        if any(action.get("attribute", {}).get("unCordon") == "true" for action in self.actions):
            wanted.add("uncordon")
        if self.written.get("escalate") is not None:
            wanted.add("escalate")
        wanted |= {implied for name in wanted for implied in IMPLIED.get(name, ())}
        return [
            {"name": name, "args": self._args(name, listed.get(name, {}), code)} for name in ORDER if name in wanted
        ]

    @property
    def actions(self) -> list[Json]:
        """Its actions as written."""
        return list(self.written["actions"])

    def _args(self, name: str, attribute: Json, code: str) -> Json:
        wait = seconds_of(attribute.get("waittime", ""))
        drains = [action.get("attribute", {}) for action in self.actions if action["name"] == "drain"]
        checkpoint = checkpoint_of(drains[0]) if drains else {}
        verify = self.written.get("verify")
        made: Mapping[str, Callable[[], Json]] = {
            "taint": lambda: {
                "key": attribute.get("key", "kcover.io/unhealthy"),
                "value": label_value(attribute.get("value", "<code>"), code),
                "effect": attribute.get("effect", "NoSchedule"),
            },
            "quarantine_device": lambda: {
                "value": label_value("<code>", code),
                "effect": attribute.get("effect", "NoSchedule"),
                "otherwise": attribute.get("otherwise", "cordon"),
            },
            "label": lambda: {"key": attribute["key"], "value": label_value(attribute.get("value", "true"), code)},
            "notify": lambda: present(
                channel=attribute.get("channel"),
                message=attribute["message"].replace("<code>", code) if "message" in attribute else None,
            ),
            "drain": lambda: {
                "seconds": wait if attribute.get("waittime") else 600,
                "on_timeout": self.written.get("onDrainTimeout", self.drained),
                **present(kueue_together=True if attribute.get("kueueTogether") == "true" else None),
                **checkpoint,
            },
            "restart_jobs": lambda: checkpoint,
            "stop_jobs": lambda: checkpoint,
            "webhook": lambda: {"url": attribute["url"], **present(wait_seconds=wait or None)},
            "offline": lambda: {"url": attribute["url"], "wait_seconds": wait or 604800},
            "repair": lambda: {name: attribute[name] for name in ("vendor", "queue") if name in attribute},
            "reboot": lambda: present(wait_seconds=wait or None),
            "run_checks": lambda: present(checks=attribute["checks"].split(",") if attribute.get("checks") else None),
            "verify": lambda: {"agent": verify.get("agent", True) if isinstance(verify, dict) else True},
            "validate": lambda: {"profile": self.written["validate"]},
            "uncordon": lambda: present(probation=self.written.get("probation")),
            "escalate": lambda: {"message": self.written.get("escalate") or ""},
        }
        return made[name]() if name in made else {}


def checkpoint_of(drain: Json) -> Json:
    """The wait for checkpoints that a rule's drain asks of every step that takes work away."""
    wait = seconds_of(drain.get("checkpointWait", ""))
    if not wait:
        return {}
    asked = present(checkpoint_query=drain.get("checkpointQuery"), checkpoint_source=drain.get("checkpointSource"))
    return {"checkpoint_seconds": wait, **asked}


def label_value(text: str, code: str) -> str:
    """A label's value with the code inserted."""
    return re.sub(r"^[^A-Za-z0-9]+|[^A-Za-z0-9]+$", "", text.replace("<code>", code)[:63])


def present(**values: Any) -> Json:
    """The values that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def takes_away(step: Json) -> bool:
    """True if the step ends running work."""
    evicts = step["name"] in TAINTS.values() and step["args"].get("effect") == "NoExecute"
    return step["name"] in TAKES_AWAY or evicts


def only_isolates(step: Json) -> bool:
    """True if the step does no more than keep new work off the node and tell people."""
    signals = step["name"] == "taint" and SYSTEM_KEY.fullmatch(step["args"]["key"]) is not None
    return step["name"] in HARMLESS and not takes_away(step) and not signals


class Decision:
    """The decision, derived again from its facts."""

    def __init__(self, entry: Json, proof: Json) -> None:
        self.entry, self.data, self.facts, self.policy = entry, entry["data"], proof["facts"], proof["policy"]
        drained = self.facts["cluster"].get("on_drain_timeout", "hold")  # not in old proofs
        rules = (Rule(rule, drained=drained) for rule in proof["rules"])
        self.rules = sorted(rules, key=lambda rule: rule.rank)
        self.at = moment(self.facts["now"])

    def check(self, opened: Json) -> None:
        """Compares the decision and the opening of the rescue with what follows from the facts."""
        facts, data, details = self.facts, self.data, opened["data"]
        claim(digest(facts) == data["facts"], "facts", "the facts are not those that the decision's entry names")
        self._check_rules()
        rule = self._matched()
        claim(details.get("rule") == rule.name, "rule", f"by the facts the rule {rule.name} applies")
        revision = rule.candidate["revision"]
        claim(details.get("revision") == revision == data["revision"], "rule", "the revision of the rule differs")
        self._check_text(rule, details)
        self._check_node(opened)
        doubled = details.get("on_probation", False), facts["node"].get("on_probation", False)
        claim(doubled[0] == doubled[1], "probation", "the node was on probation, or it was not")
        steps = rule.steps(facts["fault"]["code"])
        claim(steps == plan_of(details["steps"]), "plan", "the plan is not the one that the rule asks for")
        self._check_preconditions(steps)
        mode = min(facts["cluster"]["installation_mode"], facts["cluster"]["mode"], rule.mode, key=MODES.index)
        claim(mode in ("approve", "enforce"), "mode", f"nothing may be done in mode {mode}")
        first = self._first_gate(mode, steps)
        asks = rule.approval is not None or (mode == "approve" and first is not None)
        self._check_guards(rule)
        self._check_reasons(rule, self._answer(mode, steps, asks, first), mode, asks, opened)
        self._check_gate(rule, asks, first, details)

    def _check_rules(self) -> None:
        claim(
            digest([rule.candidate for rule in self.rules]) == self.facts["candidates"],
            "rules",
            "the rules are not those that the facts name",
        )
        given = self.facts.get("given")
        if given is not None:
            claim([rule.candidate for rule in self.rules] == given, "rules", "the rule of the other system differs")

    def _check_text(self, rule: Rule, details: Json) -> None:
        if details["requester"] == "external":
            return
        policy = self.policy or {}
        text = hashlib.sha256(str(policy.get("text")).encode()).hexdigest()
        named = (policy.get("name"), policy.get("revision")) == (rule.candidate["policy"], rule.candidate["revision"])
        claim(named and text == rule.candidate["source"], "policy", "the text is not that of the policy's revision")

    def _matched(self) -> Rule:
        fault, waits = self.facts["fault"], False
        numeric = fault["kind"] in ("xid", "sxid")
        told = fault.get("application", False) or fault.get("harmless", False)  # not in old proofs
        no_node_fault = self.facts["program_fault"] if numeric else told
        for rule in self.rules:
            if not rule.covers(self.facts) or (rule.added and (no_node_fault or waits)):
                continue
            if rule.often(fault):
                return rule
            waits = waits or not rule.added  # added rules take no fault that another one waits for
        raise Broken("rule", "by the facts no rule applies")

    def _check_node(self, opened: Json) -> None:
        node, cluster = self.facts["node"], self.facts["cluster"]
        same = node["name"] == opened["node"] == self.entry["node"] and cluster["name"] == opened["cluster"]
        claim(same, "node", "the decision is about another node")
        claim(node["known"] and node["gpus"] >= 1, "node", "the node is unknown or has no GPUs")
        apart = abs(moment(self.entry["at"]) - self.at) + abs(moment(opened["at"]) - self.at)
        claim(apart <= CLOCKS_DIFFER, "time", "the decision, its facts and the opening are of different times")

    def _check_preconditions(self, steps: Sequence[Json]) -> None:
        node, fault, settings = self.facts["node"], self.facts["fault"], self.facts["settings"]
        drill = fault["drill"] and self.facts["cluster"]["drills"] == "record"
        external = self.facts["cluster"]["decision_mode"] == "external" and not self.facts["external_queried"]
        claim(not drill and not external, "precondition", "this fault was to be recorded only, or left to others")
        claim(node["labels"].get("kcover.io/exclude") != "true", "precondition", "the node was excluded")
        taken = node["open_rescue"] is not None or node["left_to_people"] is not None
        claim(not taken, "precondition", "another rescue or a person had the node")
        claim(not node["rebooted_since"] and not node["unshown_boot"], "precondition", "the fault was of another boot")
        done = node["isolated_by"] is not None and plan_hash(steps) == node["isolated_plan"]
        claim(not done, "precondition", "the same plan had been carried out")
        mending = [step["name"] for step in steps if step["name"] in MENDS]
        repeats, ladder = settings["repeats"], settings["ladder"]
        claim(not mending or node["recent_rescues"] < repeats["limit"], "precondition", "the reboots were too many")
        climbs = bool(set(mending) & set(BOOTS)) and ladder["reboots"] is not None
        claim(not climbs or node["reboots_for_code"] < ladder["reboots"], "precondition", "an inspection was due")

    def _check_guards(self, rule: Rule) -> None:
        counts = self.facts["counts"]
        names = {step["name"] for step in rule.steps(self.facts["fault"]["code"])}
        if not names.intersection(ISOLATES):
            return
        claim(counts is not None, "guards", "the guards were not evaluated")
        of_node = (counts["node"], counts["cluster"]) == (self.facts["node"]["name"], self.facts["cluster"]["name"])
        claim(of_node and counts["labels"] == self.facts["node"]["labels"], "guards", "the counts are of another node")
        claim(counts.get("hardware", False) == self._is_hardware(), "guards", "the fault is of another class")
        guards = Guards(self.facts["settings"], counts, at=self.at, rule=rule.limits(), excluded=False)
        passed = [{"code": it.code, "params": dict(it.params)} for it in guards.check("isolation", ())]
        claim(passed == self.facts["passed"], "guards", "the recorded figures of the guards do not follow")

    def _is_hardware(self) -> bool:
        """True if the fault is a catalogued Xid or SXid that no program caused or wrote."""
        facts = self.facts
        return bool(facts["cataloged"] and not facts["program_fault"] and not facts["fault"]["drill"])

    def _first_gate(self, mode: str, steps: Sequence[Json]) -> int | None:
        """The first step for which a person is asked, if anybody is; None if approve mode asks for none."""
        if mode != "approve":
            return next((place for place, step in enumerate(steps) if takes_away(step)), 0)
        if not self.facts["cluster"].get("isolate_before_approval", False):
            return 0
        return next((place for place, step in enumerate(steps) if not only_isolates(step)), None)

    @staticmethod
    def _answer(mode: str, steps: Sequence[Json], asks: bool, first: int | None) -> str:
        """The code of the reason for what is done first, and for whether a person is asked."""
        if mode != "approve":
            return "approval_required" if asks else "nothing_holds_back"
        if not asks:
            return "approve_isolates_only"
        if not first:
            return "approve"
        isolates = any(step["name"] in ISOLATES for step in steps[:first])
        return "approve_after_isolation" if isolates else "approve_after_notice"

    def _check_reasons(self, rule: Rule, answer: str, mode: str, asks: bool, opened: Json) -> None:
        fault = self.facts["fault"]
        matched = {"rule": rule.name, "priority": rule.priority, "kind": fault["kind"], "code": fault["code"]}
        expected = [{"code": "rule_matches", "params": matched}, {"code": answer, "params": {}}]
        claim(self.data["because"] == expected, "reasons", "the reasons are not those that follow from the facts")
        claim(self.entry["verb"] == ("decision.approve" if asks else "decision.rescue"), "answer", "the answer differs")
        claim(self.data["mode"] == mode, "mode", f"the mode that follows is {mode}")
        both = {"code": "all", "params": {"reasons": expected}}
        claim(opened["data"].get("because") == both, "reasons", "the rescue was opened for other reasons")

    @staticmethod
    def _check_gate(rule: Rule, asks: bool, first: int | None, details: Json) -> None:
        approval = rule.approval or {}
        gate = (first or 0) if asks else None
        claim(details.get("gate") == gate, "gate", f"the step that needs approval is {gate}")
        if asks:
            people, expires = approval.get("approvers", 1), approval.get("expires")
            seconds = seconds_of(expires) if expires else 86400
            same = (details.get("approvers", 1), details["approval_seconds"]) == (people, seconds)
            claim(same, "gate", f"{people} people must approve within {seconds} s")


def plan_of(steps: Iterable[Json]) -> list[Json]:
    """Steps with their arguments, as a plan."""
    return [{"name": step["name"], "args": step.get("args", {})} for step in steps]


def plan_hash(steps: Iterable[Json]) -> str:
    """The hash of a plan, to which votes are bound."""
    text = json.dumps([[step["name"], step["args"]] for step in steps], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# ---------------------------------------------------------------------------------------------------------- the story


Ballot = tuple[datetime, frozenset[str]]  # when, and the names of all who could have given it


def persons(votes: Iterable[Ballot]) -> list[list[Ballot]]:
    """The votes by person: votes with a name in common are one person's."""
    people: list[list[Ballot]] = []
    for vote in votes:
        same = [one for one in people if any(vote[1] & names for _, names in one)]
        people = [one for one in people if one not in same]
        people.append([vote, *itertools.chain(*same)])
    return people


@dataclass
class Attempted:
    """A step of the plan as the entries tell it."""

    name: str
    args: Json
    state: str = "pending"
    attempt: int = 0
    made: set[str] = field(default_factory=set)  # calls that were answered with success

    @property
    def planned(self) -> Json:
        """The step as its plan has it."""
        return {"name": self.name, "args": self.args}


class Story:
    """The entries of a rescue, played again one after the other."""

    def __init__(self, proof: Json, entries: Sequence[Json], *, unseen: int = 0) -> None:
        self.proof, self.entries, self.unseen = proof, list(entries), unseen
        self.steps: list[Attempted] = []
        self.state = ""
        self._opened: Json = {}
        self._hash = ""
        self._gate: int | None = None
        self._granted_until: datetime | None = None
        self._asked_at: datetime | None = None
        self._votes: dict[str, Ballot] = {}
        self._answers: dict[tuple[int, str, str], tuple[bool, datetime]] = {}  # each person's last about plan and step
        self._must_end = self._failing = self._rejected = False
        self._granted_by: tuple[str, str] | None = None
        self._began: dict[tuple[str, str, int | None], list[tuple[int | None, datetime]]] = {}
        self._counted: dict[str, tuple[datetime, int | None]] = {}  # act -> when, and the attempt that counted
        self._uncalled: list[str] = []  # acts with figures that still lack the call for which they were recorded
        self._asks = False  # a request to isolate, whose figures come next
        self._unfinished = 0  # steps of the plan that had ended when the rescue ended, from the first one on
        self._isolated = False
        self._reboots: Counter[str] = Counter()
        self._off: set[int] = set()  # steps whose request to switch off was made, or may have been
        self._replaced: list[str] = []  # the uids of machines whose replacement was requested, and may have been taken
        self._words = 0
        self._probation = False  # the node was returned on probation
        self._at = datetime.min.replace(tzinfo=UTC)

    def check(self) -> None:
        """Plays every entry."""
        claim(bool(self.entries), "opened", "the segment has no entry of the rescue")
        decided, rest = None, self.entries
        if rest[0]["verb"].startswith("decision."):
            decided, rest = rest[0], rest[1:]
        self._open(rest[0], decided)
        for entry in rest[1:]:
            self._check_place(entry)
            called = not self._uncalled or entry["verb"].endswith((".begun", "guard.passed"))
            claim(called, "guards", f"figures of the guards are followed by {entry['verb']} instead of their call")
            data = entry["data"]
            counts = entry["verb"] == "guard.passed" and data["act"] == "isolation" and data.get("step") is None
            asked = not self._asks or counts
            claim(asked, "guards", "the figures of the guards do not follow the request")
            self._asks = False
            self._play(entry)
        self._check_end()

    # --- the opening

    def _open(self, entry: Json, decided: Json | None) -> None:
        claim(entry["verb"] == "rescue.opened", "opened", "the first entry does not open the rescue")
        details, about = entry["data"], self.proof["rescue"]
        self._opened, self._at = entry, moment(entry["at"])
        same = (entry["rescue"], entry["cluster"], entry["node"]) == (about["id"], about["cluster"], about["node"])
        claim(same, "opened", "the rescue that was opened is not the one that the proof names")
        self.steps = [Attempted(**step) for step in plan_of(details["steps"])]
        self._set_plan(details["plan_hash"])
        claim(self._ordered(0), "plan", "the steps are not in the order of plans")
        self._gate = details.get("gate")
        self.state = details["state"]
        claim(self.state in ("held", "running"), "opened", f"a rescue is not opened as {self.state}")
        claim(details["origin"] in ORIGINS and details["requester"] in REQUESTERS, "opened", "its origin is unknown")
        claim((self.state == "held") == (self._gate == 0), "gate", "the first step needs approval, or it does not")
        if self.state == "held":
            self._asked_at = self._at
        if details["origin"] == "policy" or details["requester"] == "external":
            claim(decided is not None, "decision", "the entry of the decision is missing")
            claim(
                decided["data"]["decision"] == details.get("decision"), "decision", "it was opened by another decision"
            )
            apart = decided["sequence"] < entry["sequence"] and decided["rescue"] is None
            claim(apart, "decision", "the decision is not an entry before the opening")
            Decision(decided, self.proof).check(entry)
            self._check_actor(decided)
            self._counted["isolation"] = moment(self.proof["facts"]["now"]), None
            claim(not details.get("overrides"), "overrides", "nobody can override a guard for a policy")
        else:
            none = decided is None and details.get("decision") is None and not self.proof["rules"]
            none = none and self.proof["facts"] is None and self.proof["policy"] is None
            claim(none, "decision", "a request has no decision")
            self._asks = any(step.name in ISOLATES for step in self.steps)

    def _check_actor(self, decided: Json) -> None:
        rule = self._opened["data"]["rule"]
        external = self._opened["data"]["requester"] == "external"
        policy = rule.rpartition("#")[0]
        actor = policy if external else f"policy:{rule}"[:200]
        claim(self._opened["actor"] == actor, "actor", "the rescue was not opened by its rule")
        claim(decided["actor"] == f"policy:{rule}"[:200], "actor", "the decision was not made by its rule")

    def _set_plan(self, named: str) -> None:
        self._hash = plan_hash(step.planned for step in self.steps)
        claim(named == self._hash, "plan_hash", "the hash of the plan is not that of its steps")

    def _ordered(self, first: int) -> bool:
        places = [ORDER.index(step.name) for step in self.steps[first:]]
        return all(left < right for left, right in itertools.pairwise(places))

    # --- one entry

    def _check_place(self, entry: Json) -> None:
        verb = entry["verb"]
        claim(entry["rescue"] == self._opened["rescue"], "entry", f"entry {entry['sequence']} is of another rescue")
        claim(not self._must_end or verb == "rescue.cancelled", "votes", "after this vote the rescue had to end")
        at, answers = moment(entry["at"]), verb.endswith((".done", ".failed")) and not verb.startswith("step.")
        claim(at >= moment(self._opened["at"]) - CLOCKS_DIFFER, "time", f"{verb} is earlier than the rescue")
        if not answers:
            waits = UPLOADS_WAIT if entry["actor"].startswith("agent:") else CLOCKS_DIFFER
            claim(at >= self._at - waits, "time", f"{verb} is earlier than the entry before it")
            self._at = max(self._at, at)
        if self.state in CLOSED and not answers:
            cleans = verb.removesuffix(".begun") in CLEANS_UP
            claim(cleans or verb.startswith(AFTER_END), "ended", f"{verb} is later than the end of the rescue")

    def _play(self, entry: Json) -> None:
        verb = entry["verb"]
        family, _, phase = verb.rpartition(".")
        if phase == "begun":
            self._begin(entry, family)
        elif verb.startswith("step."):
            self._settle(entry, phase)
        elif verb == "guard.passed":
            self._count(entry)
        elif verb == "guard.refused":
            self._refuse(entry)
        elif verb == "probation.began":
            self._begin_probation(entry)
        elif verb in ("rescue.approved", "rescue.rejected"):
            self._vote(entry)
        elif verb == "rescue.held":
            self._hold(entry)
        elif verb in ("rescue.succeeded", "rescue.failed", "rescue.cancelled"):
            self._end(entry)
        elif phase in ("done", "failed"):
            self._answer(entry, family, phase)
        else:
            claim(verb in REMARKS, "verb", f"the proof has an entry {verb}, which no claim covers")

    def _refuse(self, entry: Json) -> None:
        place, step = self._step_of(entry)
        self._check_turn(place)
        waits = entry["data"]["state"] == "waiting" and step.state == "pending"
        claim(waits, "state", f"step {place} did not wait for a guard")
        approved = self._gate is None or place < self._gate or self._granted_until is not None
        claim(approved, "votes", f"step {place} began without its approval")
        self._check_answered(place, entry)

    def _step_of(self, entry: Json) -> tuple[int, Attempted]:
        place = entry["data"]["step"]
        claim(0 <= place < len(self.steps), "step", f"the plan has no step {place}")
        step = self.steps[place]
        claim(entry["data"]["name"] == step.name, "step", f"step {place} is {step.name}")
        return place, step

    def _check_turn(self, place: int) -> None:
        late = [step.name for step in self.steps[:place] if step.state not in FINISHED]
        claim(not late, "order", f"step {place} is earlier than the end of {', '.join(late)}")

    # --- calls

    def _begin(self, entry: Json, call: str) -> None:
        data, at = entry["data"], moment(entry["at"])
        place, step = self._step_of(entry)
        key = (call, entry["subject"], place)
        self._counted |= {act: (self._counted[act][0], data.get("attempt")) for act in self._uncalled}
        self._uncalled = []
        if call not in CLEANS_UP:
            self._check_no_open_call(place, data["attempt"], other_than=key)
        self._began.setdefault(key, []).append((data.get("attempt"), at))
        if call in CLEANS_UP:
            return
        details = self._opened["data"]
        same = (data.get("rule", ""), data.get("revision")) == (details.get("rule", ""), details.get("revision"))
        claim(same, "rule", f"{call} names another rule")
        self._check_turn(place)
        claim(step.state == "pending", "order", f"{call} is later than the end of its step {step.name}")
        self._check_attempt(step, data["attempt"])
        self._check_gate(place, call, at)
        destructive = call in DESTRUCTIVE or (call in TAINTS and takes_away(step.planned))
        claim(not destructive or takes_away(step.planned), "step", f"a step {step.name} makes no call {call}")
        if destructive:
            self._check_counted(step.name, call, at)
            counted, attempt = self._counted[step.name]
            claim(attempt == data["attempt"], "guards", f"the figures before {call} are of another attempt")
            claim(at - counted <= REFRESHED, "guards", f"the figures before {call} are too old")
        if call in ISOLATING and step.name in ISOLATES and not self._isolated:
            self._check_counted("isolation", call, at)
        if call == "reboot":
            self._reboots[data["wanted"]["boot_id"] + data["wanted"]["key"]] += 1
            asked = {name for name in self._reboots if name.startswith(data["wanted"]["boot_id"])}
            claim(len(asked) <= 1 + self._words, "reboot", "one boot was asked to end twice")
        if call == "replace":
            others = set(self._replaced) - {data["wanted"]["uid"]}
            claim(not others or self._words > 0, "replace", "the replacement of two machines was requested")
            claim("replace" not in step.made or self._words > 0, "replace", "a replacement was requested twice")
            self._replaced.append(data["wanted"]["uid"])
        if call in POWER:
            claim(place not in self._off, "power", f"step {place} switched the machine off twice")
            self._off.add(place)

    def _check_attempt(self, step: Attempted, attempt: int) -> None:
        claim(attempt >= step.attempt and attempt >= 1, "attempt", f"the attempts of {step.name} are not in order")
        step.attempt = attempt

    def _check_gate(self, place: int, call: str, at: datetime) -> None:
        if self._gate is None or place < self._gate:
            return
        until = self._granted_until
        if until is None:
            raise Broken("votes", f"{call} of step {place} was not approved")
        if place == self._gate and not self.steps[place].made:
            claim(at < until + COUNTED_BEFORE, "votes", f"{call} of step {place} is later than its approval's end")

    def _check_counted(self, act: str, call: str, at: datetime) -> None:
        counted = self._counted.get(act)
        fresh = counted is not None and at - counted[0] <= COUNTED_BEFORE + CLOCKS_DIFFER
        claim(fresh, "guards", f"no figures of the guards precede {call}")

    def _answer(self, entry: Json, call: str, phase: str) -> None:
        place, step = self._step_of(entry)
        begun = self._began.get((call, entry["subject"], place))
        claim(bool(begun), "answer", f"an answer to {call} of {entry['subject']} has no call")
        at = moment(entry["at"])
        claim(min(began for _, began in begun) <= at + CLOCKS_DIFFER, "answer", f"{call} was answered too early")
        begun.pop()
        answer = entry["data"].get("answer") or {}
        if call in POWER and (phase == "failed" or not (answer["taken"] or answer.get("unclear"))):
            self._off.discard(place)
        if phase == "done":
            step.made.add(call)
            self._isolated = self._isolated or (call in ISOLATING and step.name in ISOLATES)

    def _begin_probation(self, entry: Json) -> None:
        """The node was returned on probation, for at most the time that the rule sets."""
        lengths = [step.args["probation"] for step in self.steps if step.args.get("probation")]
        claim(bool(lengths), "probation", "no step returns the node on probation")
        if lengths[-1] != "auto":
            most = moment(entry["at"]) + timedelta(seconds=seconds_of(lengths[-1])) + CLOCKS_DIFFER
            claim(moment(entry["data"]["until"]) <= most, "probation", "the probation is longer than its rule says")
        self._probation = True

    # --- guards

    def _count(self, entry: Json) -> None:
        data, details = entry["data"], self._opened["data"]
        act, figures, at = data["act"], data.get("figures", {}), moment(entry["at"])
        if act == "isolation" and data.get("step") is not None:
            self._check_turn(data["step"])
            claim(self.steps[data["step"]].name in ISOLATES, "guards", f"step {data['step']} does not isolate")
        if act != "isolation":
            place, step = data["step"], self.steps[data["step"]]
            self._check_turn(place)
            claim(step.name == act and takes_away(step.planned), "guards", f"step {place} is not {act}")
            self._check_mode(data["mode"])
        by_hand = details["origin"] == "manual"
        if not figures:
            claim(by_hand or act == "isolation", "guards", f"the figures of {act} are missing")
        else:
            facts = figures["facts"]
            same = (facts["cluster"], facts["node"]) == (entry["cluster"], entry["node"])
            claim(same, "guards", "the figures are of another node")
            counts = (self.proof["facts"] or {}).get("counts") or {}
            of_class = act != "isolation" or facts.get("hardware", False) == counts.get("hardware", False)
            claim(of_class, "guards", "the figures are of another class of fault")
            rule, excluded = figures.get("rule"), figures["excluded"]
            Guards(figures["settings"], facts, at=at, rule=rule, excluded=excluded).check(
                act, details.get("overrides", ())
            )
        self._counted[act] = at, None
        if data.get("step") is not None:
            self._uncalled.append(act)

    def _check_mode(self, mode: str) -> None:
        details = self._opened["data"]
        asked = self._gate is not None or (details["origin"] == "manual" and details["requester"] != "token")
        claim(mode == "enforce" or (mode == "approve" and asked), "mode", f"in mode {mode} a person had to approve")

    # --- votes

    def _hold(self, entry: Json) -> None:
        place, _ = self._step_of(entry)
        self._check_turn(place)
        at, seconds = moment(entry["at"]), timedelta(seconds=self._opened["data"]["approval_seconds"])
        if self._asked_at is None or self._gate != place or at >= self._asked_at + seconds:
            self._asked_at = at
        self._gate, self._granted_until, self.state = place, None, "held"

    def _vote(self, entry: Json) -> None:
        data, details, at, by = entry["data"], self._opened["data"], moment(entry["at"]), entry["actor"]
        claim(self.state == "held" and self._asked_at is not None, "votes", "nobody was asked for this vote")
        same = (data["step"], data["plan_hash"]) == (self._gate, self._hash)
        claim(same, "votes", f"the vote of {by} is about another plan or step")
        machine = (entry["node"], data.get("uid", "")) == (self._opened["node"], details.get("uid", ""))
        claim(machine, "votes", f"the vote of {by} is about another machine")
        seconds = timedelta(seconds=details["approval_seconds"])
        claim(by not in self._votes or self._votes[by][0] < self._asked_at, "votes", f"{by} voted twice")
        self._answers[data["step"], data["plan_hash"], by] = entry["verb"] == "rescue.approved", at
        if entry["verb"] == "rescue.rejected":
            claim(not by.startswith("token:"), "votes", f"{by} is a program")
            self._must_end = True
            self._rejected = at < self._asked_at + seconds
            return
        names = frozenset((by, *data.get("controllers", ())))
        claim(not by.startswith("token:"), "votes", f"{by} is a program")
        requesters = {self._opened["actor"], *details.get("requesters", ())}
        claim(not names & requesters, "votes", f"{by} requested the rescue and approved it")
        if at < self._asked_at + seconds:
            self._votes[by] = at, names
        people = persons([vote for vote in self._votes.values() if at < vote[0] + seconds])
        standing = sorted((max(vote for vote, _ in votes) + seconds for votes in people), reverse=True)
        needed = details.get("approvers", 1)
        enough = len(standing) >= needed
        claim(enough or not data["granted"], "votes", f"{len(standing)} of {needed} people had approved")
        self._must_end = enough and not data["granted"]
        if data["granted"]:
            self._granted_until, self.state = standing[needed - 1], "running"
            self._granted_by = by, entry["at"]

    # --- steps

    def _settle(self, entry: Json, phase: str) -> None:
        data = entry["data"]
        place, step = self._step_of(entry)
        if phase in ("retried", "skipped"):
            self._command(entry, phase, place, step)
            return
        self._check_turn(place)
        asks = self.state == "held" and self._gate == place and self._granted_until is None
        claim(not asks or phase not in ("attempt_failed", "done"), "votes", f"step {place} ran without its approval")
        claim(self.state not in CLOSED or place <= self._unfinished, "order", f"step {place} began before its turn")
        may_be = {"pending"}
        may_be |= {"cancelled"} if self.state in CLOSED else set()
        may_be |= {"failed"} if phase in ("overruled", "replaced") else set()  # held when a person took the node
        claim(step.state in may_be, "order", f"step {place} had ended before {phase}")
        last = phase == "attempt_failed" and (data.get("because") or {}).get("code") == "tried_often"
        attempted = "failed" if last else "waiting"
        states = {"done": "done", "attempt_failed": attempted, "held": "failed", "failed": "failed"}
        state = states.get(phase, "failed" if phase == "started_over" and not data.get("steps") else "cancelled")
        if phase == "overruled" and data["state"] == "failed":
            state = "failed"  # more than the cordon is the portal's, and a person is asked
        claim(data["state"] == state, "state", f"the state of the step is {data['state']} after {phase}")
        self._check_attempt(step, data["attempt"])
        self._check_answered(place, entry)
        if phase == "done":
            self._check_done(place, step)
        if phase == "started_over" and data.get("steps"):
            claim(self.state not in CLOSED, "ended", "the second round is later than the end of the rescue")
            self._start_over(place, data)
        elif state != "waiting":
            step.state = state
        self.state = "held" if phase == "held" or last else self.state
        self._failing = self._failing and state == "waiting"

    def _check_answered(self, place: int, entry: Json) -> None:
        """An attempt that its worker settled has the answers of all its calls."""
        died = (entry["data"].get("because") or {}).get("code") == "no_outcome"
        if died or not entry["actor"].startswith("rescue "):
            return
        self._check_no_open_call(place, entry["data"]["attempt"])

    def _check_no_open_call(
        self, place: int, attempt: int, other_than: tuple[str, str, int | None] | None = None
    ) -> None:
        """The calls of one attempt follow one another, and a worker records each answer before it goes on."""
        open_ = [
            key[0]
            for key, begun in self._began.items()
            if key[2] == place and key != other_than and any(number == attempt for number, _ in begun)
        ]
        claim(not open_, "answer", f"{', '.join(open_)} of step {place} has no answer")

    def _check_done(self, place: int, step: Attempted) -> None:
        if self._gate is not None and place >= self._gate:
            claim(self._granted_until is not None, "votes", f"step {place} ended without its approval")
        wanted = MAKES.get(step.name)
        claim(wanted is None or wanted in step.made, "calls", f"step {place} ended without its call {wanted}")
        sets = step.args.get("probation") not in (None, "auto")  # the portal may choose that none is needed
        claim(not sets or self._probation, "probation", f"step {place} returned the node without its probation")

    def _command(self, entry: Json, phase: str, place: int, step: Attempted) -> None:
        self._check_turn(place)
        claim(step.state == "failed" and self.state == "held", "held", f"step {place} did not wait for a person")
        claim(entry["data"]["plan_hash"] == self._hash, "plan_hash", "the command is about another plan")
        claim(not entry["actor"].startswith(("rescue ", "policy:")), "actor", f"a person must have {phase} the step")
        self._words += 1
        self._off.discard(place)
        self.state, step.state = "running", "pending" if phase == "retried" else "skipped"
        if phase == "skipped" and self._gate == place:
            later = (at for at, it in enumerate(self.steps) if at > place and takes_away(it.planned))
            following = next(later, None)
            if following is not None:
                self._gate, self._granted_until, self._asked_at = following, None, None

    def _start_over(self, place: int, data: Json) -> None:
        steps, known = plan_of(data["steps"]), [step.planned for step in self.steps]
        first = next((at for at, step in enumerate(known) if takes_away(step)), len(known))
        claim(steps == known + known[first:], "plan", "the second round is not the plan once more")
        for step in self.steps[place:]:
            step.state = "cancelled"
        if self._gate is not None:
            self._gate, self._granted_until, self._asked_at = len(known), None, None
        self.steps += [Attempted(**step) for step in steps[len(known) :]]
        self._set_plan(data["plan_hash"])

    # --- the end

    def _end(self, entry: Json) -> None:
        self.state, self._must_end = entry["data"]["state"] if "state" in entry["data"] else entry["verb"][7:], False
        states = [step.state for step in self.steps]
        self._unfinished = next((place for place, it in enumerate(states) if it not in FINISHED), len(states))
        if self.state == "succeeded":
            claim(all(state in FINISHED for state in states), "end", "the rescue succeeded before all steps ended")
            claim(entry["data"]["outcome"] == self._outcome(), "end", f"the outcome is {self._outcome()}")
        code = (entry["data"].get("because") or {}).get("code")
        self._failing = self.state == "failed" or code == "step_ended"
        self._check_answer_of_votes(entry)
        for step in self.steps:
            step.state = "cancelled" if step.state == "pending" else step.state

    def _check_answer_of_votes(self, entry: Json) -> None:
        outcome = entry["data"]["outcome"]
        # A request can become void at the time of the rejection, because the fault has cleared.
        fits = outcome in ("rejected", "void") if self._rejected else outcome != "rejected"
        claim(fits, "votes", f"the rescue was {'' if self._rejected else 'not '}rejected, and its outcome is {outcome}")
        at_once = self._granted_by == (entry["actor"], entry["at"]) and outcome in ("void", "expired")
        claim(not at_once, "votes", "a vote that came too late was counted")

    def _outcome(self) -> str:
        done = {step.name for step in self.steps if step.state == "done"}
        if any(step.name == "escalate" for step in self.steps):
            return "escalated"
        if self._opened["data"]["origin"] == "manual":
            return "done"
        if done.intersection(RETURNS):
            return "healed"
        return "isolated" if done.intersection(ISOLATES) else "done"

    def _check_end(self) -> None:
        claim(not self._must_end, "votes", "after the last vote the rescue had to end")
        claim(not self._asks and not self._uncalled, "guards", "the last figures of the guards are missing or unused")
        claim(not self._failing, "end", "the rescue failed without a step that failed")
        about = self.proof["rescue"]
        claim(about["state"] in (self.state, "open"), "end", f"by its entries the rescue is {self.state}")
        steps = [{"name": step.name, "state": step.state} for step in self.steps]
        claim(about["steps"] == steps, "steps", "the steps are in other states than the entries say")
        votes = [((it["step"], it["plan_hash"], it["by"]), (it["approved"], moment(it["at"]))) for it in about["votes"]]
        claim(sorted(votes) == sorted(self._answers.items()), "votes", "the votes are not those of the entries")


def main(arguments: Sequence[str] | None = None) -> int:
    """Verifies one file. Returns 0 if it is valid, 1 if not."""
    parser = argparse.ArgumentParser(prog="verify_proof.py", description="Verify the proof of a rescue.")
    parser.add_argument("file", type=Path, help="the proof")
    parser.add_argument("--key", type=Path, required=True, help="PEM file with the portal's public keys")
    parser.add_argument("--anchor", type=Path, help="published heads, one JSON object a line")
    options = parser.parse_args(arguments)
    try:
        keys = read_keys(options.key)
        heads = read_heads(options.anchor, keys) if options.anchor else None
        story = verify(read(options.file.read_text(encoding="utf-8")), keys, heads)
    except Broken as broken:
        print(f"{broken.code}: {broken}")
        return 1
    except (OSError, ValueError) as error:
        print(f"unreadable: {error}")
        return 1
    about = story.proof["rescue"]
    print(f"valid: rescue {about['id']} of {about['cluster']}/{about['node']}, {story.state}")
    if story.unseen:
        print(f"note: {story.unseen} entries of the log do not name their rescue; compare them with the log")
    return 0


if __name__ == "__main__":
    sys.exit(main())
