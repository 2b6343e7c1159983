"""The content security policy of pages: nothing inline and nothing from elsewhere, so no template may need it."""

import re
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client

TEMPLATES = sorted((Path(settings.BASE_DIR) / "templates").rglob("*.html"))


@pytest.mark.django_db
def test_pages_allow_nothing_inline_and_nothing_from_elsewhere() -> None:
    policy = Client().get("/sign-in/").headers["Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert "unsafe" not in policy
    assert "nonce" not in policy
    assert (rules["default-src"], rules["script-src"], rules["style-src"]) == ("'self'",) * 3
    assert (rules["frame-ancestors"], rules["base-uri"], rules["form-action"]) == ("'none'", "'none'", "'self'")


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_a_template_has_nothing_inline(path: Path) -> None:
    text = re.sub(r"\{#.*?#\}", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert not re.findall(r"<style|\sstyle=|\son[a-z]+=|javascript:|\shx-on[:-]", text)
    assert not [tag for tag in re.findall(r"<script\b[^>]*>", text) if "src=" not in tag and "json" not in tag]
