"""Keys of the charts of kcover and Autopilot are accepted, or answered with the keys of this one."""

import re
from pathlib import Path
from typing import Any

import helm_python
import pytest
import yaml

from agents import config
from tests.deploy.chart import LEAST, Manifest, of_kind, render
from tests.deploy.manifests import ROOT

# From kcover's README.
KCOVER = {
    "vendor": 1,
    "interval": 5,
    "metaX": {
        "hcaIDs": ["mlx5_0", "mlx5_1"],
        "day2CheckHour": 10,
        "gpuNum": 8,
        "temperature": 85,
        "eccMaxCount": 64,
        "ntpMaxOffsetMillis": 10,
    },
}
PAGE = (ROOT / "docs" / "migrate" / "autopilot.md").read_text(encoding="utf-8")
SECTION = PAGE.split("### Values of Autopilot's chart")[1].split("\n## ")[0]
ROWS = re.findall(r"^\| `(.+?)` \| (.+) \|$", SECTION, re.MULTILINE)


def daemon(values: Manifest) -> tuple[Manifest, dict[str, Any]]:
    """The pod of the agent, and all ConfigMaps' data."""
    made = render(LEAST | values)
    maps = {name: one["data"] for name, one in of_kind(made, "ConfigMap").items()}
    return of_kind(made, "DaemonSet")["kcover-agent"]["spec"]["template"], maps


def file_of(pod: Manifest) -> tuple[str, str]:
    """The ConfigMap of the agent's settings file, and the file's name in it."""
    [container] = pod["spec"]["containers"]
    option, path = container["args"]
    assert option == "--config"
    [mount] = [one for one in container["volumeMounts"] if one["name"] == "config"]
    assert (mount["mountPath"], mount["readOnly"], "subPath" in mount) == (str(Path(path).parent), True, False)
    [volume] = [one for one in pod["spec"]["volumes"] if one["name"] == "config"]
    return volume["configMap"]["name"], Path(path).name


@pytest.mark.parametrize(("vendor", "name"), [(1, "nvidia"), (2, "metax")])
def test_the_agent_reads_kcovers_data_as_it_is(vendor, name, tmp_path) -> None:
    data = KCOVER | {"vendor": vendor}
    pod, maps = daemon({"agent": {"config": {"data": data}}})
    chosen, file = file_of(pod)
    (tmp_path / file).write_text(maps[chosen][file])
    read = config.load(tmp_path / file, maps["kcover-agent"] | {"NODE_NAME": "gpu-1"})
    assert (read.vendor, read.interval.total_seconds(), read.metax.gpu_count) == (name, 5, 8)
    assert read.metax.hca_ids == ("mlx5_0", "mlx5_1")
    assert read.unknown == ()


def test_changed_data_restart_the_agents() -> None:
    marks = {
        daemon({"agent": {"config": {"data": data}}})[0]["metadata"]["annotations"]["kcover.io/settings"]
        for data in ({}, KCOVER, KCOVER | {"interval": 6})
    }
    assert len(marks) == 3


def test_the_agent_reads_an_existing_config_map() -> None:
    given = {"existingConfigMap": "my-agent-config", "path": "/etc/other/agent.yml"}
    pod, maps = daemon({"agent": {"config": given}})
    assert file_of(pod) == ("my-agent-config", "agent.yml")
    assert set(maps) == {"kcover-portal", "kcover-agent"}
    assert "KCOVER_AGENT_VENDOR" not in maps["kcover-agent"]  # it would win over that of the file
    pod, maps = daemon({"agent": {"config": given, "vendor": "amd"}})
    assert maps["kcover-agent"]["KCOVER_AGENT_VENDOR"] == "amd"
    assert "args" not in daemon({})[0]["spec"]["containers"][0]


@pytest.mark.parametrize(
    ("values", "answer"),
    [
        ({"controller": {"args": ["--preflight-report-collection-timeout=30m"]}}, "preflight_within=30m"),
        ({"controller": {"args": ["--v=4"]}}, "--v=4"),
        ({"controller": {"leaderElection": {"enabled": False}}}, "features.actionLease"),
        ({"controller": {"replicas": 2}}, "worker"),
        ({"agent": {"config": {"data": KCOVER, "existingConfigMap": "x"}}}, "agent.config.existingConfigMap"),
        ({"agent": {"config": {"path": "config.yaml"}}}, "/agent/config/path"),
    ],
)
def test_a_key_of_kcovers_chart_is_answered(values, answer) -> None:
    with pytest.raises(helm_python.HelmError, match=re.escape(answer)):
        render(LEAST | values)


def test_a_registry_may_have_autopilot_in_a_folders_name() -> None:
    for repository in ("reg/gpu-autopilot/kcover-portal", "autopilot/portal", "reg/my-autopilot"):
        made = render(LEAST | {"image": {"repository": repository}})
        [web] = of_kind(made, "Deployment")["kcover-web"]["spec"]["template"]["spec"]["containers"]
        assert web["image"].startswith(f"{repository}:")
    for repository in ("quay.io/autopilot/autopilot", "autopilot"):
        with pytest.raises(helm_python.HelmError, match=r"agent\.image"):
            render(LEAST | {"image": {"repository": repository}})


def test_the_page_has_each_key_of_autopilots_chart() -> None:
    assert {key for old, _ in ROWS for key in yaml.safe_load(old)} == {
        "namespace",
        "image",
        "pullSecrets",
        "repeat",
        "PCIeBW",
        "annotations",
    }


@pytest.mark.parametrize(("old", "new"), ROWS, ids=[old.split(":")[0] for old, _ in ROWS])
def test_a_key_of_autopilots_chart_is_accepted_or_answered_with_the_one_of_the_page(old, new) -> None:
    values = LEAST | yaml.safe_load(old)
    if new == "the same":
        assert render(values)
        return
    with pytest.raises(helm_python.HelmError) as refused:
        render(values)
    assert new.strip("`") in str(refused.value)
    path, _, value = new.strip("`").partition(": ")
    if value:
        nested: Any = yaml.safe_load(value)
        for key in reversed(path.split(".")):
            nested = {key: nested}
        assert render(LEAST | nested)
