"""The resources of deploy/crds are those that the portal reads."""

from pathlib import Path

from kcover_portal.kube import port
from tests.deploy.manifests import documents

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "crds"
FILES = {path.name: documents(path)[0] for path in FOLDER.iterdir()}


def test_each_policy_kind_has_a_custom_resource_definition() -> None:
    assert set(FILES) == {f"{kind.plural}.{kind.group}.yaml" for kind in port.POLICY_KINDS}
    for kind in port.POLICY_KINDS:
        made = FILES[f"{kind.plural}.{kind.group}.yaml"]
        spec = made["spec"]
        assert made["metadata"]["name"] == f"{kind.plural}.{kind.group}"
        assert (spec["group"], spec["names"]["kind"], spec["names"]["plural"]) == (kind.group, kind.kind, kind.plural)
        assert (spec["scope"] == "Namespaced") is kind.namespaced
        [version] = spec["versions"]
        assert (version["name"], version["served"], version["storage"]) == (kind.version, True, True)
        assert version["subresources"] == {"status": {}}
        assert set(version["schema"]["openAPIV3Schema"]["properties"]) == {"spec", "status"}
