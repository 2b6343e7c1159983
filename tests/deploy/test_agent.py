"""deploy/agent matches the agent, the portal and deploy/rbac.yaml; the agent runs as a single file."""

import configparser
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from agents import VERSION, config, setup
from agents.checks.host_lock import HostLock
from kcover_portal.api.agent import jwt_claims
from kcover_portal.config import env
from tests import waiting
from tests.agents import shim
from tests.deploy.manifests import documents
from tools import agent_zip

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "agent"
MANIFESTS = documents(FOLDER / "daemonset.yaml")
RBAC = documents(ROOT / "deploy" / "rbac.yaml")
VARIABLES = {name for names, _ in config.SETTINGS.values() for name in names}
INSTALLED = "/usr/lib/kcover/kcover-agent.pyz"


def one(kind):
    (found,) = [manifest for manifest in MANIFESTS if manifest["kind"] == kind]
    return found


def container():
    (found,) = one("DaemonSet")["spec"]["template"]["spec"]["containers"]
    return found


def environment():
    """What the pod's agent finds in its environment; what only the cluster knows is filled in."""
    given = dict(one("ConfigMap")["data"])
    for variable in container()["env"]:
        given[variable["name"]] = variable.get("value") or "gpu-0001"
    return given


# The DaemonSet


def test_the_pods_environment_is_settings_of_the_agent():
    given = {name: value for name, value in environment().items() if not name.startswith("NVIDIA_")}
    assert set(given) <= VARIABLES
    settings = config.load(None, given)
    assert (settings.node, settings.cluster) == ("gpu-0001", "prod")
    assert settings.reboot_command[0] == "nsenter"


def test_the_vendor_can_be_set_without_a_settings_file():
    """Its affinity invites nodes with other GPUs, too."""
    for vendor in ("metax", "amd"):
        assert config.load(None, environment() | {"KCOVER_AGENT_VENDOR": vendor}).vendor == vendor
    assert config.load(None, environment()).vendor == "nvidia"
    assert "KCOVER_AGENT_VENDOR" in one("ConfigMap")["data"]


def test_the_files_of_the_settings_are_mounted():
    settings = config.load(None, environment())
    mounts = {Path(mount["mountPath"]): mount for mount in container()["volumeMounts"]}
    assert {settings.kmsg, settings.spool, settings.token_file.parent} <= set(mounts)
    assert settings.check_lock.parent in mounts
    writable = [str(path) for path, mount in mounts.items() if not mount.get("readOnly")]
    assert writable == [str(settings.spool), str(settings.check_lock.parent), "/tmp"]
    volumes = {volume["name"] for volume in one("DaemonSet")["spec"]["template"]["spec"]["volumes"]}
    assert {mount["name"] for mount in mounts.values()} == volumes


def test_the_token_is_accepted_by_the_portal():
    spec = one("DaemonSet")["spec"]["template"]["spec"]
    (token,) = [volume["projected"] for volume in spec["volumes"] if "projected" in volume]
    (source,) = token["sources"]
    assert source["serviceAccountToken"]["audience"] == jwt_claims.AUDIENCE
    account = one("ServiceAccount")["metadata"]
    assert spec["serviceAccountName"] == account["name"]
    (variable,) = [variable for variable in env.VARIABLES if variable.name == "KCOVER_SERVICE_ACCOUNTS"]
    assert variable.read(variable.default) == [f"{account['namespace']}/{account['name']}"]
    allowed = [rule for document in RBAC if document["kind"] == "ClusterRole" for rule in document["rules"]]
    assert [rule["verbs"] for rule in allowed if rule["resources"] == ["tokenreviews"]] == [
        ["create"],
        ["create"],
    ]  # both kubeconfigs


def test_the_agent_has_no_rights_in_the_cluster():
    assert {manifest["kind"] for manifest in MANIFESTS} == {"ServiceAccount", "ConfigMap", "DaemonSet"}
    subjects = [subject for document in RBAC for subject in document.get("subjects", ())]
    assert one("ServiceAccount")["metadata"]["name"] not in {subject["name"] for subject in subjects}
    spec = one("DaemonSet")["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is one("ServiceAccount")["automountServiceAccountToken"] is False
    assert container()["securityContext"]["readOnlyRootFilesystem"] is True
    assert set(container()["resources"]) == {"requests", "limits"}


def test_all_objects_are_in_the_portals_namespace_and_labels_match():
    namespaces = {document["metadata"]["name"] for document in RBAC if document["kind"] == "Namespace"}
    assert {manifest["metadata"]["namespace"] for manifest in MANIFESTS} <= namespaces
    spec = one("DaemonSet")["spec"]
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items()


def test_the_daemonset_tolerates_every_taint():
    assert one("DaemonSet")["spec"]["template"]["spec"]["tolerations"] == [{"operator": "Exists"}]


def test_the_probe_asks_where_the_agent_answers():
    address = container()["livenessProbe"]["httpGet"]
    assert (address["host"], address["port"]) == config.Config(node="gpu-1").listen


def test_the_image_contains_the_built_agent():
    text = (FOLDER / "Dockerfile").read_text()
    assert f"COPY {agent_zip.TARGET.relative_to(ROOT)} {INSTALLED}" in text
    assert json.loads(re.search(r"^ENTRYPOINT (.+)$", text, re.MULTILINE)[1]) == ["python3", INSTALLED]
    assert container()["image"].endswith(f":{VERSION}")


def test_the_image_has_every_tool_of_debians_that_the_agent_calls():
    """They are named where a check says what to install."""
    text = (FOLDER / "Dockerfile").read_text()
    (packages,) = re.findall(r"--no-install-recommends \$\([^)]+\) ([a-z0-9 -]+) &&", text)
    wanted = {"iputils-ping", "iperf3", "chrony", "nvme-cli", "ipmitool", "ibverbs-utils", "pciutils"}
    assert set(packages.split()) == wanted
    called = "".join(path.read_text() for path in (ROOT / "agents").rglob("*.py"))
    assert {package for package in wanted if package not in called} == set()


# Before a job


PREFLIGHT = documents(FOLDER / "preflight.yaml")[0]["spec"]["template"]["spec"]


def preflight():
    (container,) = PREFLIGHT["initContainers"]
    given = {variable["name"]: variable.get("value") or "gpu-0001" for variable in container["env"]}
    return container, {name: value for name, value in given.items() if not name.startswith("NVIDIA_")}


def test_a_job_uses_the_lock_of_the_agent_and_sees_no_other_file_of_it():
    """Both know the file by the same folder of the node, and the one with the credential is not that folder."""
    before, given = preflight()
    (mount,), (volume,) = before["volumeMounts"], PREFLIGHT["volumes"]
    agents = {found["name"]: found for found in one("DaemonSet")["spec"]["template"]["spec"]["volumes"]}
    places = {found["name"]: Path(found["mountPath"]) for found in container()["volumeMounts"]}
    lock = config.load(None, environment()).check_lock
    assert config.load(None, given).check_lock == lock
    assert Path(mount["mountPath"]) == places["lock"] == lock.parent
    assert mount["readOnly"]
    assert volume["hostPath"]["path"] == agents["lock"]["hostPath"]["path"]
    assert volume["hostPath"]["path"] != agents["spool"]["hostPath"]["path"]
    assert lock.parent == setup.SHARED_FOLDER
    assert str(Path("/run", unit()["Service"]["RuntimeDirectory"])) == volume["hostPath"]["path"]
    assert unit()["Service"]["RuntimeDirectoryPreserve"] == "yes"


def test_a_manual_check_uses_the_lock_of_the_agent(tmp_path):
    """The unit's settings are not in a shell's environment."""
    plain = config.load(None, {"KCOVER_AGENT_SPOOL": str(tmp_path / "spool")})
    assert setup.check_lock(plain, shared=tmp_path) == HostLock(path=tmp_path / "checks.lock", shared=True)
    alone = setup.check_lock(plain, shared=tmp_path / "run")
    assert alone == HostLock(path=tmp_path / "spool" / "checks.lock")
    given = config.load(None, {"KCOVER_AGENT_CHECK_LOCK": "/other/lock"})
    assert setup.check_lock(given, shared=tmp_path) == HostLock(path=Path("/other/lock"), shared=True)


def test_a_job_runs_known_checks_on_its_own_gpus():
    before, given = preflight()
    verb, names = before["args"]
    assert (verb, set(given) <= VARIABLES) == ("check", True)
    settings = config.load(None, given)
    assert set(names.split(",")) <= set(setup.check_runner(settings).checks)
    assert before["image"] == container()["image"]
    (main,) = PREFLIGHT["containers"]
    assert before["resources"]["limits"]["nvidia.com/gpu"] == main["resources"]["limits"]["nvidia.com/gpu"]


def test_checks_before_a_job_wait_for_the_agents(archive, tmp_path):
    """As two processes that share one file, and nothing else."""
    driver = shim.Driver(shim.build(tmp_path), tmp_path)
    lock = tmp_path / "lock" / "checks.lock"
    settings = driver.environ | {"NODE_NAME": "gpu-1", "KCOVER_AGENT_CHECK_LOCK": str(lock)}
    ended = run(archive, "check", "remapped", environ=settings)
    assert (ended.returncode, json.loads(ended.stdout)["status"]) == (3, "error")
    lock.parent.mkdir()
    with HostLock(path=lock, shared=True).acquire(timeout=0) as mine:
        assert mine
        command = (sys.executable, "-S", "-I", str(archive), "check", "remapped")
        job = subprocess.Popen(command, env=os.environ | settings, cwd="/", stdout=subprocess.PIPE)
        files = psutil.Process(job.pid).open_files
        waiting.until(lambda: str(lock) in {file.path for file in files()}, "the job to look at the lock")
        driver.set(gpu0__rows_pending=1)  # what it finds once it may begin, and not before
    out, _ = job.communicate(timeout=60)
    assert [json.loads(line)["status"] for line in out.splitlines()] == ["fail", "pass"]


# systemd


def unit():
    found = configparser.ConfigParser(strict=False, interpolation=None)
    found.optionxform = str
    found.read(FOLDER / "kcover-agent.service")
    return found


def test_the_unit_starts_the_one_file_and_keeps_its_spool():
    service = unit()["Service"]
    assert shlex.split(service["ExecStart"]) == ["/usr/bin/python3", INSTALLED]
    assert Path("/var/lib", service["StateDirectory"]) == config.Config(node="gpu-1").spool
    assert service["RestartPreventExitStatus"] == "2"


def test_the_environment_file_names_settings_of_the_agent():
    lines = (FOLDER / "agent.env").read_text().splitlines()
    named = {match[1]: match[2] for line in lines if (match := re.fullmatch(r"#?([A-Z_]+)=(.*)", line))}
    assert set(named) <= VARIABLES
    assert {"KCOVER_AGENT_URL", "KCOVER_AGENT_TOKEN"} <= set(named)
    config.load(None, named)
    assert str(unit()["Service"]["EnvironmentFile"]) == "/etc/kcover/agent.env"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not on this machine")
def test_systemd_understands_the_unit(tmp_path):
    copy = tmp_path / "kcover-agent.service"
    copy.write_text((FOLDER / copy.name).read_text().replace("/usr/bin/python3", sys.executable))
    ended = subprocess.run(("systemd-analyze", "verify", str(copy)), capture_output=True, text=True, check=False)
    assert "kcover-agent.service" not in ended.stderr


# One file


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    path = tmp_path_factory.mktemp("dist") / "kcover-agent.pyz"
    agent_zip.build(path)
    return path


def run(archive, *arguments, environ=None):
    """With a Python that sees nothing that is installed here."""
    command = (sys.executable, "-S", "-I", str(archive), *arguments)
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, cwd="/", env=os.environ | (environ or {})
    )


def test_one_file_prints_its_version(archive):
    ended = run(archive, "--version")
    assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (0, VERSION, "")


def test_one_file_scans_a_log(archive, tmp_path):
    log = tmp_path / "kern.log"
    log.write_text("NVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen off the bus.\n")
    ended = run(archive, "scan", str(log))
    assert (ended.returncode, json.loads(ended.stdout)["code"]) == (0, 79)


def test_one_file_reads_yaml_and_refuses_invalid_settings(archive, tmp_path):
    settings = tmp_path / "agent.yaml"
    settings.write_text("url: gopher://portal\n")
    ended = run(archive, "--config", str(settings))
    assert ended.returncode == 2
    assert "url='gopher://portal': must be" in ended.stderr


def test_one_file_measures_in_a_child_process(archive, tmp_path):
    driver = shim.Driver(shim.build(tmp_path), tmp_path)
    ended = run(archive, "check", "remapped,pciebw", environ=driver.environ | {"NODE_NAME": "gpu-1"})
    assert [json.loads(line)["status"] for line in ended.stdout.splitlines()] == ["pass"] * 4, ended.stderr


def test_the_same_sources_give_the_same_file(archive, tmp_path):
    agent_zip.build(tmp_path / "again.pyz")
    assert (tmp_path / "again.pyz").read_bytes() == archive.read_bytes()
