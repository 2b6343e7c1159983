"""Other names of a node's host."""

import pytest

from kcover.sources import hosts

ADDRESSES = ("10.16.0.3", "2345:425:2ca1::567:5673:23b5", "gpu-4.internal.example", "GPU-4")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("gpu-4", "gpu-4"),
        ("gpu-4:9100", "gpu-4"),
        ("GPU-4.Example.com.", "gpu-4.example.com"),
        ("10.16.0.3:9100", "10.16.0.3"),
        ("[2345:425:2CA1::567:5673:23b5]:9100", "2345:425:2ca1::567:5673:23b5"),
        ("2345:0425:2ca1:0:0:567:5673:23b5", "2345:425:2ca1::567:5673:23b5"),
        ("[fd00::1%eth0]", "fd00::1"),
        ("::ffff:10.16.0.3", "10.16.0.3"),
    ],
)
def test_the_host_in_one_spelling(value: str, expected: str) -> None:
    assert hosts.host(value) == expected


@pytest.mark.parametrize(
    ("told", "name", "expected"),
    [
        ("10.16.0.3", "gpu-4", True),
        ("2345:425:2ca1::567:5673:23b5", "gpu-4", True),
        ("10.16.0.4", "gpu-4", False),
        ("127.0.0.1", "gpu-4", False),
        ("gpu-4.internal.example", "ip-10-16-0-3", True),
        ("gpu-4.internal", "gpu-4", True),
        ("gpu-4.internal.example.net", "gpu-4", True),
        ("gpu-4.cluster.example.com", "gpu-4", False),  # the node has another domain
        ("gpu-4.monitoring", "gpu-4", False),
        ("gpu-4", "gpu-4.cluster.example.com", True),
        ("gpu-4.other.example", "gpu-4.cluster.example.com", False),
        ("gpu-40.example", "gpu-4", False),
        ("gpu-4.dcgm.svc", "gpu-4", False),
        ("gpu-4.dcgm.svc.cluster.local", "gpu-4", False),
        ("10-16-0-3.default.pod.cluster.local", "10-16-0-3", False),
        ("nvidia-dcgm-exporter-cwbcm", "gpu-4", False),
        ("10.16.0.3", "10", False),
    ],
)
def test_hosts_that_are_a_node_are_found(told: str, name: str, expected: bool) -> None:
    addresses = (*ADDRESSES, "127.0.0.1") if told != "10.16.0.3" or name != "10" else ("127.0.0.1",)
    known = hosts.Hosts([(name, [hosts.host(one) for one in addresses]), ("gpu-77.east", [])])
    assert known.find(told) == ([name] if expected else [])


def test_a_node_whose_domain_is_not_known_is_found_by_its_name() -> None:
    known = hosts.Hosts([("gpu-4", ["10.16.0.3", "gpu-4"])])
    assert known.find("gpu-4.cluster.example.com") == ["gpu-4"]


def test_nodes_of_two_sites_with_one_name_are_distinguished_by_domain() -> None:
    known = hosts.Hosts([("gpu-5", ["gpu-5.sitea.example.com", "10.0.0.5", "gpu-5"])])
    assert known.find("gpu-5.siteb.example.com") == []
    assert known.find("gpu-5.sitea.example.com") == ["gpu-5"]


def test_a_host_that_fits_several_nodes_names_all_of_them() -> None:
    known = hosts.Hosts([("gpu-5.west", ["10.0.0.5"]), ("gpu-5.east", ["10.0.0.5"]), ("gpu-6", [])])
    assert known.find("gpu-5") == known.find("10.0.0.5") == ["gpu-5.east", "gpu-5.west"]
    assert known.find("gpu-7") == []
