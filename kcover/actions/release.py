"""release: the portal lets go of the node, whatever it had done to it."""

from kcover.actions.spec import ActionSpec, Stage
from kcover.sentences.i18n import gettext_noop as _

SPEC = ActionSpec(
    name="release",
    title=_("Release"),
    place=(Stage.RETURN, 1),
    returns_node=True,
)
