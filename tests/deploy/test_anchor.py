"""The volume of the anchor file fits the worker's pods."""

from pathlib import Path

from tests.deploy.manifests import DEPLOYMENTS, FOLDER, PODS, SETTINGS, documents, only

(CLAIM,) = documents(FOLDER / "anchor" / "volume.yaml")
PATCH = documents(FOLDER / "anchor" / "worker-patch.yaml")[0]["spec"]["template"]["spec"]


def test_the_patch_mounts_the_claim_where_the_worker_writes_the_anchor() -> None:
    container, volume = only(PATCH["containers"]), only(PATCH["volumes"])
    assert container["name"] == only(PODS["worker"]["containers"])["name"]
    assert volume["persistentVolumeClaim"]["claimName"] == CLAIM["metadata"]["name"]
    assert CLAIM["metadata"]["namespace"] == "kcover-system"
    mount, variable = only(container["volumeMounts"]), only(container["env"])
    assert mount["name"] == volume["name"]
    assert not mount.get("readOnly")
    assert variable["name"] == "KCOVER_ANCHOR"
    assert variable["name"] in SETTINGS  # the patch's value takes precedence
    assert Path(variable["value"]).parent == Path(mount["mountPath"])


def test_all_worker_pods_share_one_writable_volume() -> None:
    assert DEPLOYMENTS["worker"]["replicas"] > 1
    assert CLAIM["spec"]["accessModes"] == ["ReadWriteMany"]
    security = PODS["worker"]["securityContext"]
    assert security["fsGroup"] == security["runAsGroup"]
    names = {volume["name"] for volume in PODS["worker"]["volumes"]}
    assert only(PATCH["volumes"])["name"] not in names
