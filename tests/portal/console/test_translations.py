"""Simplified Chinese is complete, and what is installed is what was translated."""

import gettext
import re
from pathlib import Path

import pytest
from django.conf import settings

FOLDER = Path(settings.BASE_DIR) / "locale" / "zh_Hans" / "LC_MESSAGES"
TEMPLATES = Path(settings.BASE_DIR) / "templates"
SPEAKING = [
    Path(settings.BASE_DIR) / name for name in ("kcover/actions", "kcover_portal/console", "kcover_portal/notify")
]
TAG = re.compile(r'{%\s*translate\s+"([^"]+)"(?:\s+context\s+"([^"]+)")?')
CALL = re.compile(r'(?:(?<![a-z])_|gettext_lazy|gettext_noop)\(\s*"((?:[^"\\]|\\.)*)",?\s*\)')
BLOCK = re.compile(r"{%\s*blocktranslate\b[^%]*%}(.*?){%\s*(?:plural|endblocktranslate)\s*%}", re.DOTALL)
HOLES = re.compile(r"%\((\w+)\)[sd]|\{(\w+)\}")


@pytest.fixture(scope="module")
def catalog() -> gettext.GNUTranslations:
    with (FOLDER / "django.mo").open("rb") as file:
        return gettext.GNUTranslations(file)


def entries() -> list[tuple[str, list[str]]]:
    """Every msgid of the source file with its translations."""
    found = []
    for block in (FOLDER / "django.po").read_text(encoding="utf-8").split("\n\n")[1:]:
        msgid = re.search(r'^msgid "(.*)"$', block, re.MULTILINE)
        assert msgid, block
        found.append((msgid[1], re.findall(r'^msgstr(?:\[\d\])? "(.*)"$', block, re.MULTILINE)))
    return found


def test_nothing_is_missing_or_fuzzy():
    assert "fuzzy" not in (FOLDER / "django.po").read_text(encoding="utf-8")
    assert [msgid for msgid, strings in entries() if not strings or not all(strings)] == []


def test_every_hole_of_a_sentence_is_in_its_translation():
    different = [
        msgid for msgid, strings in entries() if set(HOLES.findall(msgid)) != set(HOLES.findall("".join(strings)))
    ]
    assert different == []


def test_every_text_of_the_templates_is_translated(catalog: gettext.GNUTranslations):
    known = {key if isinstance(key, str) else key[0] for key in catalog._catalog}
    asked = set()
    for path in TEMPLATES.rglob("*.html"):
        page = path.read_text(encoding="utf-8")
        asked |= {f"{context}\x04{text}" if context else text for text, context in TAG.findall(page)}
        asked |= set(CALL.findall(page))
        asked |= {re.sub(r"{{ (\w+) }}", r"%(\1)s", text) for text in BLOCK.findall(page)}
    for path in [path for folder in SPEAKING for path in folder.rglob("*.py")]:
        asked |= set(CALL.findall(path.read_text(encoding="utf-8")))
    assert sorted(asked - known) == []


def test_approval_has_one_word_in_chinese():
    """审批 is the process: who must, may or is asked to answer. 批准 is the answer that allows it."""
    strayed = re.compile("(等待|需|须|未经|不能|只能|无权|可以)[^，。；：、]*批准")
    assert [text for _, strings in entries() for text in strings if strayed.search(text)] == []
