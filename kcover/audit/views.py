"""Saved views of lists that people share."""

from dataclasses import dataclass
from typing import ClassVar

from kcover.audit import subjects
from kcover.audit.base import Act, register


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewAct(Act):
    """An act on a shared view: a list with a query string, under a name."""

    listing: str
    name: str
    query: str

    @property
    def subject(self) -> str:
        """The view."""
        return subjects.view(self.listing, self.name)


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class ViewShared(ViewAct):
    """A view was shared with everybody, or a shared view got another name."""

    VERB: ClassVar[str] = "view.shared"


@register
@dataclass(frozen=True, slots=True, kw_only=True)
class ViewWithdrawn(ViewAct):
    """A shared view was deleted, or is its owner's alone again."""

    VERB: ClassVar[str] = "view.withdrawn"
