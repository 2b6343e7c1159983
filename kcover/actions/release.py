"""release: the portal removes everything that it did to the node."""

from dataclasses import dataclass

from kcover.actions import record
from kcover.actions.record import shown
from kcover.actions.spec import ActionSpec, Stage
from kcover.sentences.i18n import gettext_noop as _


@dataclass(frozen=True, slots=True, kw_only=True)
class Args(record.Args):
    """``taints_of``: a person wants the taint of this system removed, too (``foreign_taints``); "" for none."""

    taints_of: str = shown(_("Removes the taints of"), default="")


SPEC = ActionSpec(
    name="release",
    title=_("Release"),
    place=(Stage.RETURN, 1),
    args=Args,
    returns_node=True,
    ends_rescue=True,
)
