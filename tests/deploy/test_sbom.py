"""The bill of materials lists what the locks pin and what static/vendor holds, by CycloneDX's schema."""

import copy
import json
import re

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.deploy.manifests import ROOT
from tests.test_packaging import pins
from tools import sbom

DEBIAN = "pkg:deb/debian/libc6@2.36-9%2Bdeb12u13?arch=amd64"


@pytest.fixture(scope="module")
def bill():
    return sbom.bill("libc6 2.36-9+deb12u13 amd64\n")


def test_the_bill_lists_every_package_with_hashes_and_licences(bill):
    known = {one["purl"]: one for one in bill["components"]}
    expected = {f"pkg:pypi/{name}@{version}": name for name, version in pins("requirements-extras.lock").items()}
    scripts = json.loads(sbom.VENDORED.read_text())["packages"]
    npm = {f"pkg:npm/{one['name'].replace('@', '%40')}@{one['version']}": one for one in scripts if one["sha256"]}
    assert known.keys() == expected.keys() | npm.keys() | {DEBIAN}
    hashes = {
        digest["content"]
        for one in known.values()
        for reference in one["externalReferences"]
        for digest in reference["hashes"]
        if digest["alg"] == "SHA-256"
    }
    lock = (ROOT / "requirements-extras.lock").read_text()
    assert hashes == set(re.findall("--hash=sha256:([0-9a-f]{64})", lock))
    assert [purl for purl, one in known.items() if not one["licenses"]] == [DEBIAN]
    needed = pins("requirements.lock")
    for purl, name in expected.items():
        assert known[purl]["scope"] == ("required" if name in needed else "optional"), purl


def test_each_package_is_reached_from_the_portal(bill):
    edges = {one["ref"]: one["dependsOn"] for one in bill["dependencies"]}
    reached, left = set(), [bill["metadata"]["component"]["bom-ref"]]
    while left:
        ref = left.pop()
        if ref not in reached:
            reached.add(ref)
            left += edges[ref]
    assert reached == edges.keys()


def test_the_bill_obeys_the_schema_and_has_no_time_and_no_serial_number(bill):
    assert "serialNumber" not in bill
    assert "timestamp" not in bill["metadata"]
    short = copy.deepcopy(bill)
    described = [*short["components"], *short["metadata"]["tools"]["components"]]
    for reference in (reference for one in described for reference in one["externalReferences"]):
        assert reference["url"].startswith("https://")
        reference["url"] = "a:b"  # the grammar of long addresses takes a minute
    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(short))
    assert problem is None, problem
    short["components"][0]["licenses"] = [{"license": {"id": "no such licence"}}]
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(short)) is not None
