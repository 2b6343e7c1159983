"""Saved views of lists that people share."""

from kcover.audit import subjects
from kcover.audit.base import Act


class ViewAct(Act):
    """An act on a shared view: a list with a query string, under a name."""

    listing: str
    name: str
    query: str

    @property
    def subject(self) -> str:
        return subjects.view(self.listing, self.name)


class ViewShared(ViewAct, verb="view.shared"):
    """A view was shared with everybody, or a shared view got another name."""


class ViewWithdrawn(ViewAct, verb="view.withdrawn"):
    """A shared view was deleted, or is its owner's alone again."""
