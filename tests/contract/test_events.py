"""Kubernetes Events: written once, in allowed namespaces, and read."""

from datetime import UTC, datetime

from kcover_portal.kube import port

AT = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
MESSAGE = "GPU Xid error, pci:0000:4e:00, xid:79, log: GPU has fallen off the bus."


def _draft(rig, namespace="kce-rescue-system"):
    return port.EventDraft(
        name=rig.name("gpu.xid"),
        namespace=namespace,
        reason="XidError",
        message=MESSAGE,
        type="Warning",
        involved_kind="Node",
        involved_name=rig.name("gpu"),
        involved_uid="uid-1",
        at=AT,
    )


def _seen(rig, name):
    return [event for event in rig.cluster.list_events().items if event.name == name]


def test_an_event_is_written_once(rig):
    draft = _draft(rig)
    rig.cluster.emit(draft)
    rig.cluster.emit(draft)
    (event,) = _seen(rig, draft.name)
    assert (event.namespace, event.involved_namespace) == ("kce-rescue-system", "kce-rescue-system")
    assert (event.reason, event.type, event.message, event.count) == ("XidError", "Warning", MESSAGE, 1)
    assert (event.involved_kind, event.involved_name) == ("Node", draft.involved_name)
    assert (event.component, event.last_at) == ("kcover-portal", AT)


def test_an_account_that_may_create_the_namespace_creates_it(rig):
    draft = _draft(rig, rig.name("other"))
    rig.unrestricted().emit(draft)
    (event,) = _seen(rig, draft.name)
    assert event.namespace == rig.name("other")
    assert rig.read("Namespace", rig.name("other")) is not None


def test_where_it_may_not_be_written_default_takes_it(rig):
    draft = _draft(rig, rig.forbidden_namespace())
    rig.cluster.emit(draft)
    (event,) = _seen(rig, draft.name)
    assert (event.namespace, event.involved_namespace) == ("default", "default")


def test_events_of_others_are_watched(rig):
    before = rig.cluster.list_events().resource_version
    name = rig.name("theirs")
    rig.create(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": rig.namespace, "annotations": {"kcover.io/need-recovery": "true"}},
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": rig.namespace},
            "reason": "Error",
            "type": "Warning",
            "message": "container failed",
            "source": {"component": "kcover"},
            "count": 4,
            "lastTimestamp": "2026-11-21T08:00:00Z",
        }
    )
    watch = rig.cluster.watch_events(before, timeout=max(1, rig.patience / 2) if rig.patience else 0)
    (seen,) = [change for change in watch if change.event and change.event.name == name]
    assert seen.kind == "ADDED"
    assert seen.event.annotations == {"kcover.io/need-recovery": "true"}
    assert (seen.event.component, seen.event.count, seen.event.last_at) == ("kcover", 4, AT)
    assert seen.event.resource_version == seen.resource_version
