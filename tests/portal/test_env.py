"""The settings read from the environment, and their page in the documentation."""

from pathlib import Path

import pytest

from kcover_portal.config import env

SETTINGS_PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations" / "install" / "settings.md"


def test_defaults_need_no_environment() -> None:
    values = env.read({})
    assert values["KCOVER_MODE"] == "enforce"
    assert values["KCOVER_REDIS_URL"] == ""


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KCOVER_DATABASE_URL", "mysql://x"),
        ("KCOVER_DATABASE_URL", "postgres://u:p@host:port/name"),
        ("KCOVER_DATABASE_URL", "postgres://u:p@host"),
        ("KCOVER_DATABASE_URL", "sqlite://"),
        ("KCOVER_DATABASE_URL", "sqlite:///:memory:"),
        ("KCOVER_DATABASE_URL", "sqlite:///var/"),
        ("KCOVER_REDIS_URL", "http://x"),
        ("KCOVER_REDIS_URL", "redis://"),
        ("KCOVER_REDIS_URL", "redis://x:six"),
        ("KCOVER_ALLOWED_HOSTS", "https://portal.example.com"),
        ("KCOVER_ALLOWED_HOSTS", "a b"),
        ("KCOVER_PUBLIC_URL", "https://"),
        ("KCOVER_PUBLIC_URL", "portal.example.com"),
        ("KCOVER_WEB_URL", "http://[::1"),
        ("KCOVER_SECRET_KEY", "short"),
        ("KCOVER_SECRET_KEY", "a" * 32),
        ("KCOVER_SECRET_KEYS", f"only-for-tests-8bdfc9d2a4e64fd6a1f8 {'a' * 32}"),
        ("KCOVER_MODE", "yolo"),
        ("KCOVER_TIME_ZONE", "Mars/Olympus"),
        ("KCOVER_WORKERS", "0"),
        ("KCOVER_WORKERS", "many"),
        ("KCOVER_DEEP_CHECKS_HOURS", "25"),
        ("KCOVER_DEEP_CHECKS_HOURS", "-1"),
        ("KCOVER_DCGM_FATAL_ERRORS", "PCIe,,ECC"),
        ("KCOVER_DCGM_FATAL_ERRORS", "[PCIe]"),
        ("KCOVER_DEBUG", "maybe"),
        ("KCOVER_DEMO_URL", "ftp://x"),
        ("KCOVER_GRAFANA_URL", "javascript://grafana.example/{node}"),
        ("KCOVER_GRAFANA_URL", "https://{cluster}.example/d"),
        ("KCOVER_GRAFANA_URL", "https://grafana.example/d?var={pod}"),
        ("KCOVER_MAIL_URL", "mail.example.com"),
        ("KCOVER_MAIL_URL", "smtp://"),
        ("KCOVER_MAIL_URL", "smtp://mail:twentyfive"),
        ("KCOVER_MAIL_FROM", "nobody"),
        ("KCOVER_MAIL_FROM", "a@b.example\nBcc: c@d.example"),
    ],
)
def test_an_invalid_variable_is_refused_with_the_accepted_values(name: str, value: str) -> None:
    accepts = next(one.accepts for one in env.VARIABLES if one.name == name)
    with pytest.raises(env.SettingsInvalid) as refused:
        env.read({name: value})
    assert str(refused.value) == f"{name} is invalid; it accepts {accepts}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KCOVER_DATABASE_URL", "postgres://u:p@%2Frun%2Fpostgresql/name"),
        ("KCOVER_DATABASE_URL", "sqlite:////var/lib/kcover/db.sqlite3"),
        ("KCOVER_REDIS_URL", "redis://:secret@10.0.0.1:6379/3"),
        ("KCOVER_REDIS_URL", "unix:///run/redis.sock"),
        ("KCOVER_PUBLIC_URL", "https://[2001:db8::1]:8443"),
        ("KCOVER_GRAFANA_URL", "https://grafana.example/d/gpu?var-c={cluster}&var-n={node}&from={from}&to={to}"),
        ("KCOVER_MAIL_URL", "smtp+tls://kcover:se%2Fcret@mail.example.com:587"),
        ("KCOVER_MAIL_FROM", "kcover portal <kcover@example.com>"),
    ],
)
def test_a_valid_variable_is_read_unchanged(name: str, value: str) -> None:
    assert env.read({name: value})[name] == value


def test_dcgms_tests_are_a_list() -> None:
    assert env.read({})["KCOVER_DCGM_FATAL_ERRORS"] == ["PCIe", "NVLink", "ECC", "GPU Memory"]
    given = env.read({"KCOVER_DCGM_FATAL_ERRORS": "memory, targeted_power"})
    assert given["KCOVER_DCGM_FATAL_ERRORS"] == ["memory", "targeted_power"]
    assert env.read({"KCOVER_DCGM_FATAL_ERRORS": "none"})["KCOVER_DCGM_FATAL_ERRORS"] == []


def test_hosts_are_a_list() -> None:
    hosts = env.read({"KCOVER_ALLOWED_HOSTS": "portal, .example.com,[::1],10.0.0.1,*"})["KCOVER_ALLOWED_HOSTS"]
    assert hosts == ["portal", ".example.com", "[::1]", "10.0.0.1", "*"]


def test_every_bad_variable_is_named_at_once() -> None:
    with pytest.raises(env.SettingsInvalid, match=r"KCOVER_MODE .*KCOVER_WORKERS"):
        env.read({"KCOVER_MODE": "x", "KCOVER_WORKERS": "x"})


def test_a_misspelt_variable_is_refused_and_agent_variables_are_ignored() -> None:
    with pytest.raises(env.SettingsInvalid, match="KCOVER_MODUS is not a portal setting"):
        env.read({"KCOVER_MODUS": "enforce", "KCOVER_AGENT_URL": "http://x"})


def test_a_secret_may_come_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "url"
    path.write_text("postgres://u:p@h/db\n")
    assert env.read({"KCOVER_DATABASE_URL_FILE": str(path)})["KCOVER_DATABASE_URL"] == "postgres://u:p@h/db"
    with pytest.raises(env.SettingsInvalid, match="cannot read KCOVER_SECRET_KEY_FILE"):
        env.read({"KCOVER_SECRET_KEY_FILE": str(tmp_path / "none")})


def test_the_documentation_prints_the_table_as_it_is() -> None:
    assert env.table() in SETTINGS_PAGE.read_text(encoding="utf-8")
