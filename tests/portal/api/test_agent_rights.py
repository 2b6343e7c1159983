"""An agent's credential is good for its own node's reports, preflight and commands, nothing else (invariant 47)."""

import re
from datetime import datetime

import pytest

from kcover_portal.accounts import services as accounts
from kcover_portal.ledger.models import Entry
from kcover_portal.rescue.models import Approval, Rescue
from tests.portal.api import openapi
from tests.portal.api.conftest import Api, add_story

pytestmark = pytest.mark.django_db
METHODS = ("get", "post", "put", "patch", "delete")


def operations() -> list[tuple[str, str]]:
    """Method and address, filled in, of everything that REST offers."""
    paths = openapi.document()["paths"]
    filled = {path: re.sub(r"\{[a-z_]*(id|cluster|name)[a-z_]*\}", "1", path) for path in paths}
    return [
        (method, filled[path].removeprefix("/api/v1/"))
        for path, offered in paths.items()
        for method in METHODS
        if method in offered and path.startswith("/api/v1/")
    ]


@pytest.mark.parametrize("bound", [True, False])
def test_inv_47_an_agents_credential_opens_nothing_of_rest(node, now: datetime, bound: bool) -> None:
    rescue = add_story(node, now)
    of_node = {"node": node.name} if bound else {}
    secret = accounts.make_token("agent", cluster=node.cluster, created_by="test", now=now, **of_node)[1]
    before = Entry.objects.count(), Approval.objects.count()
    offered = operations()
    assert len(offered) > 40
    answers = {(method, path): Api(secret).call(method, path).status_code for method, path in offered}
    own_report = answers.pop(("post", "preflight/reports"))  # of its own node (test_preflight.py); this one is empty
    assert own_report == (400 if bound else 403)
    assert set(answers.values()) == {403}, {where: status for where, status in answers.items() if status != 403}
    assert Api(secret).post(f"rescues/{rescue.pk}/approve", {"reason": "I am healed"}).status_code == 403
    assert Api(secret).post(f"nodes/{node.cluster.name}/{node.name}/uncordon", {"reason": "mine"}).status_code == 403
    refused = Entry.objects.filter(verb="vendor_event.signature_failed")  # a token is no signature
    assert (Entry.objects.count() - refused.count(), Approval.objects.count()) == before
    assert Rescue.objects.count() == 1
