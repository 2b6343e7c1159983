"""What others chose begins no line of a command's output and gives the terminal no command."""

from datetime import datetime
from io import StringIO
from pathlib import Path

import pytest
import yaml
from django.core.management import call_command

from kcover_portal.accounts import services as accounts
from kcover_portal.accounts.models import ApiToken
from kcover_portal.policies import services as policies
from tests.contract import scripted

pytestmark = pytest.mark.django_db
HOSTILE = "v1\x1b[2J\x1b[H\nall is well\x1b[8m"


def said(*words: str) -> str:
    out = StringIO()
    call_command(*words, stdout=out, stderr=out)
    return out.getvalue()


def is_printed(text: str) -> bool:
    return "\\x1b[2J" in text and "\x1b" not in text and "\nall" not in text


def kubeconfig(path: Path, server: str) -> str:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u"}}],
    }
    path.write_text(yaml.safe_dump(content))
    return str(path)


@pytest.mark.parametrize("status", [200, 403])
def test_what_an_api_server_says(tmp_path: Path, status: int) -> None:
    def answer(request: scripted.Handler) -> None:
        is_version = request.path.startswith("/version")
        listed = {"metadata": {"resourceVersion": "7"}, "items": []}
        right = {"gitVersion": HOSTILE} if is_version else listed
        request.reply(status, right if status == 200 else {"code": status, "message": HOSTILE})

    with scripted.serve(answer) as server:
        assert is_printed(said("cluster", "add", "east", "--kubeconfig", kubeconfig(tmp_path / "k", server.url)))


def test_the_name_of_a_token(now: datetime) -> None:
    accounts.make_token(ApiToken.Kind.VIEWER, cluster=None, name=HOSTILE, created_by="user:eve", now=now)
    assert is_printed(said("token", "list"))


def test_the_reason_why_a_policy_was_archived(now: datetime) -> None:
    row = policies.install_pack("kcover", "enforce", author="user:eve", reason="", now=now)[0]
    policies.delete(row.name, kind=row.kind, author="user:eve", reason=HOSTILE, now=now)
    assert is_printed(said("policy", "list", "--archived"))
