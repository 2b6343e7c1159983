"""release: the portal removes everything that it did to the node."""

from kcover.actions.spec import ActionSpec, Stage
from kcover.sentences.i18n import gettext_noop as _

SPEC = ActionSpec(
    name="release",
    title=_("Release"),
    place=(Stage.RETURN, 1),
    returns_node=True,
    ends_rescue=True,
)
