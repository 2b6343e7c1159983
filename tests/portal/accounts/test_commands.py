"""``manage.py user`` and ``token``: what they print and what they refuse."""

from datetime import datetime, timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.utils import timezone

from kcover_portal.accounts import services
from kcover_portal.accounts.models import ApiToken, User
from kcover_portal.fleet.models import Cluster
from kcover_portal.ledger.models import Entry
from tests.portal.accounts.strongest_role import role_in

pytestmark = pytest.mark.django_db


def run(*words: str) -> str:
    out = StringIO()
    call_command(*words, stdout=out)
    return out.getvalue()


@pytest.fixture
def east(now: datetime) -> Cluster:
    return Cluster.objects.create(name="east", created_at=now)


def test_a_user_is_made_with_a_password_from_a_file(east: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("correct horse battery\nsecond line\n")
    said = run("user", "create", "anna", "--role", "operator", "--cluster", "east", "--password-file", str(file))
    assert said == "user anna created with role operator\n"
    anna = User.objects.get()
    assert anna.check_password("correct horse battery")
    assert role_in(anna, east) == "operator"
    assert Entry.objects.get().actor.startswith("command:")


def test_a_password_is_made_up_and_printed_where_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", StringIO())
    first, second = run("user", "create", "anna", "--role", "admin").splitlines()
    assert first == "user anna created with role admin"
    label, _, password = second.partition(": ")
    assert label == "password"
    assert len(password) >= 16
    assert User.objects.get().check_password(password)


def test_a_password_is_read_from_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", StringIO("correct horse battery\r\n"))
    run("user", "create", "anna", "--role", "viewer", "--password-file", "-")
    assert User.objects.get().check_password("correct horse battery")


def test_a_password_is_changed_and_users_are_listed(east: Cluster, now: datetime, tmp_path: Path) -> None:
    anna = services.make_user("anna", password="correct horse battery", role="admin", created_by="t", now=now)
    services.bind(anna, "viewer", cluster=east, actor="t", now=now)
    User.objects.create(username="bo", is_active=False)
    file = tmp_path / "password"
    file.write_text("another long password")
    assert run("user", "password", "anna", "--password-file", str(file)) == "password of anna changed\n"
    assert User.objects.get(username="anna").check_password("another long password")
    assert run("user", "list").splitlines() == [
        "anna: admin in all clusters, viewer in east",
        "bo (inactive): no role",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("create", "anna", "--role", "boss"), "Unknown role 'boss'. Use one of viewer, operator, approver, admin"),
        (("create", "anna", "--role", "viewer", "--cluster", "mars"), "unknown cluster mars; known clusters: east"),
        (("create", "old", "--role", "viewer"), "user old already exists"),
        (("password", "anna"), "unknown user anna"),
        (("create", "anna", "--role", "viewer", "--password-file", "/nowhere"), "cannot read the password file"),
    ],
)
def test_an_invalid_user_command_names_its_error(words: tuple[str, ...], message: str, east: Cluster) -> None:
    User.objects.create(username="old")
    with pytest.raises(CommandError, match=message):
        run("user", *words)
    assert User.objects.count() == 1


def test_a_weak_password_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("short")
    with pytest.raises(CommandError, match="too short"):
        run("user", "create", "anna", "--role", "viewer", "--password-file", str(file))


# --- tokens


def test_a_token_is_printed_alone_on_one_line(east: Cluster) -> None:
    said = run("token", "create", "--kind", "decision", "--cluster", "east", "--expires", "90d", "--name", "brain")
    assert said.count("\n") == 1
    found = services.find_token(said.strip(), now=timezone.now())
    assert found is not None
    assert (found.kind, found.cluster, found.name) == ("decision", east, "brain")
    assert found.expires_at is not None
    assert timedelta(0) <= found.created_at + timedelta(days=90) - found.expires_at < timedelta(seconds=1)


def test_hours_are_understood_and_90_days_are_the_default() -> None:
    run("token", "create", "--kind", "viewer", "--expires", "12h")
    hours = ApiToken.objects.get()
    assert hours.expires_at == hours.created_at + timedelta(hours=12)
    run("token", "create", "--kind", "viewer")
    default = ApiToken.objects.latest("pk")
    assert default.expires_at == default.created_at + timedelta(days=90)


def test_an_agents_token_takes_the_only_cluster(east: Cluster, now: datetime) -> None:
    secret = run("token", "create", "--kind", "agent").strip()
    assert secret.startswith("kce_")
    bound = run("token", "create", "--kind", "agent", "--node", "gpu-1").strip()
    assert bound.startswith("kca_")
    assert list(ApiToken.objects.order_by("pk").values_list("cluster__name", "node")) == [
        ("east", ""),
        ("east", "gpu-1"),
    ]
    Cluster.objects.create(name="west", created_at=now)
    with pytest.raises(CommandError, match="An agent token requires a cluster"):
        run("token", "create", "--kind", "agent")


def test_a_list_of_nodes_gives_a_line_each(east: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "nodes"
    file.write_text("# rack 1\ngpu-1\n\n  gpu-2.example \n")
    lines = run("token", "create", "--kind", "agent", "--cluster", "east", "--nodes", str(file)).splitlines()
    assert [line.split("\t")[0] for line in lines] == ["gpu-1", "gpu-2.example"]
    for line in lines:
        node, secret = line.split("\t")
        found = services.find_token(secret, now=timezone.now())
        assert found is not None
        assert (found.node, found.cluster, found.kind) == (node, east, "agent")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("gpu-1\nGPU_2\n", "'GPU_2' is not a node name"),
        ("gpu-1\ngpu-1\n", "node gpu-1 is listed twice"),
        ("# none\n", "contains no nodes"),
    ],
)
def test_a_bad_list_of_nodes_makes_no_token_at_all(content: str, message: str, east: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "nodes"
    file.write_text(content)
    with pytest.raises(CommandError, match=message):
        run("token", "create", "--kind", "agent", "--nodes", str(file))
    assert ApiToken.objects.count() == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--kind", "robot"), "Unknown kind 'robot'"),
        (("--kind", "viewer", "--cluster", "mars"), "unknown cluster mars; known clusters: east"),
        (("--kind", "viewer", "--node", "gpu-1"), "Only agent tokens can be bound to a node, not kind viewer."),
        (("--kind", "agent", "--node", "Bad_Name"), "'Bad_Name' is not a node name"),
        (("--kind", "viewer", "--expires", "90"), "--expires '90' is invalid; use 90d"),
        (("--kind", "viewer", "--expires", "0d"), "--expires '0d' is invalid"),
        (("--kind", "agent", "--nodes", "/nowhere"), "cannot read the list of nodes: "),
        (("--kind", "agent", "--nodes", "f", "--node", "n"), "not allowed with argument"),
    ],
)
def test_an_invalid_token_command_names_its_error(words: tuple[str, ...], message: str, east: Cluster) -> None:
    with pytest.raises(CommandError, match=message):
        run("token", "create", *words)
    assert ApiToken.objects.count() == 0


def test_tokens_are_listed_and_withdrawn(east: Cluster) -> None:
    secret = run(
        "token", "create", "--kind", "viewer", "--cluster", "east", "--name", "wall", "--expires", "never"
    ).strip()
    prefix = secret[:8]
    assert run("token", "list") == f"{prefix}\tviewer\teast\tno expiry\twall\tno owner\tunused\n"
    assert run("token", "revoke", secret, "--reason", "leaked") == f"token {prefix} revoked\n"
    assert services.find_token(secret, now=timezone.now()) is None
    assert "revoked" in run("token", "list")
    with pytest.raises(CommandError, match="no token begins with kcv_zzzz"):
        run("token", "revoke", "kcv_zzzz")


def test_the_state_of_a_token_is_listed(now: datetime) -> None:
    services.make_token("viewer", expires_at=now + timedelta(days=1), created_by="t", now=now)
    services.make_token("viewer", expires_at=timezone.now() + timedelta(days=400), created_by="t", now=now)
    ApiToken.objects.filter(expires_at=now + timedelta(days=1)).update(expires_at=now - timedelta(days=400))
    states = [line.split("\t")[3] for line in run("token", "list").splitlines()]
    assert states[0].startswith("expires 20")
    assert states[1] == "expired"
