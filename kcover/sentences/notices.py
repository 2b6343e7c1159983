"""The texts of notifications about an event, after its title."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "need_withdrawn": _("{name} was deleted or switched off."),
    "quoted_text": _("{text}"),  # what a person, a rule or a program wrote
    "acted": _("by {by}"),
    "acted_because": _("{by}: {why}"),
    "answer_until": _("An answer counts until {until}."),
    "still_unanswered": _("The request is still unanswered and expires at {until}."),
}
