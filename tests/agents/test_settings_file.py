"""The agent ends when its settings file has another valid content, so that it is started with it."""

import os
import threading
from pathlib import Path

import pytest

from agents import run
from tests import waiting


@pytest.fixture
def file(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(run, "FILE_SECONDS", 0.02)
    path = tmp_path / "config.yaml"
    path.write_text("interval: 5\n")
    return path


class Waiting:
    """The wait of an agent for its end, in a thread."""

    def __init__(self, file: Path | None) -> None:
        self.signals, self.writing = os.pipe()
        content = file.read_bytes() if file else None
        self.thread = threading.Thread(target=run.wait_for_stop, args=(self.signals, file, content), daemon=True)
        self.thread.start()

    @property
    def over(self) -> bool:
        return not self.thread.is_alive()


def test_a_changed_file_ends_the_agent(file) -> None:
    waits = Waiting(file)
    file.write_text("interval: 6\n")
    waiting.until(lambda: waits.over, "the end")


def test_invalid_and_missing_settings_do_not_end_it(file, caplog) -> None:
    waits = Waiting(file)
    file.write_text("url: gopher://portal\n")
    waiting.until(lambda: "gopher" in caplog.text, "the refusal")
    file.unlink()
    file.write_text("interval: 7\n")
    waiting.until(lambda: waits.over, "the end")
    assert caplog.text.count("gopher") == 1


@pytest.mark.parametrize("with_file", [True, False])
def test_a_signal_ends_it(file, with_file) -> None:
    waits = Waiting(file if with_file else None)
    os.write(waits.writing, b"x")
    waiting.until(lambda: waits.over, "the end")
