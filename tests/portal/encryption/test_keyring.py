"""The sources of keys: a file, a command, or the portal's own file; and the errors if they cannot be read."""

import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from kcover_portal.encryption import KeysUnusable, keyring
from tests.portal.encryption.conftest import KeyFile


def refused() -> str:
    with pytest.raises(KeysUnusable) as unusable:
        keyring.load()
    return unusable.value.reason.code


def test_each_line_of_the_file_is_a_key(use_keys: KeyFile, first: str, second: str) -> None:
    use_keys("# the current key", first, "", second, first)
    assert len({key.id for key in keyring.load()}) == len(keyring.load()) == 2
    assert first not in repr(keyring.load())


@pytest.mark.parametrize("line", ["a" * 43 + "=", "short", "ÿ" * 44, "kcover", "QUFB" * 11])
def test_an_invalid_key_is_named_by_its_line(use_keys: KeyFile, first: str, line: str) -> None:
    use_keys(first, line)
    with pytest.raises(KeysUnusable) as unusable:
        keyring.load()
    assert unusable.value.reason.code == "encryption_key_invalid"
    assert dict(unusable.value.reason.params)["line"] == 2
    assert line not in str(unusable.value)


def test_an_empty_or_missing_file_is_an_error(use_keys: KeyFile, settings: Any) -> None:
    use_keys("# none")
    assert refused() == "encryption_keys_missing"
    settings.KCOVER_ENCRYPTION_KEY_FILE = "/nonexistent/key"
    assert refused() == "encryption_file_unreadable"


def command(tmp_path: Path, settings: Any, code: str) -> None:
    script = tmp_path / "print key.py"
    script.write_text(code, encoding="utf-8")
    settings.KCOVER_ENCRYPTION_KEY_COMMAND = f"{sys.executable} '{script}'"


def test_a_command_prints_the_keys_and_runs_once(tmp_path: Path, settings: Any, first: str) -> None:
    log = tmp_path / "log"
    command(tmp_path, settings, f"open({str(log)!r}, 'a').write('x'); print({first!r})")
    assert len({keyring.load() for _ in range(3)}) == 1
    assert log.read_text() == "x"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("raise SystemExit('denied')", "encryption_command_failed"),
        ("print('nothing')", "encryption_key_invalid"),
        ("", "encryption_keys_missing"),
        ("import sys; sys.stdout.buffer.write(bytes([255]))", "encryption_command_failed"),
    ],
)
def test_a_command_that_fails_is_named(tmp_path: Path, settings: Any, code: str, expected: str) -> None:
    command(tmp_path, settings, code)
    assert refused() == expected


def test_a_missing_program_is_named(settings: Any) -> None:
    settings.KCOVER_ENCRYPTION_KEY_COMMAND = "/nonexistent/program --key"
    assert refused() == "encryption_command_failed"


def test_one_machine_generates_its_own_key(tmp_path: Path, settings: Any) -> None:
    path = tmp_path / "new" / "key"
    settings.KCOVER_OWN_ENCRYPTION_KEY = path
    [key] = keyring.load()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert keyring.load() == (key,)
    assert [file.name for file in path.parent.iterdir()] == ["key"]


def test_a_new_key_in_the_file_is_found_without_a_restart(
    tmp_path: Path, settings: Any, first: str, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "keys"
    path.write_text(first)
    settings.KCOVER_ENCRYPTION_KEY_FILE = str(path)
    [old] = keyring.load()
    path.write_text(f"{second}\n{first}")
    monkeypatch.setattr(keyring, "REREAD_SECONDS", 0.0)
    assert keyring.find("unknown") is None
    assert keyring.load()[1] == old
