"""Reasons in the reader's language: every sentence of the kernel is there to be translated."""

from django.utils import translation

from kcover import reasons
from kcover_portal.console import wording
from kcover_portal.console.templatetags import console


def test_every_sentence_of_the_kernel_is_marked_for_translation() -> None:
    assert list(wording.SENTENCES) == [text for code, text in reasons.TEXTS.items() if code != "text"]


def test_a_line_of_reasons() -> None:
    weighed = (reasons.of("paused"), reasons.of("paused_because", why="look first"))
    assert wording.sentence(weighed) == "everything is paused; everything is paused: look first"


def test_reasons_are_said_in_the_readers_language() -> None:
    reason = reasons.of("rule_mismatch", rule="kce#1", why=reasons.of("lists_others", listed="48", code="62"))
    with translation.override("zh-hans"):
        said = wording.say(reason)
    assert said == "规则 kce#1 不匹配：它列出 48，不含 62"


def test_the_filter_takes_what_was_kept() -> None:
    assert console.because(reasons.of("paused")) == "everything is paused"
    assert console.because({"code": "paused", "params": {}}) == "everything is paused"
    assert console.because("a sentence of old") == "a sentence of old"
