"""The names of actors for people: ann for ``user:ann``, rule kce#1 for ``policy:kce#1``."""

from typing import Final

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from kcover import actors

# By what an actor begins with (``kcover.actors``, and the rows that made it).
KINDS: Final[tuple[tuple[str, str | Promise], ...]] = (
    ("policy:", _("rule %(name)s")),
    ("agent:", _("agent of %(name)s")),
    (actors.TOKEN, _("token %(name)s")),
    (actors.VENDOR, _("vendor %(name)s")),
    ("rescue ", _("rescue %(name)s")),
)


def name(actor: str) -> str:
    """The name of an actor in the reader's language; one of no known kind as it is."""
    if actor == actors.SYSTEM:
        return str(_("the portal"))
    for prefix, named in KINDS:
        if actor.startswith(prefix):
            return str(named) % {"name": actor.removeprefix(prefix)}
    return actors.username(actor)
