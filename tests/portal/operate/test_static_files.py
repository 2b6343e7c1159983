"""Static files with hashed names and gzip copies, and pages that are compressed on the wire."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.contrib.staticfiles.finders import get_finder
from django.core.management import call_command
from django.test import Client

from kcover_portal.config import static_files
from tests.portal.console.conftest import person

__all__ = ["person"]
STYLE = ".a { color: red }\n" * 200


@pytest.fixture
def base(tmp_path: Path, settings) -> Iterator[Path]:
    source = tmp_path / "static" / "console"
    source.mkdir(parents=True)
    (source / "a.css").write_text(STYLE)
    settings.BASE_DIR, settings.STATIC_ROOT = tmp_path, tmp_path / "var"
    settings.STATICFILES_DIRS = [tmp_path / "static"]
    settings.STATICFILES_FINDERS = ["django.contrib.staticfiles.finders.FileSystemFinder"]
    settings.STATIC_ROOT.mkdir()
    get_finder.cache_clear()
    yield tmp_path
    get_finder.cache_clear()


def test_files_are_collected_once_with_hashed_names_and_compressed_copies(base: Path) -> None:
    root = base / "var"
    assert not static_files.are_collected(root, base=base)
    call_command("static_files", verbosity=0)
    name = json.loads((root / "staticfiles.json").read_text())["paths"]["console/a.css"]
    assert name != "console/a.css"
    assert gzip.decompress((root / f"{name}.gz").read_bytes()).decode() == STYLE
    assert static_files.are_collected(root, base=base)
    (root / "console" / "a.css").unlink()
    call_command("static_files", verbosity=0)
    assert not (root / "console" / "a.css").exists()  # nothing had changed
    (base / "static" / "console" / "b.css").write_text("")
    assert not static_files.are_collected(root, base=base)
    call_command("static_files", verbosity=0)
    assert (root / "console" / "a.css").exists()
    (base / "requirements.lock").write_text("whitenoise==7")
    assert not static_files.are_collected(root, base=base)


@pytest.mark.django_db(transaction=True)  # a streamed response closes the connection
def test_pages_are_compressed_and_answers_to_post_are_not(person) -> None:
    client: Client = person("admin")
    accepts = {"Accept-Encoding": "gzip"}
    page = client.get("/", headers=accepts)
    assert page.headers["Content-Encoding"] == "gzip"
    assert "<title>" in gzip.decompress(page.content).decode()
    assert "Content-Encoding" not in client.get("/").headers
    stream = client.get("/export/nodes.csv", headers=accepts)
    assert stream.streaming
    assert "Content-Encoding" not in stream.headers
    b"".join(stream.streaming_content)
    made = client.post("/access/tokens/new/", {"kind": "viewer"}, headers=accepts)
    assert "kcv_" in made.content.decode() or made.status_code in (200, 302, 422)
    assert "Content-Encoding" not in made.headers
