"""How long rows are kept is one table, which code and documentation share."""

import re
from datetime import timedelta
from pathlib import Path

import pytest
from django.apps import apps

from kcover_portal.checks.models import CheckRun
from kcover_portal.ledger.models import Entry
from kcover_portal.runtime.services import retention

ROOT = Path(__file__).parents[3]
WORDS = {timedelta(hours=1): "1 hour", timedelta(days=1): "1 day"}


@pytest.mark.parametrize("label", retention.TIMES)
def test_each_row_of_the_table_is_of_a_model(label: str) -> None:
    assert apps.get_model(label)._meta.label == label


def test_the_setting_is_read_in_one_place() -> None:
    paths = (ROOT / "kcover_portal").rglob("*.py")
    reading = {path for path in paths if "settings.KCOVER_KEEP_DAYS" in path.read_text(encoding="utf-8")}
    assert reading == {ROOT / "kcover_portal" / "runtime" / "services" / "retention.py"}


def test_the_documentation_has_the_same_times() -> None:
    text = (ROOT / "docs" / "operations" / "install" / "capacity.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [^|]+ \| (\d+ (?:day|hour)s?) \|$", text, re.MULTILINE)
    fixed = {time for time in retention.TIMES.values() if time is not retention.BY_SETTING}
    assert sorted(rows) == sorted(WORDS.get(time, f"{time.days} days") for time in fixed)


def test_the_setting_changes_the_times(settings, now) -> None:
    settings.KCOVER_KEEP_DAYS = 7
    assert retention.before(CheckRun, now=now) == now - timedelta(days=7)


def test_the_audit_log_is_kept(now) -> None:
    with pytest.raises(KeyError):
        retention.before(Entry, now=now)
