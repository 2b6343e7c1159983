"""quarantineDevice: taint one device of the node, or cordon the whole node where that is not possible.

What is isolated is chosen once and stored before the first call, with the reason. The rule's name is made from the
machine and the device, so a repeated request finds the first one. The node's mark names the rule before it is created:
whatever happens in between, whoever takes the node back deletes it.
"""

from functools import partial

from kcover import audit, reasons
from kcover.actions import quarantine_device as core
from kcover.nodes.marks import ANNOTATION, Marks
from kcover.nodes.node_stage import Stage
from kcover_portal.kube import port
from kcover_portal.kube.resource_slices import Device
from kcover_portal.rescue.step import errors
from kcover_portal.rescue.step.context import Context
from kcover_portal.rescue.step.devices import affected_gpus, device_rules, dra_device
from kcover_portal.rescue.step.marks import node_marks
from kcover_portal.rescue.step.outcomes import Done, Hold, Outcome


def run(context: Context) -> Outcome:
    """Isolates the device, or the node, as chosen by the first run."""
    if not _progress(context).isolated:
        refusal = _choose(context)
        if refusal is not None:
            return _isolate_node(context, refusal)
    progress = _progress(context)
    if progress.isolated == core.DEVICE:
        return _isolate_device(context, progress)
    assert progress.because is not None  # stored together
    return _isolate_node(context, progress.because)


def _progress(context: Context) -> core.Progress:
    return context.step.progress_as(core.Progress)


def _choose(context: Context) -> reasons.Reason | None:
    """Stores the device and its rule; returns why there is none."""
    affected = affected_gpus.find(context)
    if affected.unnamed is not None:
        return reasons.of("device_fault_unnamed", kind=affected.unnamed.kind, code=affected.unnamed.code)
    if len(affected.gpus) != 1:
        count = len(affected.gpus)
        return reasons.of("device_gpus_several", count=count) if count else reasons.of("device_gpu_unnamed")
    try:
        kind = device_rules.served(context.kube)
        if kind is None:
            return reasons.of("device_rules_missing")
        found = dra_device.find(context, affected.gpus[0])
    except port.RefusedByServer as error:
        return reasons.of("device_rules_refused", why=errors.reason_of(error))
    if isinstance(found, reasons.Reason):
        return found
    node = context.kube.get_node(context.node.name)
    context.check_machine(node)
    args = context.step.args_as(core.Args)
    context.remember(
        isolated=core.DEVICE,
        gpu=affected.gpus[0],
        device=found.name,
        driver=found.driver,
        pool=found.pool,
        rule=device_rules.name_of(node, found, effect=args.effect),
        version=kind.version,
    )
    return None


def _isolate_device(context: Context, progress: core.Progress) -> Outcome:
    kind = next(kind for kind in port.DEVICE_TAINT_RULES if kind.version == progress.version)
    args = context.step.args_as(core.Args)
    named = {"rule": progress.rule, "device": progress.device, "node": context.node.name}
    may_exist = progress.may_exist
    try:
        present = device_rules.named(context.kube, kind, {progress.rule})
        if present and not present[0].managed:
            return Done(reasons.of("device_tainted_already", **named))
        may_exist = may_exist or bool(present)
        device = Device(driver=progress.driver, pool=progress.pool, name=progress.device)
        taint = port.Taint(core.TAINT_KEY, args.value, args.effect)
        _mark(context, progress.rule, device, taint)
        if not present:
            context.note(may_exist=True)
            _taint(context, kind, progress.rule, device, taint)
    except (port.NotFound, port.RefusedByServer) as error:
        context.note(may_exist=may_exist)  # a refused request created nothing, but an earlier one may have
        return _isolate_node(context, reasons.of("device_rules_refused", why=errors.reason_of(error)))
    return Done(reasons.of("device_tainted", gpu=next(iter(progress.gpu.values())), **named))


def _mark(context: Context, rule: str, device: Device, taint: port.Taint) -> None:
    """Notes the rule in the node's mark. The node itself stays as it is."""
    planned: list[Marks] = []

    def wanted(node: port.Node) -> port.NodeChange:
        context.check_machine(node)
        node_marks.check_not_excluded(context, node)
        context.renew_if_needed()
        marks = node_marks.adopt(context, node)
        planned[:] = [marks.with_device(rule, device.name)]
        return port.NodeChange(annotations={ANNOTATION: node_marks.text_of(planned[0], node, proved=marks)})

    context.write(
        audit.Call.MARK_DEVICE,
        partial(context.kube.apply_node, context.node.name, wanted),
        wanted=_goal(rule, device, taint),
    )
    context.keep_marks(planned[0])


def _taint(context: Context, kind: port.CustomKind, rule: str, device: Device, taint: port.Taint) -> None:
    node = node_marks.expect_isolated(context)
    written = {"key": taint.key, "value": taint.value, "effect": taint.effect}
    selector = {"driver": device.driver, "pool": device.pool, "device": device.name}
    spec = {"deviceSelector": selector, "taint": written}
    context.write(
        audit.Call.TAINT_DEVICE,
        partial(context.kube.create_object, kind, rule, spec, owner=node),
        target=f"DeviceTaintRule {rule}",
        destructive=context.step.takes_away,
        wanted=_goal(rule, device, taint),
    )


def _goal(rule: str, device: Device, taint: port.Taint) -> audit.DeviceTaint:
    return audit.DeviceTaint(
        rule=rule,
        driver=device.driver,
        pool=device.pool,
        device=device.name,
        taint=f"{taint.key}={taint.value}:{taint.effect}",
    )


def _isolate_node(context: Context, because: reasons.Reason) -> Outcome:
    """Cordons the whole node, unless the rule says to ask a person."""
    if context.step.args_as(core.Args).otherwise == core.HOLD:
        return Hold(reasons.of("device_not_isolated", why=because))
    progress = _progress(context)
    if progress.isolated != core.NODE:
        context.remember(isolated=core.NODE, because=because)
    never_made = "" if progress.may_exist else progress.rule
    node_marks.change(context, audit.Call.CORDON, state=Stage.QUARANTINED, cordon=True, without_device=never_made)
    return Done(reasons.of("device_node_cordoned", why=because))
