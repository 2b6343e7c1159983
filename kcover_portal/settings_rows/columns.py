"""The settings of a row: for each its name, its limits, and the words with which the console asks for it.

A door decides how a value looks there: a line of a form, a field of a JSON body, an option of a command.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.functional import Promise

from kcover import reasons

Words = str | Promise
WordsOfKind = Words | Callable[[str], Words]  # the same for all kinds of rows, or how to get them for a kind


@dataclass(frozen=True, kw_only=True)
class Column:
    """A setting. ``stored``: the field of the model, where it has another name than the setting.

    ``label`` and ``hint`` are the console's words, ``help`` is REST's, ``option`` the management command's. ``kinds``:
    the kinds of rows whose form asks for it; None: all. ``required``: a new row must have it, which a form says before
    the service does. ``initial``: the value of a new row.
    """

    name: str
    stored: str = ""
    label: WordsOfKind = ""
    hint: WordsOfKind = ""
    help: str = ""
    option: str = ""
    kinds: Collection[str] | None = None
    required: bool | Callable[[str], bool] = False
    initial: Any = None

    @property
    def field(self) -> str:
        """The field of the model."""
        return self.stored or self.name

    def is_of(self, kind: str) -> bool:
        """Returns whether rows of this kind have it."""
        return self.kinds is None or kind in self.kinds

    def label_of(self, kind: str) -> Words:
        """What a form calls it."""
        return self.label(kind) if callable(self.label) else self.label

    def hint_of(self, kind: str) -> Words:
        """What a form says about it."""
        return self.hint(kind) if callable(self.hint) else self.hint

    def is_required(self, kind: str) -> bool:
        """Returns whether a new row must have it."""
        return self.required(kind) if callable(self.required) else self.required

    def problem(self, value: Any) -> reasons.Reason | None:
        """Returns why a row may not have the value."""
        return None


@dataclass(frozen=True, kw_only=True)
class Text(Column):
    """A line of text of at most ``most`` characters.

    ``blank``: REST takes "". ``kept``: a blank line in a form keeps the present value, because the form does not show
    it.
    """

    most: int
    blank: bool = True
    kept: bool = False

    def problem(self, value: str) -> reasons.Reason | None:
        return reasons.of("text_too_long", most=self.most) if len(value) > self.most else None


@dataclass(frozen=True, kw_only=True)
class Secret(Text):
    """A text that no door shows again."""

    kept: bool = True


@dataclass(frozen=True, kw_only=True)
class Flag(Column):
    """Yes or no. ``optional``: a form may leave it out."""

    optional: bool = False


@dataclass(frozen=True, kw_only=True)
class Number(Column):
    """A whole number from 0 to ``most``. ``null``: it may also be none. ``outside``: what to say about another one."""

    most: int
    null: bool = False
    outside: Callable[[int], reasons.Reason] = lambda most: reasons.of("seconds_out_of_range", most=most)

    def problem(self, value: int | None) -> reasons.Reason | None:
        fits = self.null if value is None else 0 <= value <= self.most
        return None if fits else self.outside(self.most)


@dataclass(frozen=True, kw_only=True)
class Choice(Column):
    """One of some values, each with its label."""

    choices: Sequence[tuple[str, Words]]


@dataclass(frozen=True, kw_only=True)
class Several(Column):
    """At least one of some values, each with its label; at most ``most``."""

    choices: Sequence[tuple[str, Words]]
    most: int


@dataclass(frozen=True, kw_only=True)
class Recipients(Column):
    """Addresses of e-mail, at most ``most``."""

    most: int


@dataclass(frozen=True, kw_only=True)
class Person(Column):
    """A user, or nobody."""


@dataclass(frozen=True, kw_only=True)
class Pairs(Column):
    """Keys with values of any JSON type. Those that are not given stay, null removes one.

    ``keys``: which a kind of rows has.
    """

    keys: Callable[[str], Collection[str]]


@dataclass(frozen=True, kw_only=True)
class Options(Column):
    """Keys with texts, all given at once. ``parts``: which a kind of rows has, as columns of their own."""

    parts: Callable[[str], Sequence[Text]]
