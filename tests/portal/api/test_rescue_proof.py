"""``GET rescues/{id}/proof``: the file of a rescue, for those who may see its cluster, verified by a stranger."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger import signatures
from kcover_portal.rescue.models import Rescue
from tests import proof_verifier
from tests.portal.api.conftest import Api, person, problem
from tests.portal.rescue.world import World

pytestmark = pytest.mark.django_db


@pytest.fixture
def key(tmp_path: Path, settings: Any) -> Path:
    settings.KCOVER_SIGNING_KEY = tmp_path / "key.pem"
    signatures.create_key(settings.KCOVER_SIGNING_KEY)
    return tmp_path / "key.pem.pub"


@pytest.fixture
def rescue() -> Rescue:
    world = World()
    world.fault(62)
    world.work()
    world.uninstall()
    return Rescue.objects.get()


def verify(*arguments: str | Path) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-I", proof_verifier.FILE, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert not done.stderr
    return done.returncode, done.stdout


def test_a_stranger_verifies_the_file(key: Path, rescue: Rescue, tmp_path: Path, viewer: Api) -> None:
    answer = viewer.get(f"rescues/{rescue.pk}/proof")
    assert answer.status_code == 200
    assert answer["Content-Disposition"] == f'attachment; filename="rescue-{rescue.pk}-proof.json"'
    file = tmp_path / "proof.json"
    file.write_bytes(answer.content)
    code, said = verify(file, "--key", key)
    assert (code, said.split(":")[0]) == (0, "valid")


def test_another_key_or_a_changed_byte_is_refused(key: Path, rescue: Rescue, tmp_path: Path, viewer: Api) -> None:
    document = viewer.get(f"rescues/{rescue.pk}/proof").json()
    file = tmp_path / "proof.json"
    file.write_text(json.dumps(document))
    signatures.create_key(tmp_path / "other.pem")
    code, said = verify(file, "--key", tmp_path / "other.pem.pub")
    assert (code, said.split(":")[0]) == (1, "key")
    document["proof"]["rescue"]["node"] = "gpu-2"
    file.write_text(json.dumps(document))
    code, said = verify(file, "--key", key)
    assert (code, said.split(":")[0]) == (1, "signature")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"proof": {}}', '{"a": 1, "a": 2}', "\x00", '{"proof": ' * 2000])
def test_a_file_that_is_no_proof_is_refused(text: str, key: Path, tmp_path: Path) -> None:
    file = tmp_path / "proof.json"
    file.write_text(text)
    code, said = verify(file, "--key", key)
    assert (code, said.split(":")[0]) in {(1, "format"), (1, "key")}


def test_a_caller_without_access_to_the_cluster_gets_no_proof(key: Path, rescue: Rescue) -> None:
    now = datetime.now(UTC)
    other = Cluster.objects.create(name="west", created_at=now)
    eve = person("eve", "admin", now, cluster=other)
    assert eve.get(f"rescues/{rescue.pk}/proof").status_code == 404
    ann = person("ann", "viewer", now, cluster=rescue.cluster)
    assert ann.get(f"rescues/{rescue.pk}/proof").status_code == 200


def test_without_a_signing_key_there_is_no_proof(rescue: Rescue, tmp_path: Path, settings: Any, viewer: Api) -> None:
    settings.KCOVER_SIGNING_KEY = tmp_path / "none.pem"
    answer = viewer.get(f"rescues/{rescue.pk}/proof")
    assert problem(answer, 503)["code"] == "signing_key_unreadable"
    assert answer["Retry-After"] == "60"


def test_a_rescue_without_entries_has_no_proof(key: Path, rescue: Rescue, viewer: Api) -> None:
    Rescue.objects.update(cluster=Cluster.objects.create(name="e2", created_at=datetime.now(UTC)))
    answer = viewer.get(f"rescues/{rescue.pk}/proof")
    assert problem(answer, 404)["code"] == "proof_without_entries"
