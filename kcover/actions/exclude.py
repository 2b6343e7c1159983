"""exclude: the portal leaves the node alone until a person ends the exclusion. What it did before stays."""

from kcover.actions.spec import ActionSpec, Stage
from kcover.sentences.i18n import gettext_noop as _

SPEC = ActionSpec(
    name="exclude",
    title=_("Exclude"),
    place=(Stage.HAND_OVER, 1),
    ends_rescue=True,
)
