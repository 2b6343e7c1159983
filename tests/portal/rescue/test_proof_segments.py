"""A proof shows every entry of its rescue: what stands there as a digest only is of others, and says so."""

import copy
import hashlib
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from kcover_portal.ledger import queries as ledger
from kcover_portal.ledger.models import Chain, Entry
from kcover_portal.rescue.models import Rescue
from kcover_portal.rescue.queries import proof
from tests import forgeries, proofs
from tests.portal.ledger.tampered_rows import unguarded
from tests.portal.rescue.world import World
from tests.proof_verifier import verifier

pytestmark = pytest.mark.django_db

Json = dict[str, Any]


def two_rescues() -> Rescue:
    """The first of two rescues whose entries alternate."""
    world = World(nodes=2)
    world.fault(62)
    world.fault(62, node="gpu-2")
    world.work()
    world.uninstall()
    return Rescue.objects.order_by("pk")[0]


def published() -> list[Json]:
    """The heads that the log had, as somebody else keeps them."""
    return [{"cluster": one.cluster, "sequence": one.sequence, "digest": one.digest} for one in Entry.objects.all()]


def write_as_before(until: int) -> None:
    """Writes the entries up to this one as portals did before entries named their rescue, and chains those after it."""
    previous = ""
    with unguarded():
        for entry in Entry.objects.filter(cluster="c1").order_by("sequence"):
            entry.previous = previous
            is_old = entry.sequence <= until
            entry.digest = (
                ledger.link(previous, verifier.digest(ledger.content(entry))) if is_old else ledger.digest(entry)
            )
            Entry.objects.filter(pk=entry.pk).update(previous=previous, digest=entry.digest)
            previous = entry.digest
        Chain.objects.filter(cluster="c1").update(digest=previous)


def verified(statements: Json, heads: list[Json] | None = None) -> Any:
    return verifier.verify(proofs.sign(statements), proofs.KEYS, heads)


def test_entries_of_others_name_their_rescue() -> None:
    rescue = two_rescues()
    statements = proof.unsigned(rescue)
    others = [link for link in statements["segment"]["links"] if "verb" not in link]
    assert {link["rescue"] for link in others} >= {rescue.pk + 1}
    assert {entry["node"] for entry in forgeries.entries(statements)} == {"gpu-1"}
    assert verified(statements, published()).unseen == 0


@pytest.mark.parametrize(
    ("shown_as", "code"),
    [
        (lambda entry: {"rescue": entry["rescue"], "content": verifier.digest(entry)}, "hidden"),
        (lambda entry: {"rescue": None, "content": verifier.digest(entry)}, "chain"),
        (lambda entry: {"rescue": str(entry["rescue"]), "content": verifier.digest(entry)}, "chain"),
        (lambda entry: {"rescue": float(entry["rescue"]), "content": verifier.digest(entry)}, "hidden"),
        (lambda entry: {"content": verifier.digest(entry)}, "format"),
        (lambda entry: verifier.digest({"rescue": entry["rescue"], "content": verifier.digest(entry)}), "unnamed"),
        (lambda entry: {"omitted": 1, "digest": "0" * 64}, "chain"),
    ],
)
def test_no_entry_of_the_rescue_is_hidden_in_a_genuine_log(shown_as: Any, code: str) -> None:
    """The signing key is the valid one, and the heads are those that were published."""
    rescue = two_rescues()
    heads, genuine = published(), proof.unsigned(rescue)
    own = forgeries.entries(genuine)
    for entry in own[1:-1]:
        forged = copy.deepcopy(genuine)
        links = forged["segment"]["links"]
        links[links.index(entry)] = shown_as(entry)
        assert proofs.refusal(proofs.sign(forged), heads) == code, entry["verb"]


def test_a_log_that_names_rescues_is_not_taken_for_an_older_one() -> None:
    genuine = proof.unsigned(two_rescues())
    first = genuine["segment"]["first"]
    for named_from in (first + 1, first + len(genuine["segment"]["links"]), float("inf")):
        forged = copy.deepcopy(genuine)
        forged["segment"]["named_from"] = named_from
        assert proofs.refusal(proofs.sign(forged), published()) in ("chain", "format")
    older = copy.deepcopy(genuine)
    older["kind"] = "kcover.io/rescue-proof/v1"
    older["segment"].pop("named_from")
    links = older["segment"]["links"]
    older["segment"]["links"] = [link if "verb" in link else verifier.digest(link) for link in links]
    assert proofs.refusal(proofs.sign(older), published()) == "chain"


def test_only_what_exceeds_the_bound_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    rescue = two_rescues()
    with monkeypatch.context() as patch:
        patch.setattr(proof, "MAX_DIGESTS", 0)
        shorter = proof.unsigned(rescue)
    last = max(place for place, link in enumerate(shorter["segment"]["links"]) if "verb" in link)
    assert any("omitted" in link for link in shorter["segment"]["links"][:last])
    assert not any("content" in link for link in shorter["segment"]["links"][:last])
    assert proofs.refusal(proofs.sign(shorter), published()) == "left_out"
    monkeypatch.setattr(verifier, "MAX_DIGESTS", 0)
    assert verified(shorter, published()).unseen > 0


def test_no_entry_of_the_rescue_hides_in_a_gap_beside_digests() -> None:
    """A gap is a whole run: with a digest before or after it, it would count as shown, whatever is in it."""
    genuine = proof.unsigned(two_rescues())
    links, first = genuine["segment"]["links"], genuine["segment"]["first"]
    digests = {head["sequence"]: head["digest"] for head in published() if head["cluster"] == "c1"}
    places = [place for place in range(1, len(links) - 1) if "verb" in links[place]]
    beside = [place for place in places if not {"verb"} <= links[place - 1].keys() & links[place + 1].keys()]
    assert any("verb" not in links[place + 1] for place in beside)
    for place in beside:
        forged = copy.deepcopy(genuine)
        forged["segment"]["links"][place] = {"omitted": 1, "digest": digests[first + place]}
        assert proofs.refusal(proofs.sign(forged), published()) == "chain", links[place]["verb"]


def test_the_proof_over_a_log_of_an_older_portal_says_what_it_does_not_show() -> None:
    rescue = two_rescues()
    whole = proof.unsigned(rescue)
    others = [place for place, link in enumerate(whole["segment"]["links"]) if "verb" not in link]
    first = whole["segment"]["first"]
    for old in (first + others[0], Entry.objects.filter(cluster="c1").count()):
        write_as_before(old)
        assert ledger.verify("c1").intact
        statements = proof.unsigned(rescue)
        assert verified(statements, published()).unseen == len([place for place in others if first + place <= old])
        assert statements["segment"]["named_from"] == old + 1


def test_the_script_says_how_many_entries_could_hide_an_act(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rescue = two_rescues()
    public = proofs.KEYS[proofs.KEY_ID]
    key_id = hashlib.sha256(public.public_bytes_raw()).hexdigest()[:16]
    file, key = tmp_path / "proof.json", tmp_path / "key.pub"
    key.write_bytes(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    told = []
    for old in (0, Entry.objects.filter(cluster="c1").count()):
        write_as_before(old)
        file.write_bytes(verifier.canonical(proofs.sign(proof.unsigned(rescue)) | {"key_id": key_id}))
        assert verifier.main([str(file), "--key", str(key)]) == 0
        told.append([line.partition(":")[0] for line in capsys.readouterr().out.splitlines()])
    assert told == [["valid"], ["valid", "note"]]
