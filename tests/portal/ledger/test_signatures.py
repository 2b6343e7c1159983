"""The signing key is a file; old public keys stay; another key, another document or a cut signature is refused."""

import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from django.core.management import CommandError, call_command
from django.test import Client

from kcover_portal.ledger import signatures
from kcover_portal.operate import signing_key

DOCUMENT = signatures.canonical({"kind": "test", "b": 1, "a": "é"})


@pytest.fixture
def path(tmp_path: Path, settings) -> Path:
    settings.KCOVER_SIGNING_KEY = tmp_path / "signing" / "key.pem"
    return settings.KCOVER_SIGNING_KEY


def test_canonical_json_is_one_text_for_one_document() -> None:
    assert (
        signatures.canonical({"a": "é", "b": 1, "kind": "test"}) == DOCUMENT == '{"a":"é","b":1,"kind":"test"}'.encode()
    )


def test_a_signature_holds_for_its_bytes_and_its_key(path: Path, tmp_path: Path) -> None:
    key_id = signatures.create_key(path)
    signature = signatures.sign(DOCUMENT)
    assert signature.key_id == key_id == signatures.current_key_id()
    assert signatures.verify(DOCUMENT, signature)
    assert not signatures.verify(DOCUMENT + b" ", signature)
    for broken in ("", "AAAA", "no base64", signature.signature[:-4], "A" * 86 + "=="):
        assert not signatures.verify(DOCUMENT, signatures.Signature(key_id=key_id, signature=broken))
    assert not signatures.verify(DOCUMENT, signatures.Signature(key_id="0" * 16, signature=signature.signature))
    signatures.create_key(tmp_path / "other.pem")
    others = signatures.read_public_keys(tmp_path / "other.pem.pub")
    assert not signatures.verify(DOCUMENT, signature, others)


def test_the_private_key_is_the_portals_own_and_is_never_overwritten(path: Path) -> None:
    signatures.create_key(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    before = path.read_bytes()
    with pytest.raises(signatures.SigningKeyExists):
        signatures.create_key(path)
    assert path.read_bytes() == before
    assert sorted(file.name for file in path.parent.iterdir()) == ["key.pem", "key.pem.pub"]


def test_a_rotated_key_leaves_its_public_key(path: Path) -> None:
    first = signatures.create_key(path)
    old = signatures.sign(DOCUMENT)
    second = signatures.rotate_key(path)
    new = signatures.sign(DOCUMENT)
    assert (old.key_id, new.key_id) == (first, second)
    assert list(signatures.public_keys()) == [first, second]
    assert signatures.verify(DOCUMENT, old)
    assert signatures.verify(DOCUMENT, new)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_key_whose_public_file_is_lost_still_verifies(path: Path) -> None:
    key_id = signatures.create_key(path)
    path.with_name("key.pem.pub").unlink()
    assert list(signatures.public_keys()) == [key_id]
    assert signatures.verify(DOCUMENT, signatures.sign(DOCUMENT))


def rsa_key() -> bytes:
    return rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


@pytest.mark.parametrize("content", [None, b"", b"no key", rsa_key()])
def test_an_invalid_key_is_refused_and_the_public_keys_stay(path: Path, content: bytes | None) -> None:
    key_id = signatures.create_key(path)
    old = signatures.sign(DOCUMENT)
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(signatures.SigningKeyUnusable) as raised:
        signatures.sign(DOCUMENT)
    assert raised.value.reason.code == ("signing_key_unreadable" if content is None else "signing_key_invalid")
    assert list(signatures.public_keys()) == [key_id]
    assert signatures.verify(DOCUMENT, old)


def test_the_command_makes_and_rotates(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("ledger", "key")
    assert capsys.readouterr().out.startswith(f"key {signatures.current_key_id()} in {path}")
    with pytest.raises(CommandError, match="--rotate"):
        call_command("ledger", "key")
    call_command("ledger", "key", "--rotate")
    assert len(signatures.public_keys()) == 2
    with pytest.raises(CommandError, match="cannot be read"):
        call_command("ledger", "key", "--rotate", path=path.with_name("none.pem"))
    with pytest.raises(CommandError, match="cannot write"):
        call_command("ledger", "key", path=Path("/proc/kcover/key.pem"))


def test_one_machine_creates_its_key_at_the_first_start_only(path: Path, settings) -> None:
    signing_key.ensure()
    assert not path.exists(), "a configured key is never made up"
    settings.VAR_DIR = path.parent
    signing_key.ensure()
    key_id = signatures.current_key_id()
    signing_key.ensure()
    assert signatures.current_key_id() == key_id


def test_a_deployment_without_a_key_is_warned(path: Path) -> None:
    assert [message.id for message in signing_key.usable()] == ["kcover.W001"]
    signatures.create_key(path)
    assert signing_key.usable() == []
    path.chmod(0o644)
    assert [message.id for message in signing_key.usable()] == ["kcover.W002"]


@pytest.mark.django_db
def test_a_signed_in_person_reads_the_public_keys(path: Path, django_user_model) -> None:
    client = Client()
    assert client.get("/api/v1/ledger/keys").status_code == 401
    client.force_login(django_user_model.objects.create_user("ann", is_superuser=True))
    assert client.get("/api/v1/ledger/keys").json() == {"current": None, "keys": []}
    old, new = signatures.create_key(path), signatures.rotate_key(path)
    answer = client.get("/api/v1/ledger/keys").json()
    assert (answer["current"], [key["id"] for key in answer["keys"]]) == (new, [old, new])
    assert "PRIVATE" not in str(answer)
