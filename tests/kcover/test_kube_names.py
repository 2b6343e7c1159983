"""Names of Kubernetes objects."""

import pytest

from kcover.values.kube_names import ObjectName


def test_a_name_is_read_as_it_was_written() -> None:
    name = ObjectName("kcover-jobs", "kcover-41")
    assert str(name) == "kcover-jobs/kcover-41"
    assert ObjectName.parse(str(name)) == name


def test_a_name_without_a_namespace_is_refused() -> None:
    with pytest.raises(ValueError, match="namespace/name"):
        ObjectName.parse("kcover-41")
