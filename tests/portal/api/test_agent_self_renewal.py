"""A real agent at the real endpoint: it keeps reporting, whatever is lost while it renews its credential."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agents.host import store
from agents.uplink import http
from agents.uplink.protocol import UplinkError
from kcover_portal.accounts import services as accounts
from kcover_portal.accounts.models import ApiToken
from kcover_portal.accounts.services import renewal
from kcover_portal.api.agent import app
from kcover_portal.fleet.models import Cluster
from tests.portal.api.door import Door, report

pytestmark = pytest.mark.django_db(transaction=True)


class Machine:
    """A node whose agent may be started again and again; its line loses answers, its clock is set forward."""

    def __init__(self, secret: str) -> None:
        self.secret = secret
        self.disk = store.MemoryStore()
        self.lost = 0  # credentials that never arrive
        self.ahead = timedelta()
        self.start()

    def start(self) -> "Machine":
        self.agent = http.HttpUplink(
            url="http://door",
            node="gpu-1",
            token=lambda: self.secret,
            store=self.disk,
            clock=self.now,
            connection=lambda *_, **__: self,
        )
        return self

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead

    def reports(self) -> None:
        self.agent.post_report(json.dumps(report()).encode())

    def close(self) -> None:
        """See ``http.Connection``, whose place this machine takes."""

    def call(
        self, method: str, path: str, *, body: bytes | None = None, headers: Mapping[str, str], **more: Any
    ) -> Any:
        sent = {name.replace("-", "_"): value for name, value in headers.items()}
        asked, _, query = path.removeprefix("/api/v1/agent/").partition("?")
        answer = Door(None).call(method, asked, body or b"", query=query, **sent)
        if path == http.ENROL_PATH and answer.status == 201 and self.lost:
            self.lost -= 1
            raise UplinkError("the line was cut")
        return answer.status, {}, json.dumps(answer.body).encode()


@pytest.fixture
def machine(now: datetime) -> Machine:
    app.known_credentials.forget()
    cluster = Cluster.objects.create(name="east", created_at=now)
    _, secret = accounts.make_token("agent", cluster=cluster, created_by="user:ada", now=datetime.now(UTC))
    made = Machine(secret)
    made.reports()
    made.secret = ""  # the enrolment token is taken away
    return made


def of_node() -> list[str]:
    rows = ApiToken.objects.filter(node="gpu-1", revoked_at=None)
    return list(rows.order_by("pk").values_list("name", flat=True))


def earlier() -> None:
    """As if what was asked for had been asked for an hour before."""
    for token in ApiToken.objects.all():
        token.created_at -= renewal.MIN_RENEWAL_INTERVAL
        token.save(update_fields=["created_at"])


def test_an_agent_renews_its_credential_and_the_old_one_ends(machine: Machine) -> None:
    first = of_node()
    for _ in range(3):
        machine.ahead += timedelta(days=17)
        machine.start().reports()
        assert len(of_node()) == 1
        assert of_node() != first
        earlier()
    assert machine.agent.poll_commands(wait=0) == ()


def test_answers_that_are_lost_and_restarts_in_between(machine: Machine) -> None:
    machine.ahead, machine.lost = timedelta(days=17), 2
    machine.reports()
    assert len(of_node()) == 2
    machine.start().reports()  # the portal says 429: it was given one a moment ago
    earlier()
    machine.start().reports()  # lost again
    assert len(of_node()) == 2
    earlier()
    machine.start().reports()
    assert of_node() == [ApiToken.objects.filter(node="gpu-1").latest("pk").name]


def test_a_crash_between_storing_it_and_its_first_use(machine: Machine) -> None:
    machine.ahead = timedelta(days=17)
    machine.agent._renew(machine.agent._credentials.own.token, machine.agent._reports)  # type: ignore[union-attr]
    assert len(of_node()) == 2
    machine.start().reports()
    assert len(of_node()) == 1


def test_a_late_second_request_withdraws_the_new_credential(machine: Machine) -> None:
    machine.ahead = timedelta(days=17)
    old = machine.agent._credentials.own
    assert old is not None
    machine.agent._renew(old.token, machine.agent._reports)
    earlier()
    assert Door(old.token).enrol({"node": "gpu-1"}).status == 201  # whose answer nobody waits for any more
    machine.reports()
    assert ApiToken.objects.get(digest=accounts.digest(old.token)).revoked_at is None


def test_a_database_that_is_put_back_to_the_day_before(machine: Machine) -> None:
    before = list(ApiToken.objects.values())
    machine.ahead = timedelta(days=17)
    machine.reports()
    ApiToken.objects.all().delete()
    ApiToken.objects.bulk_create(ApiToken(**row) for row in before)
    app.known_credentials.forget()
    machine.reports()
    assert len(of_node()) == 1


def test_an_agent_with_a_revoked_credential_stays_out_and_says_what_to_do(machine: Machine) -> None:
    machine.ahead = timedelta(days=17)
    old = ApiToken.objects.get(node="gpu-1")
    machine.reports()
    accounts.revoke_token(old, actor="user:ada", now=datetime.now(UTC))
    app.known_credentials.forget()
    with pytest.raises(UplinkError, match="there is no enrolment token: create one"):
        machine.reports()
    cluster = old.cluster
    _, machine.secret = accounts.make_token("agent", cluster=cluster, created_by="user:ada", now=datetime.now(UTC))
    machine.reports()
    assert len(of_node()) == 1
