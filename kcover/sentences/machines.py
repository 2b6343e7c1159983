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
    "driver_address_ipmi": _("Write the address of an IPMI controller as ipmi://HOST or ipmi://HOST:PORT."),
    "driver_address_query": _("The address of a controller has no ? and no #."),
    "driver_hosts_missing": _(
        "Give the hosts that the annotation {annotation} may name, because others than admins can change it."
    ),
    "driver_table": _('Must have 1 to {most} lines, each with the name of a node and its address, such as "gpu-1 …".'),
    "driver_table_row": _("The address of {node} is invalid. Drivers of its kind take {form}, without a password."),
    "driver_credential_invalid": _("At most {most} printable characters; a user name has no colon."),
    "driver_ipmi_credential": _("IPMI allows at most {most} bytes."),
    # Which controller a node has.
    "driver_node_unlisted": _("The driver's table does not list {node}."),
    "driver_node_invalid": _("{node} is not the name of a Kubernetes node. No address is made of it."),
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
    "machine_uuid_shared": _(
        "{node} and {other} of cluster {cluster} state the same machine ({uuid}), so it is not known whose it is."
    ),
    "machine_shared_elsewhere": _(
        "{node} and a node of another cluster state the same machine ({uuid}), so it is not known whose it is."
    ),
    "machine_restated": _(
        "{node} has changed which machine it states ({identity}), so it is not known whose it is."
        " Check the node, then run manage.py driver confirm {driver} --node {node}."
    ),
    "machine_not_seen": _("The portal has not seen yet what {node} states now. Try again in a moment."),
    "machine_not_named": _("{node} now states {identity}, which --machine does not name."),
    # Redfish.
    "redfish_malformed": _("{host} gave an answer that is not Redfish: {path}"),
    "redfish_systems": _("{host} has {count} systems. Name one with the setting {setting}."),
    "redfish_system_missing": _("{host} has no system {system}."),
    "redfish_reset_missing": _("{host} does not accept the request {kind}."),
    # IPMI
    "ipmi_credentials": _("{host} refused the user name or the password: {error}"),
    "ipmi_malformed": _("{host} gave an answer that is not IPMI 2.0: {error}"),
    "ipmi_another_machine": _(
        "{host} is another machine than before: its system GUID is {uuid}. Nothing was switched."
    ),
    "ipmi_answered": _("{host} answered with completion code {code}."),
    # powerCycle
    "not_drained_no_power_cycle": _("The machine was not switched off: the drain did not finish."),
    "power_cycle_next": _("The plan continues with a power cycle."),
    "replace_next": _("The plan continues by replacing the machine."),
    "offline_next": _("The plan continues by taking the node offline."),
    "repair_next": _("The plan continues with a repair."),
    # NVSentinel, Cluster API and Karpenter
    "driver_address_unused": _("Drivers of kind {kind} have no address. Leave it out."),
    "driver_credential_unused": _("Drivers of kind {kind} have no user name and no password. Leave them out."),
    "driver_cluster_unknown": _("The portal has no cluster {cluster}."),
    "driver_version": _("Must be one of: {known}."),
    "janitor_accepted": _("{host} took the request."),
    "janitor_missing": _("{host} is not installed: the cluster has no {kind} objects."),
    "janitor_object_differs": _("{host} has an object {object} for another node."),
    "janitor_reset_failed": _("{host} reports phase {phase}."),
    "janitor_reset_done": _("{host} reset the GPU."),
    "janitor_gpu_unnamed": _("The GPU has no UUID and no PCI address that {host} accepts."),
    # replace
    "not_drained_not_replaced": _("The machine was not replaced: the drain did not finish."),
    "machine_replacer_missing": _(
        "Cluster {cluster} has no driver that replaces {node}. Add one with manage.py driver (clusterapi, karpenter)."
    ),
    "machine_provider_id_missing": _("{node} has no providerID, so its machine cannot be identified."),
    "machine_objects_found": _("{count} objects {kind} have the providerID {provider}. There must be exactly one."),
    "machine_object_of_another": _("{kind} {object} has the providerID of {node}, but names the node {other}."),
    "machine_object_uuid": _(
        "{kind} {object} has the system UUID {uuid}, and {node} has {expected}. Nothing was deleted."
    ),
    "machine_object_without_owner": _(
        "{kind} {object} has no owner, so nothing would replace it. Put it into a MachineDeployment."
    ),
    "replacement_requested": _("Replacement requested: {kind} {object} is deleted. Waiting until {node} has gone."),
    "replacement_refused": _("The replacement was refused: {why}"),
    "replacement_unclear": _(
        "The deletion of {kind} {object} may not have arrived: it still exists. Check it, then retry the step."
    ),
    "replacement_timeout": _("{node} is still there {limit} after its replacement was requested ({kind} {object})."),
    "machine_replaced": _("{node} has gone: its machine was replaced ({kind} {object})."),
    # offline and repair
    "not_drained_not_offline": _("The node was not handed over: the drain did not finish."),
    "not_drained_no_repair": _("No repair was opened: the drain did not finish."),
    "repair_numbered": _("repair {repair}"),
    "repair_open": _("Repair {repair} is {state}. Waiting until a passed validation closes it."),
    "repair_done": _("Repair {repair} is closed: the machine passed its validation."),
    "repair_deleted": _("Repair {repair} does not exist any more."),
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
    "machine_on_requested": _("Switch-on requested from {host}. Waiting for the node to come back."),
    "machine_on_refused": _("{host} did not switch the machine on: {why}"),
    "machine_cycle_requested": _("Power cycle requested from {host}. Waiting for the node to come back."),
    "machine_cycle_refused": _("{host} did not accept the request for a power cycle: {why}"),
    "machine_cycle_timeout": _(
        "The power cycle through {host} was not confirmed within {limit}. Check the machine, for example over its BMC."
    ),
    "power_cycle_timeout": _(
        "The machine was switched off and on through {host}, but no reboot was detected within "
        "{limit}. Check its console."
    ),
}
