"""The profile of a validation by the class of the faults."""

import pytest

from kcover import reasons
from kcover.faults import catalog
from kcover.validation import fault_classes, profiles
from kcover.validation.fault_classes import SeenFault


@pytest.mark.parametrize(
    ("kind", "code", "expected"),
    [
        ("xid", "48", "memory"),
        ("xid", "94", "memory"),
        ("xid", "74", "nvlink"),
        ("xid", "149", "nvlink"),
        ("xid", "79", "bus"),
        ("xid", "119", "firmware"),
        ("xid", "62", "firmware"),
        ("xid", "54", "hardware"),
        ("xid", "99999", "hardware"),
        ("sxid", "20034", "nvlink"),
        ("sxid", "1", "nvlink"),
        ("check", "remapped", "memory"),
        ("check", "gpumem", "memory"),
        ("check", "nvlink", "nvlink"),
        ("check", "gpu_count", "bus"),
        ("check", "dcgm", "hardware"),
        ("check", "ib_port", "check"),
        ("check", "pciebw", "check"),
        ("pod", "Failed", "program"),
        ("other", "mce", "hardware"),
        ("other", "gpu_lost", "bus"),
        ("condition", "GpuUnhealthy=True/x", "hardware"),
        ("xid", "", "hardware"),
    ],
)
def test_the_class_of_a_fault(kind: str, code: str, expected: str) -> None:
    assert fault_classes.class_of(SeenFault(kind=kind, code=code)).name == expected


def test_a_fault_of_a_program_is_of_that_class_whatever_its_code() -> None:
    assert fault_classes.class_of(SeenFault(kind="xid", code="31", by_program=True)) is fault_classes.PROGRAM
    assert fault_classes.class_of(SeenFault(kind="check", code="dcgm", by_program=True)) is fault_classes.PROGRAM


def test_every_class_has_a_profile_and_a_reason() -> None:
    for one in fault_classes.CLASSES:
        assert one.profile in profiles.DEFAULTS
        assert str(reasons.of(one.because))
    assert set(fault_classes.STRICTEST_LAST) == set(profiles.DEFAULTS)
    assert len({one.name for one in fault_classes.CLASSES}) == len(fault_classes.CLASSES)


def test_every_category_of_the_table_is_in_the_catalog() -> None:
    known = {entry.category for entry in catalog.entries("xid").values()}
    assert fault_classes.BY_CATEGORY.keys() <= known


@pytest.mark.parametrize(
    ("seen", "returned", "expected"),
    [
        ((), False, ("full", "hardware")),
        ((SeenFault(kind="pod", code="x"),), False, ("light", "program")),
        ((SeenFault(kind="pod", code="x"), SeenFault(kind="xid", code="48")), False, ("full", "memory")),
        ((SeenFault(kind="xid", code="48"), SeenFault(kind="pod", code="x")), False, ("full", "memory")),
        ((SeenFault(kind="xid", code="79"), SeenFault(kind="xid", code="48")), False, ("full", "bus")),
        ((SeenFault(kind="pod", code="x"),), True, ("burn-in", "returned")),
        ((), True, ("burn-in", "returned")),
    ],
)
def test_the_strictest_profile_is_chosen(
    seen: tuple[SeenFault, ...], returned: bool, expected: tuple[str, str]
) -> None:
    profile, name = expected
    because = reasons.of(f"validation_class_{name}")
    assert fault_classes.choose(seen, returned=returned) == fault_classes.Choice(profile, because)
