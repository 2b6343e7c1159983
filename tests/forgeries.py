"""Forged proofs: each contains one false statement about a rescue that a claim of the verifier covers.

A change is not counted as a forgery if no claim covers the changed part. These parts are left out: the free text of
people and of other systems, the reasons of steps, answers of the cluster, remarks (``REMARKS`` of the verifier), and
entries that only record that a guard held a step back. A genuine log may lack some entries, so removing them is no
forgery either: the failure of an attempt (one that waited leaves no entry), the answers of an attempt that no entry
ends (its worker may have died), figures of the guards that no call relies on, a last question that nobody answered, and
a vote that was given again later.

A forgery is signed with the valid key. It has one of two forms. ``signed``: the forger changed the statements and
signed them. ``rewritten``: the forger also renumbered the entries and recomputed every digest, as if the whole audit
log had been rewritten. Only claims about the meaning of the statements, or the anchor, detect this.
"""

import copy
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kcover_portal.ledger import queries as ledger
from tests.proof_verifier import verifier

Json = dict[str, Any]
FORMS = ("signed", "rewritten")
ANSWERS = (".done", ".failed")


class NotApplicable(Exception):
    """The proof has nothing that this lie is about."""


def forge(proofs: Sequence[Json], kind: str, *, form: str, chance: random.Random) -> tuple[Json, str]:
    """A forgery of one of the proofs, without a signature, and the lie in short."""
    while True:
        genuine = chance.choice(proofs)
        forged = copy.deepcopy(genuine)
        try:
            lie = KINDS[kind](forged, chance, proofs)
        except NotApplicable:
            continue
        if form == "rewritten":
            rewrite(forged)
        if verifier.canonical(forged) != verifier.canonical(genuine):
            return forged, lie


def rewrite(proof: Json) -> None:
    """Numbers the entries and computes every digest anew."""
    if proof["facts"] is not None:
        proof["facts"]["candidates"] = verifier.digest(sorted_rules(proof))
    segment = proof["segment"]
    sequence, previous = segment["first"], segment["previous"]
    for item in segment["links"]:
        if "omitted" in item:
            sequence, previous = sequence + item["omitted"], item["digest"]
            continue
        own = "verb" in item
        if own:
            item["sequence"] = sequence
            if item["verb"].startswith("decision."):
                item["data"]["facts"] = verifier.digest(proof["facts"])
        said = {"rescue": item["rescue"], "content": verifier.digest(item)} if own else item
        previous = ledger.link(previous, verifier.digest(said))
        sequence += 1
    segment["head"] = previous


def sorted_rules(proof: Json) -> list[Json]:
    """The rules in the order in which they are tried."""
    rules = sorted((verifier.Rule(rule) for rule in proof["rules"]), key=lambda rule: rule.rank)
    return [rule.candidate for rule in rules]


def entries(proof: Json, *verbs: str) -> list[Json]:
    """The entries of the rescue that a claim speaks about: all, or those whose verb begins with one of ``verbs``."""
    found = [item for item in proof["segment"]["links"] if isinstance(item, dict) and "verb" in item]
    opening = [entry for entry in found if entry["verb"] not in (*verifier.REMARKS, "guard.refused")]
    return [entry for entry in opening if not verbs or entry["verb"].startswith(verbs)]


def choose(chance: random.Random, among: Sequence[Any]) -> Any:
    """One of them. Raises NotApplicable if there is none."""
    if not among:
        raise NotApplicable
    return chance.choice(among)


# --- the kinds of lies


def drop(proof: Json, chance: random.Random, _proofs: Sequence[Json]) -> str:
    """An entry is missing."""
    entry = choose(chance, [entry for entry in entries(proof) if not _dispensable(proof, entry)])
    proof["segment"]["links"].remove(entry)
    return f"dropped {entry['verb']}"


def hide(proof: Json, chance: random.Random, _proofs: Sequence[Json]) -> str:
    """An entry of the rescue is shown as a digest, as if it were of others."""
    entry = choose(chance, [entry for entry in entries(proof) if not _dispensable(proof, entry)])
    links = proof["segment"]["links"]
    forms: list[Any] = [{"rescue": rescue, "content": verifier.digest(entry)} for rescue in (entry["rescue"], None, 0)]
    links[links.index(entry)] = chance.choice(forms)
    return f"hid {entry['verb']}"


def reorder(proof: Json, chance: random.Random, _proofs: Sequence[Json]) -> str:
    """An entry stands before the one that it followed. Two that nothing orders are not exchanged."""
    opening = entries(proof)
    pairs = [pair for pair in itertools.pairwise(opening) if not _free(proof, *pair)]
    first, second = choose(chance, pairs)
    links = proof["segment"]["links"]
    here, there = links.index(first), links.index(second)
    links[here], links[there] = second, first
    return f"{second['verb']} before {first['verb']}"


def _dispensable(proof: Json, entry: Json) -> bool:
    """Returns whether a genuine log may lack the entry. See the top."""
    data, verb = entry["data"], entry["verb"]
    if verb == "step.attempt_failed":
        return True
    if verb == "rescue.approved":
        return _given_again(proof, entry)
    if verb == "rescue.held":
        own = entries(proof)
        return not any(other["verb"] != "rescue.cancelled" for other in own[own.index(entry) + 1 :])
    if verb.endswith(ANSWERS) and not verb.startswith("step."):
        return not _is_ended(proof, entry)
    if verb == "guard.passed" and data.get("step") is not None:
        own = entries(proof)
        later = own[own.index(entry) + 1 :]
        attempt = next((other["data"].get("attempt") for other in later if other["verb"].endswith(".begun")), None)
        calls = [
            other
            for other in later
            if (other["data"].get("step"), other["data"].get("attempt")) == (data["step"], attempt)
        ]
        made = {other["verb"].removesuffix(".begun") for other in calls}
        return not made.intersection(verifier.ISOLATING if data["act"] == "isolation" else verifier.DESTRUCTIVE)
    return False


def _given_again(proof: Json, vote: Json) -> bool:
    """Returns whether the same person gave the same vote again, after the question was asked again."""
    votes = entries(proof, "rescue.approved")
    same = [it for it in votes if (it["actor"], it["data"]["step"]) == (vote["actor"], vote["data"]["step"])]
    return vote is not same[-1]


def _is_ended(proof: Json, answer: Json) -> bool:
    """Returns whether an entry ends the attempt to which the answer belongs."""
    own, data = entries(proof), answer["data"]
    call = f"{answer['verb'].rpartition('.')[0]}.begun", answer["subject"], data.get("step")
    before = own[: own.index(answer)]
    begun = [it for it in before if (it["verb"], it["subject"], it["data"].get("step")) == call]
    attempt = begun[-1]["data"].get("attempt") if begun else None
    ends = [it for it in own if it["verb"].startswith("step.") and it["data"].get("step") == data.get("step")]
    return any(it["data"].get("attempt") == attempt for it in ends)


def _free(proof: Json, first: Json, second: Json) -> bool:
    """Returns whether no claim orders the two: answers and figures of one moment, refusals, and clean-up."""
    if any(it["verb"].endswith(ANSWERS) and not _is_ended(proof, it) for it in (first, second)):
        return True  # the answer of a worker that lost its lease comes late
    if any(it["verb"].removesuffix(".begun") in verifier.CLEANS_UP for it in (first, second)):
        return True
    loose = [*ANSWERS, "guard.passed", "guard.refused", *(f"{call}.begun" for call in verifier.CLEANS_UP)]
    same_call = first["subject"] == second["subject"] and first["verb"].split(".")[0] == second["verb"].split(".")[0]
    about_steps = any(entry["verb"].startswith("step.") for entry in (first, second))
    return not same_call and not about_steps and any(entry["verb"].endswith(tuple(loose)) for entry in (first, second))


def steal(proof: Json, chance: random.Random, proofs: Sequence[Json]) -> str:
    """A vote of another rescue, plan, machine or person, or the votes of one person for two."""
    lies = (_vote_of_another, _vote_of_requester, _vote_twice, _vote_altered, _vote_invented, _vote_dropped)
    return chance.choice(lies)(proof, chance, proofs)


def _vote_of_another(proof: Json, chance: random.Random, proofs: Sequence[Json]) -> str:
    votes = entries(proof, "rescue.approved")
    vote = choose(chance, votes)
    others = [
        vote for other in proofs for vote in entries(other, "rescue.approved") if other["rescue"] != proof["rescue"]
    ]
    stolen = copy.deepcopy(choose(chance, others))
    stolen["rescue"], stolen["node"], stolen["at"] = proof["rescue"]["id"], proof["rescue"]["node"], vote["at"]
    if stolen["data"]["plan_hash"] == vote["data"]["plan_hash"] and stolen["data"].get("uid") == vote["data"].get(
        "uid"
    ):
        raise NotApplicable
    links = proof["segment"]["links"]
    links[links.index(vote)] = stolen
    return "vote of another rescue"


def _vote_of_requester(proof: Json, chance: random.Random, _proofs: Sequence[Json]) -> str:
    vote = choose(chance, entries(proof, "rescue.approved"))
    vote["actor"] = entries(proof, "rescue.opened")[0]["actor"]
    return "vote of the requester"


def _vote_twice(proof: Json, chance: random.Random, _proofs: Sequence[Json]) -> str:
    votes = entries(proof, "rescue.approved")
    pairs = [pair for pair in itertools.pairwise(votes) if pair[0]["data"]["step"] == pair[1]["data"]["step"]]
    first, second = choose(chance, [pair for pair in pairs if not pair[0]["data"]["granted"]])
    second["actor"] = first["actor"]
    return "one person votes twice"


def _vote_altered(proof: Json, chance: random.Random, _proofs: Sequence[Json]) -> str:
    vote = choose(chance, entries(proof, "rescue.approved"))
    field, value = chance.choice([("step", vote["data"]["step"] + 1), ("plan_hash", "0" * 16), ("uid", "another")])
    vote["data"][field] = value
    return f"vote with another {field}"


def _vote_invented(proof: Json, chance: random.Random, _proofs: Sequence[Json]) -> str:
    """A vote becomes a grant although people are missing."""
    vote = choose(chance, [vote for vote in entries(proof, "rescue.approved") if not vote["data"]["granted"]])
    vote["data"]["granted"] = True
    return "granted too early"


def _vote_dropped(proof: Json, chance: random.Random, _proofs: Sequence[Json]) -> str:
    vote = choose(chance, [vote for vote in entries(proof, "rescue.approved") if not _given_again(proof, vote)])
    proof["segment"]["links"].remove(vote)
    return "vote dropped"


def other_rule(proof: Json, chance: random.Random, proofs: Sequence[Json]) -> str:
    """Another rule, revision or text, or facts of another decision."""
    if proof["facts"] is None:
        raise NotApplicable
    lies = (_rule_altered, _rule_named, _facts_of_another, _rule_removed, _rule_on_top, _text)
    return chance.choice(lies)(proof, chance, proofs)


def _winner(proof: Json) -> Json:
    named = entries(proof, "rescue.opened")[0]["data"]["rule"]
    found = [rule for rule in proof["rules"] if f"{rule['policy']}#{rule['index'] + 1}" == named]
    if not found:
        raise NotApplicable
    return dict(found[0])


def _rule_altered(proof: Json, chance: random.Random, _proofs: Sequence[Json]) -> str:
    winner = _winner(proof)
    rule = next(rule for rule in proof["rules"] if rule == winner)["rule"]
    cluster = proof["facts"]["cluster"]
    strictest = min(cluster["installation_mode"], cluster["mode"], key=verifier.MODES.index)
    modes = ["shadow"] if "approve" in (strictest, rule.get("mode")) else ["shadow", "approve"]  # others change nothing
    lies: dict[str, Callable[[], object]] = {
        "errorCode": lambda: rule.update(errorCode=["1"]),
        "nodeSelector": lambda: rule.update(nodeSelector={"operator": "all", "labels": {"no": "such"}}),
        "mode": lambda: rule.update(mode=chance.choice(modes)),
        "priority": lambda: rule.update(priority=rule["priority"] + 1000),
        "actions": lambda: rule.update(actions=[{"name": "notify"}]),
        "approval": lambda: rule.update(approval={"required": True, "approvers": 7}),
        "budget": lambda: rule.update(budget=1, match={"minCount": 999, "within": "1h"}),
    }
    name = chance.choice(list(lies))
    lies[name]()
    return f"rule with another {name}"


def _rule_named(proof: Json, chance: random.Random, _proofs: Sequence[Json]) -> str:
    data = entries(proof, "rescue.opened")[0]["data"]
    if chance.random() < 0.5:
        data["revision"] += 1
        return "another revision"
    others = [f"{rule['policy']}#{rule['index'] + 1}" for rule in proof["rules"]]
    data["rule"] = choose(chance, [name for name in others if name != data["rule"]])
    return "another rule named"


def _facts_of_another(proof: Json, chance: random.Random, proofs: Sequence[Json]) -> str:
    code = proof["facts"]["fault"]["code"]
    others = [it["facts"] for it in proofs if it["facts"] is not None and it["facts"]["fault"]["code"] != code]
    proof["facts"] = copy.deepcopy(choose(chance, others))
    return "facts of another decision"


def _rule_removed(proof: Json, _chance: random.Random, _proofs: Sequence[Json]) -> str:
    proof["rules"].remove(_winner(proof))
    return "the rule removed"


def _rule_on_top(proof: Json, _chance: random.Random, _proofs: Sequence[Json]) -> str:
    stronger = copy.deepcopy(_winner(proof))
    stronger["policy"], stronger["rule"]["priority"] = "another", stronger["rule"]["priority"] + 1
    proof["rules"].append(stronger)
    return "a stronger rule hidden"


def _text(proof: Json, _chance: random.Random, _proofs: Sequence[Json]) -> str:
    if proof["policy"] is None:
        raise NotApplicable
    proof["policy"]["text"] += "\n# and more"
    return "another text"


def alter(proof: Json, chance: random.Random, _proofs: Sequence[Json]) -> str:
    """One value that a claim speaks about is another."""
    where, path = choose(chance, list(_alterations(proof)))
    holder: Any = where
    for name in path[:-1]:
        holder = holder[name]
    value = holder[path[-1]]
    holder[path[-1]] = 0 if path[-1] in ("attempt", "eligible") else _other(value)
    return f"altered {'.'.join(map(str, path))} of {where.get('verb', 'the proof')}"


def _other(value: Any) -> Any:
    """A value that differs in meaning."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1000
        case str() if value[:2] == "20" and "T" in value:
            return f"2019{value[4:]}"
        case str():
            return f"{value}x"
    return "x"


def _alterations(proof: Json) -> Iterator[tuple[Json, tuple[Any, ...]]]:
    yield from ((proof, ("rescue", name)) for name in ("id", "cluster", "node", "state"))
    yield from ((proof, ("rescue", "steps", place, "state")) for place, _ in enumerate(proof["rescue"]["steps"]))
    yield from ((proof, ("rescue", "votes", place, "by")) for place, _ in enumerate(proof["rescue"]["votes"]))
    if proof["facts"] is not None:
        yield from _of_facts(proof)
    for entry in entries(proof):
        data, verb = entry["data"], entry["verb"]
        yield from ((entry, (name,)) for name in ("rescue", "cluster"))
        names = ("step", "name", "attempt", "plan_hash", "state", "facts", "gate", "approvers", "origin", "decision")
        yield from ((entry, ("data", name)) for name in names if data.get(name) is not None and _told(verb, name))
        if verb.startswith("step.") or verb.endswith(".begun"):
            yield entry, ("at",)
        if verb == "guard.passed" and data.get("figures"):
            yield entry, ("data", "figures", "facts", "node")
            yield from ((entry, ("data", "figures", "excluded")) for _ in [0] if data["act"] != "isolation")
            for place, _ in enumerate(data["figures"]["facts"].get("symptoms", ())):
                yield entry, ("data", "figures", "facts", "symptoms", place, "nodes")
            if "faulty" in data["figures"]["facts"] and data["figures"]["settings"]["rate"]["enabled"]:
                yield entry, ("data", "figures", "facts", "faulty", "hour")


def _told(verb: str, name: str) -> bool:
    """Returns whether a claim speaks about the field of such an entry."""
    cleans = verb.removesuffix(".begun") in verifier.CLEANS_UP
    return not (name == "attempt" and cleans)


def _of_facts(proof: Json) -> Iterator[tuple[Json, tuple[Any, ...]]]:
    facts, yields = proof["facts"], []
    yields += [("fault", "kind"), ("fault", "code"), ("now",), ("node", "name"), ("node", "rebooted_since")]
    yields += [("node", "open_rescue"), ("node", "left_to_people"), ("node", "unshown_boot"), ("node", "known")]
    yields += [("cluster", "name"), ("cluster", "mode")]
    if facts["counts"] is not None:
        yields += [("counts", "eligible"), ("counts", "node"), ("counts", "cluster")]
        if facts["settings"]["breaker"]["enabled"]:
            yields.append(("counts", "isolated_lately"))
    yield from ((proof, ("facts", *path)) for path in yields)


KINDS: dict[str, Callable[[Json, random.Random, Sequence[Json]], str]] = {
    "dropped": drop,
    "hidden": hide,
    "reordered": reorder,
    "altered": alter,
    "stolen vote": steal,
    "another rule": other_rule,
}
