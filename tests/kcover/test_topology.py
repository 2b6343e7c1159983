"""Which label names a domain of a node: the cluster's, or the well-known ones in their order."""

import pytest

from kcover.nodes import topology

RACK, (TOPOGRAPH, OURS) = topology.WELL_KNOWN["rack"][0], topology.WELL_KNOWN["leaf"]


@pytest.mark.parametrize(
    ("labels", "setting", "found"),
    [
        ({}, {}, {}),
        ({RACK: "r1", TOPOGRAPH: "s1", OURS: "s2"}, {}, {"rack": "r1", "leaf": "s1"}),
        ({TOPOGRAPH: "", OURS: "s2"}, {}, {"leaf": "s2"}),
        ({RACK: "r1", "x/rack": "r2"}, {"rack": "x/rack"}, {"rack": "r2"}),
        ({RACK: "r1"}, {"rack": "x/rack"}, {}),
        ({"pool": "a", "nvidia.com/gpu.clique": "u.0"}, {"rack": ""}, {"pool": "a", "nvlink": "u.0"}),
    ],
)
def test_the_domains_of_a_node(labels: dict[str, str], setting: dict[str, str], found: dict[str, str]) -> None:
    assert topology.of_node(labels, setting) == dict.fromkeys(topology.DOMAINS, "") | found
