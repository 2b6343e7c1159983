"""Nodes: reads, watches and patches."""

import pytest

from kcover_portal.kube import port
from kcover_portal.kube.verbs import list_watch, nodes

FOREIGN = {"key": "foreign", "value": "x", "effect": "NoExecute", "timeAdded": "2026-11-21T05:00:00Z"}
OURS = port.Taint("kcover.io/unhealthy", "79", "NoSchedule")


def test_version(rig):
    assert rig.cluster.version().startswith("v1.")


def test_a_node_is_read_with_the_fields_that_the_portal_uses(rig):
    name = rig.name("gpu")
    made = rig.node(name, taints=[FOREIGN])
    node = rig.cluster.get_node(name)
    assert (node.name, node.uid) == (name, made["metadata"]["uid"])
    assert (node.boot_id, node.kubelet, node.gpus, node.internal_ip) == ("boot-1", "v1.31.2", 8, "10.0.0.7")
    assert node.addresses == (name, "10.0.0.7")
    assert node.ready
    assert node.ready_since.isoformat() == "2026-11-21T06:00:00+00:00"
    assert node.conditions["Ready"] == "True"
    assert node.labels["pool"] == "a100"
    assert node.annotations == {}
    assert port.Taint("foreign", "x", "NoExecute") in node.taints
    assert not node.unschedulable


def test_a_node_that_is_not_ready_has_no_ready_since(rig):
    name = rig.name("gpu")
    rig.node(name)
    conditions = [{"type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-11-21T07:00:00Z"}]
    rig.merge("Node", name, {"status": {"conditions": conditions}}, status=True)
    node = rig.cluster.get_node(name)
    assert (node.ready, node.ready_since, node.conditions) == (False, None, {"Ready": "Unknown"})


def test_lists_are_whole_however_many_pages_they_take(rig, monkeypatch):
    monkeypatch.setattr(list_watch, "PAGE_SIZE", 2)
    names = [rig.name(f"gpu-{number}") for number in range(5)]
    for name in names:
        rig.node(name)
    listed = rig.cluster.list_nodes()
    assert [node.name for node in listed.items if node.name in names] == names
    assert listed.resource_version


def test_no_such_node(rig):
    with pytest.raises(port.NotFound):
        rig.cluster.get_node(rig.name("nobody"))
    with pytest.raises(port.NotFound):
        rig.cluster.apply_node(rig.name("nobody"), port.NodeChange(cordon=True))


def test_a_watch_returns_the_changes_since_its_version(rig):
    before = rig.cluster.list_nodes().resource_version
    name = rig.name("gpu")
    rig.node(name)
    rig.merge("Node", name, {"metadata": {"labels": {"new": "1"}}})
    rig.remove("Node", name)
    seen = _watched(rig, before, name)
    assert (seen[0].kind, seen[-1].kind) == ("ADDED", "DELETED")
    assert [event.node.labels.get("new") for event in seen if event.kind == "MODIFIED"][-1] == "1"


def test_a_watch_resumes_after_the_last_seen_version(rig):
    before = rig.cluster.list_nodes().resource_version
    name = rig.name("gpu")
    rig.node(name)
    last = _watched(rig, before, name)[-1].resource_version
    rig.merge("Node", name, {"metadata": {"labels": {"new": "1"}}})
    assert [(event.kind, event.node.labels["new"]) for event in _watched(rig, last, name)] == [("MODIFIED", "1")]


def test_a_watch_marks_how_far_it_has_come(rig):
    name, seen = rig.name("gpu"), []
    listed = rig.cluster.list_nodes().resource_version
    rig.node(name)
    for event in rig.cluster.watch_nodes(listed, timeout=rig.patience):
        if not seen:  # old servers mark nothing unless something happens while they are watched
            rig.merge("Node", name, {"metadata": {"labels": {"new": "1"}}})
        seen.append(event)
    marks = [event for event in seen if event.kind == "BOOKMARK"]
    assert marks
    assert all(event.node is None for event in marks)
    assert int(marks[-1].resource_version) >= int(seen[0].resource_version)


def _watched(rig, version, name):
    events = rig.cluster.watch_nodes(version, timeout=max(1, rig.patience / 2) if rig.patience else 0)
    return [event for event in events if event.node is not None and event.node.name == name]


# apply_node


def test_all_wanted_changes_are_one_patch_and_none_is_repeated(rig):
    name = rig.name("gpu")
    rig.node(name)
    wanted = port.NodeChange(
        cordon=True,
        labels={"kcover.io/state": "quarantined"},
        annotations={"kcover.io/rescue": "{}"},
        add_taints=(OURS,),
    )
    before, after = rig.cluster.apply_node(name, wanted)
    assert (before.unschedulable, after.unschedulable) == (False, True)
    assert after.labels["kcover.io/state"] == "quarantined"
    assert after.annotations["kcover.io/rescue"] == "{}"
    assert OURS in after.taints
    assert rig.writes() == 1
    again, same = rig.cluster.apply_node(name, wanted)
    assert again == same
    assert same.unschedulable
    assert rig.writes() == 1


def test_a_node_that_was_read_too_slowly_is_not_changed(http_rig, monkeypatch):
    name = http_rig.name("gpu")
    http_rig.node(name)
    monkeypatch.setattr(nodes, "WRITE_WITHIN_SECONDS", 0.0)
    with pytest.raises(port.Unavailable) as late:
        http_rig.cluster.apply_node(name, port.NodeChange(cordon=True))
    assert (late.value.why.code, late.value.ambiguous) == ("node_write_late", False)
    assert not http_rig.cluster.get_node(name).unschedulable


def test_removing_the_added_changes_leaves_the_rest_byte_for_byte(rig):
    name = rig.name("gpu")
    rig.node(name, taints=[FOREIGN, {"key": "bare", "effect": "NoSchedule"}])
    untouched = rig.read("Node", name)
    rig.cluster.apply_node(
        name, port.NodeChange(cordon=True, labels={"kcover.io/state": "draining"}, add_taints=(OURS,))
    )
    changed = rig.read("Node", name)
    assert {"foreign", "bare"} <= {taint["key"] for taint in untouched["spec"]["taints"]}
    assert [taint for taint in changed["spec"]["taints"] if taint["key"] != OURS.key] == untouched["spec"]["taints"]
    rig.cluster.apply_node(name, port.NodeChange(cordon=False, labels={"kcover.io/state": None}, remove_taints=(OURS,)))
    restored = rig.read("Node", name)
    assert restored["spec"] == untouched["spec"]
    assert restored["metadata"]["labels"] == untouched["metadata"]["labels"]
    assert restored["metadata"]["annotations"] == untouched["metadata"]["annotations"]


def test_a_taint_with_another_value_is_not_removed(rig):
    name = rig.name("gpu")
    rig.node(name, taints=[{"key": OURS.key, "value": "48", "effect": OURS.effect}])
    before, after = rig.cluster.apply_node(name, port.NodeChange(remove_taints=(OURS,)))
    assert before == after
    assert rig.writes() == 0


def test_adding_a_taint_sets_the_value_of_one_with_its_key_and_effect(rig):
    name = rig.name("gpu")
    rig.node(name, taints=[{"key": OURS.key, "value": "48", "effect": OURS.effect}])
    _, after = rig.cluster.apply_node(name, port.NodeChange(add_taints=(OURS,)))
    assert [taint for taint in after.taints if taint.key == OURS.key] == [OURS]


def test_a_concurrent_change_of_the_node_is_kept(rig):
    name = rig.name("gpu")
    rig.node(name)
    seen = []

    def expect(node):
        if not seen:
            rig.merge("Node", name, {"spec": {"taints": [FOREIGN]}})
        seen.append(node)

    _, after = rig.cluster.apply_node(name, port.NodeChange(add_taints=(OURS,)), expect=expect)
    assert {taint.key for taint in after.taints} >= {"foreign", OURS.key}
    assert len(seen) == 2
    assert "foreign" in {taint.key for taint in seen[1].taints}


def test_a_node_that_is_changed_at_each_attempt_is_a_conflict(rig):
    name = rig.name("gpu")
    rig.node(name)
    seen = []

    def expect(node):
        seen.append(node)
        rig.merge("Node", name, {"metadata": {"labels": {"turn": str(len(seen))}}})

    with pytest.raises(port.Conflict):
        rig.cluster.apply_node(name, port.NodeChange(cordon=True), expect=expect)
    assert not rig.cluster.get_node(name).unschedulable


def test_expect_stops_the_write(rig):
    name = rig.name("gpu")
    rig.node(name)

    class Drifted(Exception):
        pass

    def expect(node):
        raise Drifted

    with pytest.raises(Drifted):
        rig.cluster.apply_node(name, port.NodeChange(cordon=True), expect=expect)
    assert rig.writes() == 0


def test_the_wanted_end_may_depend_on_the_node(rig):
    name = rig.name("gpu")
    rig.node(name)
    _, after = rig.cluster.apply_node(name, lambda node: port.NodeChange(labels={"kcover.io/was": node.labels["pool"]}))
    assert after.labels["kcover.io/was"] == "a100"
