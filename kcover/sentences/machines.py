"""Machines and their controllers: settings of drivers, calls to controllers, and the power cycle."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    # A driver and its settings. Shown beside a field.
    "driver_exists": _("A driver named {driver} exists already."),
    "driver_name_invalid": _(
        "A driver's name has 1 to 63 lower-case letters, digits and '-', and begins and ends with a letter or digit."
    ),
    "driver_setting_unknown": _("Drivers of kind {kind} have no setting {name}. They have: {known}."),
    "driver_address_missing": _("Give an address with {place} in it, or a table of nodes and addresses."),
    "driver_receiver_missing": _("Give the address of the system that receives the requests."),
    "driver_username_unused": _("Drivers of kind {kind} have no user name. Leave it out."),
    "driver_secret_short": _("Give the secret that signs the requests, of at least {least} characters."),
    "driver_address_plain": _("Use https. Plain http sends the password unencrypted; the setting insecure allows it."),
    "driver_address_query": _("The address of a controller has no ? and no #."),
    "driver_hosts_missing": _(
        "Give the hosts that the annotation {annotation} may name, because others than admins can change it."
    ),
    "driver_table": _('Must have 1 to {most} lines, each with the name of a node and its address, such as "gpu-1 …".'),
    "driver_table_row": _("The address of {node} is not an HTTP address without a password."),
    "driver_credential_invalid": _("At most {most} printable characters; a user name has no colon."),
    # Which controller a node has.
    "driver_node_unlisted": _("The driver's table does not list {node}."),
    "driver_annotation_missing": _("{node} has no annotation {annotation}."),
    "driver_host_refused": _("The annotation of {node} names {host}, which the driver's setting hosts does not allow."),
    "machine_driver_missing": _("Cluster {cluster} has no machine driver for {node}. Add one with manage.py driver."),
    "machine_driver_changed": _(
        "The machine driver was changed: the request was made through {driver} at {host}. Check the machine."
    ),
    "machine_uuid_unknown": _(
        "{host} is not proved to control {node}: the UUID of the machine is unknown. "
        "Compare the serial numbers, then set {setting}=false."
    ),
    "machine_uuid_differs": _(
        "{host} controls another machine than {node}: it reports UUID {uuid}, and the node has {expected}."
    ),
    # Redfish.
    "redfish_malformed": _("{host} gave an answer that is not Redfish: {path}"),
    "redfish_systems": _("{host} has {count} systems. Name one with the setting {setting}."),
    "redfish_system_missing": _("{host} has no system {system}."),
    "redfish_reset_missing": _("{host} does not accept the request {kind}."),
    # powerCycle
    "not_drained_no_power_cycle": _("The machine was not switched off: the drain did not finish."),
    "power_cycle_next": _("The plan continues with a power cycle."),
    "machine_power_unknown": _("{host} does not say whether the machine is on or off."),
    "machine_found_off": _(
        "{host} says that the machine is off, and the portal did not switch it off. "
        "If nobody works on it, retry the step to switch it on."
    ),
    "machine_off_requested": _("Switch-off requested from {host}. Waiting until the machine is off."),
    "machine_off_refused": _("{host} did not switch the machine off: {why}"),
    "machine_off_unclear": _(
        "{host} may not have switched the machine off. The machine is on, and the node reports the old boot. "
        "Check the machine, then retry the step."
    ),
    "machine_still_on": _("{host} accepted the request to switch the machine off, but the machine is still on."),
    "machine_off": _("The machine is off."),
    "machine_on_requested": _("Switch-on requested from {host}. Waiting for a new boot ID."),
    "machine_on_refused": _("{host} did not switch the machine on: {why}"),
    "machine_cycle_requested": _("Power cycle requested from {host}. Waiting for a new boot ID."),
    "machine_cycle_refused": _("{host} did not accept the request for a power cycle: {why}"),
    "machine_cycle_timeout": _(
        "A power cycle was requested from {host}, but no new boot was reported within {limit}. Check the machine."
    ),
    "power_cycle_timeout": _(
        "The machine was switched off and on through {host}, but no new boot was reported within {limit}. "
        "Check the machine."
    ),
}
