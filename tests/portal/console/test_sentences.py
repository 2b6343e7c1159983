"""The catalog of sentences in the reader's language: complete, and without English in the Chinese."""

import inspect
import re

from django.utils import translation

from kcover import reasons, sentences
from kcover.faults import catalog
from kcover_portal.console.templatetags import console
from kcover_portal.lib import localization
from tests.portal.console import kept_words

HAN = re.compile(r"[\u4e00-\u9fff]")


def _example(code: str) -> reasons.Reason:
    """The reason with plausible parameters, without a Latin letter."""
    return reasons.of(code, **dict.fromkeys(reasons.FIELDS[code], "4"))


def test_every_sentence_is_translated_without_english_words() -> None:
    left = {}
    for code in sentences.SENTENCES:
        assert localization.say(_example(code)) == str(_example(code))
        with translation.override("zh-hans"):
            chinese = localization.say(_example(code))
        if words := kept_words.english_words(chinese, code):
            left[code] = words
    assert left == {}


def test_every_text_about_a_fault_is_translated() -> None:
    with translation.override("zh-hans"):
        english = [text for text in catalog.texts() if not HAN.search(console.cataloged(text))]
    assert english == []


def test_several_reasons_are_rendered_in_the_readers_language() -> None:
    row = (reasons.of("paused_because", why="look first"), reasons.of("nothing_done"))
    assert localization.sentence(row) == "Automation is paused: look first. Nothing was done."
    with translation.override("zh-hans"):
        assert localization.sentence(row) == "自动化已暂停：look first。未执行任何操作。"


def test_a_step_is_shown_by_its_title() -> None:
    ended = reasons.of("step_ended", step="verify", why=reasons.of("nothing_done"))
    assert localization.say(ended) == "Verify: Nothing was done."
    with translation.override("zh-hans"):
        assert localization.stored(ended.to_json()) == "验证：未执行任何操作。"


def test_the_filter_accepts_a_reason_its_json_or_an_empty_value() -> None:
    assert console.because(reasons.of("paused")) == "Automation is paused."
    assert console.because({"code": "paused", "params": {}}) == "Automation is paused."
    assert console.because({}) == ""


def test_no_two_modules_have_a_sentence_of_one_code() -> None:
    tables = [vars(module).get("SENTENCES", {}) for module in vars(sentences).values() if inspect.ismodule(module)]
    codes = [code for table in tables for code in table]
    assert [code for code in set(codes) if codes.count(code) > 1] == []
