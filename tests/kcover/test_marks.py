"""Of the marks on a node, which its kubelet may write, only what the portal's own records state counts."""

from hypothesis import given, strategies as st

from kcover.decisions import standby
from kcover.nodes import marks
from kcover.values.kube_names import is_fixed_label

OWN = ("kcover.io/unhealthy",)
taints = st.lists(st.tuples(st.sampled_from(["a", "b", *OWN]), st.sampled_from(["", "x"]), st.just("NoSchedule")))
keys = st.sampled_from([marks.STATE_LABEL, "team", "node-role.kubernetes.io/x", "node-restriction.kubernetes.io/pool"])
values = st.sampled_from(["yes", "no"])
labels = st.dictionaries(keys, values | st.none())
any_marks = st.builds(
    marks.Marks,
    rescue=st.just(1),
    cordon=st.booleans(),
    foreign_cordon=st.booleans(),
    taints=taints.map(tuple),
    labels=labels,
    given=st.dictionaries(keys, values),
)
any_standby_mark = st.builds(
    standby.StandbyMark,
    assignment=st.just(1),
    rescue=st.just(1),
    origin=st.just("gpu-1"),
    active=st.booleans(),
    uncordoned=st.booleans(),
    before=labels,
    after=labels,
    added=taints.map(tuple),
    dropped=taints.map(tuple),
)


@given(shown=any_marks, known=st.lists(any_marks, max_size=2))
def test_a_mark_only_narrows_what_the_records_state(shown: marks.Marks, known: list[marks.Marks]) -> None:
    proved = shown.proved(known, own_taints=OWN)
    stated = {taint for record in known for taint in record.taints}
    assert set(proved.taints) <= set(shown.taints)
    assert {*proved.taints} == {taint for taint in shown.taints if taint in stated or taint[0] in OWN}
    assert proved.cordon <= shown.cordon
    assert not (proved.cordon and any(record.foreign_cordon for record in known))
    for key, before in proved.labels.items():
        assert key in shown.labels
        assert key == marks.STATE_LABEL or before in [
            record.labels.get(key) for record in known if key in record.labels
        ]
        assert not is_fixed_label(key)
    for key, value in proved.given.items():
        stated_values = [record.given[key] for record in known if key in record.given]
        assert value == (shown.given[key] if shown.given.get(key) in stated_values else stated_values[-1])
    assert proved.proved(known, own_taints=OWN) == proved


@given(record=any_marks, marks_now=any_marks)
def test_what_a_record_states_proves_the_same_marks(record: marks.Marks, marks_now: marks.Marks) -> None:
    assert record.stated_by(record)
    if marks_now.stated_by(record):
        proved = marks_now.proved([record], own_taints=())
        assert (proved.taints, proved.foreign_cordon) == (marks_now.taints, record.foreign_cordon)
        assert all(proved.given[key] == marks_now.given.get(key, proved.given[key]) for key in proved.given)


@given(record=any_marks)
def test_what_one_record_states_is_taken_back_whole(record: marks.Marks) -> None:
    proved = record.proved([record], own_taints=OWN)
    assert proved.taints == record.taints
    assert proved.labels == {key: value for key, value in record.labels.items() if not is_fixed_label(key)}


@given(shown=any_marks, known=st.lists(any_marks, max_size=2), here=st.dictionaries(keys, values))
def test_what_no_record_states_is_still_named(
    shown: marks.Marks, known: list[marks.Marks], here: dict[str, str]
) -> None:
    proved = shown.proved(known, own_taints=OWN)
    left = shown.unproved(proved, labels=here, taints=shown.taints)
    assert {*left.taints} == {*shown.taints} - {*proved.taints}
    assert left.labels.keys() == shown.labels_to_restore(here).keys() - proved.labels.keys()
    assert (left.cordon, left.foreign_cordon, left.devices) == (False, False, ())
    gone = shown.unproved(proved, labels={key: value for key, value in shown.labels.items() if value}, taints=())
    assert (gone.taints, gone.labels) == ((), {})


@given(shown=any_standby_mark, known=st.lists(any_standby_mark, max_size=2))
def test_the_mark_of_a_standby_only_narrows_too(shown: standby.StandbyMark, known: list[standby.StandbyMark]) -> None:
    proved = shown.proved(known)
    assert {*proved.added} <= {taint for record in known for taint in record.added}
    assert {*proved.dropped} <= {taint for record in known for taint in record.dropped}
    assert proved.active <= any(record.active for record in known)
    assert proved.uncordoned <= any(record.uncordoned for record in known)
    for key, after in proved.after.items():
        pairs = [(record.before.get(key), record.after[key]) for record in known if key in record.after]
        assert key == marks.STATE_LABEL or (proved.before[key], after) in pairs
        assert not is_fixed_label(key)
