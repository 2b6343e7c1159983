"""cordon: new pods are no longer scheduled on the node."""

from kcover.actions.spec import ActionSpec, PolicyAction, Stage
from kcover.sentences.i18n import gettext_noop as _

SPEC = ActionSpec(
    name="cordon",
    title=_("Cordon"),
    place=(Stage.KEEP_AWAY, 0),
    policy=PolicyAction(name="cordon", own=False),
    isolates=True,
)
