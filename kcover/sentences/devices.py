"""Single devices: their isolation by a DeviceTaintRule, and why the whole node was isolated instead."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "device_tainted": _(
        "Only device {device} is isolated (GPU {gpu}), by the DeviceTaintRule {rule}. "
        "The rest of {node} stays in service."
    ),
    "device_tainted_already": _("Someone else's DeviceTaintRule {rule} isolates device {device} of {node} already."),
    "device_node_cordoned": _("The whole node is cordoned, because no single device could be isolated. {why}"),
    "device_not_isolated": _("Nothing was isolated: the rule escalates to an operator instead. {why}"),
    # Why no single device can be isolated.
    "device_rules_missing": _("The API server has no DeviceTaintRules (resource.k8s.io)."),
    "device_rules_refused": _("The API server refused the request: {why}"),
    "device_unpublished": _("No DRA driver publishes the devices of {node} in a ResourceSlice."),
    "device_missing": _("No ResourceSlice of {node} has GPU {gpu}."),
    "device_differs": _("The ResourceSlice of {node} names another GPU for {pci}: {found}."),
    "device_split": _("GPU {gpu} has {count} devices in the ResourceSlices of {node}: {devices}."),
    "device_fault_unnamed": _("{kind} {code} does not name a GPU."),
    "device_gpus_several": _("{count} GPUs are affected, and the action isolates only one."),
    "device_gpu_unnamed": _("No open fault names a GPU."),
    # The rules that are deleted, and the end of the rescue.
    "change_device": _("taint of device {device}"),
    "device_taint_left": _("{node} still has tainted devices ({devices}). Their rules are deleted first."),
    "device_rules_foreign": _("These DeviceTaintRules are not the portal's for this node and stay: {rules}."),
    "device_rule_gone": _(
        "Somebody deleted the DeviceTaintRule {rules}: {devices} of {node} takes work again. "
        "Release the node, or isolate it again."
    ),
    "done_part_isolated": _("The plan is complete. Only {part} stays isolated. The rest of the node takes work."),
}
