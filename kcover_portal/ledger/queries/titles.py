"""Finds verbs by the titles that people read, so that a search needs no column of titles in every language."""

from collections.abc import Mapping
from functools import cache
from typing import Final

from django.utils import translation

from kcover import audit
from kcover_portal.lib import localization

ENGLISH: Final = "en"  # names in scripts and in documents, whatever the reader's language


def verbs_titled(text: str) -> set[str]:
    """The verbs whose title contains the text, in the reader's language or in English, in any case."""
    wanted = text.casefold()
    languages = {ENGLISH, translation.get_language() or ENGLISH}
    return {verb for language in languages for verb, title in _titles(language).items() if wanted in title}


@cache
def _titles(language: str) -> Mapping[str, str]:
    """The case-folded title of each verb in a language."""
    with translation.override(language):
        return {verb: localization.say(act.title_of(verb)).casefold() for verb, act in audit.REGISTRY.items()}
