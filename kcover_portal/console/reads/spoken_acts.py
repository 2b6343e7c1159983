"""Acts on a node that somebody writes down: ``drain gpu-0040``. Each leads to the preview of the act, none acts."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.db.models.functions import Length
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from kcover_portal.accounts import queries as accounts
from kcover_portal.accounts.models import User, Verb
from kcover_portal.console import action_labels
from kcover_portal.console.reads.bulk_actions import NODE_VERBS
from kcover_portal.fleet.models import Node
from kcover_portal.rescue.control import requests

MIN_WORD = 3  # letters of an act's word that are enough
MAX_NODES = 5


@dataclass(frozen=True, slots=True)
class SpokenAct:
    """An act on one node. ``words``: what people write for it, in English and in the reader's language.

    ``whole``: the right must cover the whole cluster, as the form of the act requires.
    """

    words: tuple[str | Promise, ...]
    label: str | Promise
    icon: str
    needs: Verb
    page: Callable[[str, str], str]
    whole: bool = False


def _on_node(verb: str) -> SpokenAct:
    look = action_labels.verb(verb)
    words: tuple[str | Promise, ...] = (verb, look.label)
    if verb in ("drain", "reboot"):  # the acts by which people rescue a node
        words += ("rescue", _("Rescue"))
    right = requests.right_for(verb)
    return SpokenAct(
        words, look.label, look.icon, right, lambda *place: reverse("console:node-act", args=(*place, verb))
    )


def _by_form(words: tuple[str | Promise, ...], label: str | Promise, icon: str, needs: Verb, form: str) -> SpokenAct:
    """An act whose form begins with the node, and asks for the right in the whole cluster."""
    return SpokenAct(
        words,
        label,
        icon,
        needs,
        lambda cluster, name: f"{reverse(form)}?{urlencode({'cluster': cluster, 'host': name})}",
        whole=True,
    )


ACTS: Final = (
    *(_on_node(verb) for verb in NODE_VERBS),
    _by_form(("validate", _("Validate")), _("Validate"), "shield-check", Verb.CHECK, "console:validation-new"),
    _by_form(("check", "checks", _("Checks")), _("Run checks"), "list-check", Verb.CHECK, "console:check-run-new"),
    _by_form(
        ("maintenance", _("Maintenance")),
        _("Schedule maintenance"),
        "tool",
        Verb.MAINTAIN,
        "console:maintenance-new",
    ),
    SpokenAct(
        ("repair", _("Report a repair")),
        _("Report a repair"),
        "tool",
        Verb.HANDLE_REPAIRS,
        lambda *place: reverse("console:repair-new", args=place),
    ),
)


def said(user: User, text: str) -> Iterator[tuple[SpokenAct, str, str, bool]]:
    """The acts that the text names with a part of a node's name, where the person may do them.

    Each with cluster and name of a node, the shortest name first, and whether the text names this node and no other
    one. One query for each act that is named.
    """
    text = text.lower()
    for act in ACTS:
        rest = next((rest for word in act.words if (rest := _rest(text, str(word).lower()))), "")
        if not rest:
            continue
        rows: QuerySet[Node] = accounts.visible(
            user,
            Node.objects.filter(gone_at=None, name__icontains=rest),
            node=None if act.whole else "",
            needed=act.needs,
        )
        ordered = rows.order_by(Length("name"), "name", "cluster__name")
        found = list(ordered.values_list("cluster__name", "name")[:MAX_NODES])
        named = [place for place in found if place[1].lower() == rest]
        for cluster, name in found:
            yield act, cluster, name, named == [(cluster, name)]


def _rest(text: str, word: str) -> str:
    """What the text has beside the word, which comes first or last; "" if it has not both.

    The first letters of a word are enough. Chinese needs no space after a word.
    """
    if not word.isascii():
        rest = text.removeprefix(word) if text.startswith(word) else text.removesuffix(word)
        return rest.strip() if rest != text else ""
    first, _space, rest = text.partition(" ")
    if len(first) >= MIN_WORD and word.startswith(first):
        return rest.strip()
    rest, _space, last = text.rpartition(" ")
    return rest.strip() if len(last) >= MIN_WORD and word.startswith(last) else ""
