"""offline: hand the empty node to another system until it calls back, and keep work away meanwhile.

It is KCE's atom "node offline": drain, taint, hand over and hand back as one action.
"""

from datetime import timedelta

from kcover.actions import attributes, webhook
from kcover.actions.spec import ActionSpec, Attributes, PolicyAction, RuleOptions, Stage
from kcover.sentences.i18n import gettext_noop as _
from kcover.values import durations

TAINT = ("kcover.io/offline", "true", "NoSchedule")  # key, value, effect: only whoever repairs the node tolerates it
DEFAULT_WAIT = timedelta(days=7)


def _plan(attribute: Attributes, _options: RuleOptions) -> webhook.Args:
    wait = durations.parse(attribute.get("waittime", "")) or DEFAULT_WAIT
    return webhook.Args(url=attribute["url"], wait_seconds=int(wait.total_seconds()))


SPEC = ActionSpec(
    name="offline",
    title=_("Take the node offline"),
    place=(Stage.REPAIR, 4),
    policy=PolicyAction(
        name="offline",
        attributes={
            "url": attributes.url,
            "waittime": attributes.wait,
            "unCordon": attributes.truth("unCordon"),
        },
        required=("url",),
        in_objects=False,  # as for a webhook
    ),
    implies=("cordon", "drain", "verify"),
    plan=_plan,
    args=webhook.Args,
    progress=webhook.Progress,
    isolates=True,
    gives_node_away=True,
    request_key="offline",
)
