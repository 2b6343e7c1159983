"""end_exclusion: the portal may act on the node again. Its open faults are decided again."""

from kcover.actions.spec import ActionSpec, Stage
from kcover.sentences.i18n import gettext_noop as _

SPEC = ActionSpec(
    name="end_exclusion",
    title=_("End exclusion"),
    place=(Stage.RETURN, 2),
    ends_rescue=True,
)
