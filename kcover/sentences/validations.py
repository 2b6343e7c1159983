"""Validations of nodes, and the profiles that name their checks."""

from collections.abc import Mapping

from kcover.sentences.i18n import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    # Why a node did not pass.
    "validation_failures": _("Failed: {checks}."),
    "validation_errors": _("Broken or not answered: {checks}."),
    "validation_skipped": _("Skipped, which proves nothing: {checks}."),
    "validation_other_machine": _("Another machine took over the name of the node."),
    "validation_run_stopped": _("The check run {run} was stopped."),
    # Results of NCCL tests.
    "nccl_measured": _("{device}: {busbw} GB/s of bus bandwidth; the limit is {limit} GB/s."),
    "nccl_no_limit": _(
        "{device}: {busbw} GB/s of bus bandwidth. The default limits are for nodes with eight H100, H200, B200 or B300 "
        "GPUs on NVSwitch: set busbw in the profile."
    ),
    "nccl_pairs": _("{slow} of {ran} pairs stayed below {limit} GB/s."),
    "nccl_pair_undecided": _(
        "Pairs below the limit: {failed}. Too few other nodes were free to tell which node is slow."
    ),
    "nccl_no_partner": _("No other node was free for a test of a pair."),
    "nccl_too_few_gpus": _("Needs {least} GPUs; the node has {count}."),
    "nccl_after_failure": _("Not run: the node did not pass its other checks."),
    "nccl_cancelled": _("The NCCL tests were cancelled."),
    "nccl_slow": _("The NCCL tests of preflight plan {plan} found {node} slow."),
    "nccl_cleared": _("The NCCL tests of preflight plan {plan} found this node clean."),
    # The result of a probe, so without a full stop.
    "probe_before_boot": _("the agent has not reported it since the node booted"),
    # Why a profile was chosen for a node that is to be returned.
    "validation_class_program": _("A program caused the fault. Quick tests show that the hardware is not affected."),
    "validation_class_check": _("A check failed that says nothing about a part. Quick tests cover the common parts."),
    "validation_class_memory": _("GPU memory had an error. Only tests that fill the memory show that it is sound."),
    "validation_class_nvlink": _("NVLink or an NVSwitch had an error. Only tests under load use every link."),
    "validation_class_bus": _("A GPU had an error on the PCIe bus. Such errors return under load."),
    "validation_class_firmware": _("The driver or the firmware of a GPU stopped. Such faults return under load."),
    "validation_class_hardware": _("The hardware may be affected. Only tests under load show that it is sound."),
    "validation_class_returned": _("The machine comes back from a repair. New parts fail most in their first hours."),
    # Requests that are refused.
    "validations_full": _("{count} validations are open in cluster {cluster}: wait for one to finish, or cancel one."),
    "validation_node_count": _("Must name 1 to {most} nodes."),
    "validation_ended": _("Validation {validation} has ended."),
    "profile_unknown": _("Unknown profile {profile}; the profiles are {known}."),
    # Errors in a profile.
    "profile_list_expected": _("Must be a list."),
    "profile_check_unknown": _("Unknown check {check}; a profile may have {known}."),
    "profile_check_twice": _("The profile has the check {check} already."),
    "profile_requires_nothing": _("At least one check must be required."),
    "profile_only_nccl": _("At least one check must be one of an agent: NCCL tests begin after it."),
    "profile_argument_unknown": _("Unknown field; {check} has {known}."),
    "profile_limit_invalid": _("Must be a number greater than 0, not {value}."),
    "profile_probe_unknown": _("Unknown probe result {probe}; a profile may have {known}."),
}
