"""The node's own credential: renewed automatically, and never lost during renewal."""

import errno
import json
from datetime import UTC, datetime, timedelta

import pytest

from agents import config, setup
from agents.errors import ConfigError
from agents.host import store
from agents.uplink import credential, http
from agents.uplink.protocol import UplinkError
from kcover import wire

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
END = NOW + timedelta(days=30)
HALF = timedelta(days=17)  # jitter included


class Hand:
    """A clock's."""

    def __init__(self, value):
        self.value = value

    def __call__(self):
        return self.value


class Full(store.MemoryStore):
    """A store whose disk is full once ``full`` is set."""

    full = False

    def write(self, name, data):
        if self.full:
            raise OSError(errno.ENOSPC, "no space left on device")
        super().write(name, data)


def body():
    batch = "3f1c9d9e-0a1b-4c2d-8e3f-000000000001"
    return json.dumps(wire.encode(wire.Report(node="gpu-1", boot_id="b", batch_id=batch, sent_at=NOW))).encode()


@pytest.fixture
def clock(portal):
    portal.expires_at = END.isoformat()
    return Hand(NOW)


@pytest.fixture
def connect(portal, clock):
    opened = []

    def connect(keep, *, token="kce_all", **more):
        agent = http.HttpUplink(url=portal.url, node="gpu-1", token=Hand(token), store=keep, clock=clock, **more)
        opened.append(agent)
        return agent

    yield connect
    for agent in opened:
        agent.close()


def keeper(keep, clock, monotonic=None):
    return credential.CredentialStore(keep, node="gpu-1", clock=clock, monotonic=monotonic or Hand(0.0))


def answer(token, *, expires_at=END):
    return json.dumps({"token": token, "expires_at": expires_at.isoformat() if expires_at else None}).encode()


def test_a_credential_is_renewed_at_half_of_its_life(connect, portal, clock):
    keep = store.MemoryStore()
    agent = connect(keep)
    agent.post_report(body())
    clock.value = NOW + timedelta(days=13)
    agent.post_report(body())
    assert portal.renewed == []
    clock.value = NOW + HALF
    portal.expires_at = (clock.value + timedelta(days=30)).isoformat()
    agent.post_report(body())
    agent.post_report(body())
    assert portal.renewed == ["kca_1"]
    assert portal.bearers == ["kca_1", "kca_1", "kca_r1", "kca_r1"]
    assert portal.enrolled == [("gpu-1", "kce_all")]
    connect(keep, token="").post_report(body())  # after a restart, and without the enrolment token
    assert portal.bearers[-1] == "kca_r1"


@pytest.mark.parametrize("status", [401, 403, 429, 503])
def test_a_renewal_that_fails_is_tried_again_in_an_hour(connect, portal, clock, status):
    monotonic = Hand(0.0)
    agent = connect(store.MemoryStore(), monotonic=monotonic)
    agent.post_report(body())
    clock.value = NOW + HALF
    portal.renewals = [status]
    for _ in range(3):
        assert agent.post_report(body()) is not None
    assert portal.renewed == ["kca_1"]
    monotonic.value += 3601
    agent.post_report(body())
    assert portal.renewed == ["kca_1"] * 2
    assert portal.bearers == ["kca_1"] * 4 + ["kca_r2"]


def test_an_answer_that_was_lost_leaves_the_old_one_in_use(connect, portal, clock):
    agent = connect(store.MemoryStore())
    agent.post_report(body())
    clock.value = NOW + HALF
    portal.cut = 2  # a line tries it twice
    agent.post_report(body())
    assert portal.renewed == ["kca_1"] * 2
    assert portal.bearers == ["kca_1", "kca_1"]


def test_a_credential_that_cannot_be_stored_is_not_used(connect, portal, clock):
    keep = Full()
    agent = connect(keep)
    agent.post_report(body())
    clock.value, keep.full = NOW + HALF, True
    agent.post_report(body())
    assert portal.renewed == ["kca_1"]
    assert portal.bearers == ["kca_1", "kca_1"]  # using kca_r1 would end kca_1, which is all that a restart has
    connect(keep, token="").post_report(body())
    assert portal.bearers[-1] == "kca_1"


def test_the_earlier_credential_is_used_where_the_new_one_is_refused(connect, portal, clock):
    agent = connect(store.MemoryStore(), token="kce_all")
    agent.post_report(body())
    clock.value = NOW + HALF
    portal.tokens = {"kca_1"}
    assert agent.post_report(body()) is not None
    assert agent.post_report(body()) is not None
    assert portal.bearers == ["kca_1", "kca_r1", "kca_1", "kca_1"]
    assert len(portal.enrolled) == 1


def test_the_agent_enrols_again_where_no_credential_is_accepted(connect, portal, clock):
    agent = connect(store.MemoryStore())
    agent.post_report(body())
    clock.value = NOW + HALF
    agent.post_report(body())
    portal.tokens = {"kca_2"}  # away for longer than both of them lived
    agent.post_report(body())
    assert len(portal.enrolled) == 2
    assert portal.bearers[-1] == "kca_2"


@pytest.mark.parametrize("renewed", [False, True])
def test_a_401_that_did_not_come_from_the_portal_keeps_the_old_credential_usable(connect, portal, clock, renewed):
    keep = store.MemoryStore()
    agent = connect(keep)
    agent.post_report(body())
    if renewed:
        clock.value = NOW + HALF
        agent.post_report(body())
    good, portal.tokens, portal.enrols = portal.bearers[-1], set(), False  # of a short life, as it may be
    for _ in range(3):
        with pytest.raises(UplinkError, match="enrolment: 401"):
            agent.post_report(body())
    portal.tokens = {good}
    assert agent.post_report(body()) is not None
    assert json.loads(keep.read(credential.CREDENTIAL_FILE))["token"] == good


def test_without_an_enrolment_token_the_error_says_what_to_do_and_no_report_is_lost(connect, portal, clock):
    keep = store.MemoryStore()
    connect(keep).post_report(body())
    agent = connect(keep, token="")
    agent.post_report(body())
    portal.tokens = set()
    for _ in range(2):
        with pytest.raises(UplinkError, match="no enrolment token: create one"):
            agent.post_report(body())
    portal.tokens = {"kca_1"}  # a proxy had said so, not the portal
    assert agent.post_report(body()) is not None
    assert json.loads(keep.read(credential.CREDENTIAL_FILE))["token"] == "kca_1"


def test_a_token_file_that_was_taken_away_after_enrolling(connect, portal, tmp_path):
    keep, token = store.MemoryStore(), tmp_path / "token"
    token.write_text("kce_all")
    agent = http.HttpUplink(url=portal.url, node="gpu-1", token=token.read_text, store=keep, clock=Hand(NOW))
    agent.post_report(body())
    token.unlink()
    agent.post_report(body())
    agent.close()
    assert portal.bearers == ["kca_1", "kca_1"]


def test_an_agent_starts_without_a_token_only_where_it_has_enrolled(tmp_path):
    spool, boot = tmp_path / "spool", tmp_path / "boot"
    boot.write_text("b")
    given = {"token_file": tmp_path / "gone", "spool": spool, "boot_id_file": boot, "url": "http://127.0.0.1:9"}
    settings = config.Config(node="gpu-1", **given)
    with pytest.raises(ConfigError, match=r"gone holds none.* no credential of gpu-1"):
        setup.connect(settings)
    folder = store.FolderStore(tmp_path / "other")
    keeper(folder, Hand(NOW)).store_enrolled(answer("kca_1"))
    folder.close()
    _, folder = setup.connect(config.Config(node="gpu-1", **{**given, "spool": tmp_path / "other"}))
    folder.close()


def test_a_credential_without_an_end_is_never_renewed():
    keep = store.MemoryStore()
    keeper(keep, Hand(NOW)).store_enrolled(answer("kca_x", expires_at=None))
    later = keeper(keep, Hand(NOW + timedelta(days=4000)))
    assert later.own.token == "kca_x"
    assert not later.is_renewal_due()


@pytest.mark.parametrize("off", [timedelta(days=-20_000), timedelta(days=20_000)])
def test_a_clock_that_was_wrong_when_it_came_puts_no_renewal_off(off):
    clock = Hand(NOW + off)
    own = keeper(store.MemoryStore(), clock).store_enrolled(answer("kca_x"))
    assert END - timedelta(days=17) < own.renew_at < END - timedelta(days=13)


def test_a_clock_that_was_set_back_for_weeks_puts_no_renewal_off():
    clock, monotonic, keep = Hand(NOW), Hand(0.0), store.MemoryStore()
    kept = keeper(keep, clock, monotonic)
    kept.store_enrolled(answer("kca_1"))
    clock.value = NOW - timedelta(days=60)

    def due_after(kept, days):
        monotonic.value += timedelta(days=days).total_seconds()
        return kept.is_renewal_due()

    assert not due_after(kept, 13)
    assert due_after(kept, 4)
    assert kept.store_renewed(answer("kca_2"))
    assert not due_after(kept, 13)
    restarted = keeper(keep, clock, monotonic)
    assert not due_after(restarted, 13)
    assert due_after(restarted, 4)


def test_a_fleet_does_not_renew_in_one_hour():
    drawn = {keeper(store.MemoryStore(), Hand(NOW)).store_enrolled(answer("kca_x")).renew_at for _ in range(30)}
    assert all(NOW + timedelta(days=13) < at < NOW + HALF for at in drawn)
    assert len(drawn) == 30


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"token": 1}', b'{"token": ""}', b"{"])
def test_an_invalid_renewal_answer_changes_no_credential(content):
    kept = keeper(store.MemoryStore(), Hand(NOW))
    own = kept.store_enrolled(answer("kca_1"))
    with pytest.raises(ValueError, match=r"no token|Expecting"):
        kept.store_renewed(content)
    assert kept.own == own
