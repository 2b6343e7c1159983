"""Settings: kcover's file, the agent's own keys, the environment."""

import pathlib
import socket
from datetime import time, timedelta

import pytest

from agents import config, errors, setup


@pytest.fixture
def load(tmp_path):
    def load(text="", /, **environ):
        path = tmp_path / "config.yaml"
        path.write_text(text)
        return config.load(path, environ)

    return load


def test_defaults(load):
    plain = load(NODE_NAME="gpu-1")
    assert plain.kmsg == pathlib.Path("/dev/kmsg")
    assert plain.boot_id_file == pathlib.Path("/proc/sys/kernel/random/boot_id")
    assert (plain.heartbeat, plain.interval) == (timedelta(seconds=30), timedelta(seconds=5))
    assert plain.reboot_command == ("systemctl", "reboot")
    assert (plain.vendor, plain.metax, plain.unknown) == ("nvidia", config.MetaX(), ())


def test_names_of_the_node(load):
    assert load(NODE_NAME="new", FAST_RECOVERY_NODE_NAME="old").node == "new"
    assert load(FAST_RECOVERY_NODE_NAME="old").node == "old"
    assert load().node == socket.gethostname().lower()


def test_the_environment_wins(load):
    both = load(
        "url: http://file\nheartbeat: 7\nkmsg: /file\nnodeName: file\ntokenFile: /file",
        NODE_NAME="env",
        KCOVER_AGENT_URL="https://env:8443/base",
        KCOVER_AGENT_INTERVAL="2.5",
        KCOVER_AGENT_KMSG="/env",
        KCOVER_AGENT_TOKEN="kca_1",
        KCOVER_AGENT_REBOOT_COMMAND="sh -c 'echo \"a b\"'",
        KCOVER_AGENT_BOOT_ID="/boot",
        KCOVER_AGENT_SPOOL="/spool",
        KCOVER_AGENT_CA_FILE="/ca",
        KCOVER_AGENT_CLUSTER="c1",
    )
    assert (both.node, both.url, both.kmsg) == ("env", "https://env:8443/base", pathlib.Path("/env"))
    assert (both.heartbeat, both.token, both.token_file) == (timedelta(seconds=2.5), "kca_1", None)
    assert both.reboot_command == ("sh", "-c", 'echo "a b"')
    assert (both.boot_id_file, both.spool) == (pathlib.Path("/boot"), pathlib.Path("/spool"))
    assert (both.ca_file, both.cluster) == (pathlib.Path("/ca"), "c1")
    assert load("url: http://file\nheartbeat: 7", NODE_NAME="n").heartbeat == timedelta(seconds=7)


@pytest.mark.parametrize(("given", "vendor"), [("metax", "metax"), ("AMD", "amd"), ("1", "nvidia"), ("3", "amd")])
def test_the_vendor_by_the_environment(load, given, vendor):
    """Or a DaemonSet could not name it, which has no settings file."""
    assert load("vendor: 2", KCOVER_AGENT_VENDOR=given).vendor == vendor


def test_an_unknown_vendor_is_refused_or_replaced_by_the_default(load):
    """kcover's own key is forgiving, as kcover is."""
    assert load("vendor: 9").vendor == "nvidia"
    with pytest.raises(errors.ConfigError, match="KCOVER_AGENT_VENDOR='intel': must be one of nvidia, metax, amd"):
        load(KCOVER_AGENT_VENDOR="intel")


def test_the_token_file_is_read_at_each_use(load, tmp_path):
    path = tmp_path / "token"
    path.write_text("one\n")
    given = load(NODE_NAME="n", KCOVER_AGENT_TOKEN_FILE=str(path))
    assert given.read_token() == "one"
    path.write_text("two\n")
    assert given.read_token() == "two"


def test_an_empty_boot_id_is_no_boot(load, tmp_path):
    path = tmp_path / "boot_id"
    settings = load(KCOVER_AGENT_BOOT_ID=str(path))
    for nothing in ("", " \n"):
        path.write_text(nothing)
        with pytest.raises(OSError, match="the file is empty"):
            settings.read_boot_id()
    path.write_text("boot-1\n")
    assert settings.read_boot_id() == "boot-1"


def test_kcovers_file(load):
    given = load(
        "vendor: 2\ninterval: 9\nmetaX:\n  hcaIDs: [mlx5_0, mlx5_1]\n  day2CheckHour: 3\n  gpuNum: 4\n"
        "  temperature: 90\n  eccMaxCount: 0\n  ntpMaxOffsetMillis: 5\nlogLevel: debug\n",
        NODE_NAME="n",
    )
    assert (given.vendor, given.interval, given.unknown) == ("metax", timedelta(seconds=9), ("logLevel",))
    assert given.metax == config.MetaX(
        hca_ids=("mlx5_0", "mlx5_1"),
        day2_check_time=time(3, 0),
        gpu_count=4,
        temperature=90,
        ecc_max_count=0,
        ntp_max_offset_ms=5,
    )


def test_kcovers_values_out_of_range_are_the_defaults(load):
    given = load("vendor: 0\ninterval: -1\nmetaX: {gpuNum: -1, temperature: 0, eccMaxCount: -5, day2CheckHour: 24}\n")
    assert (given.vendor, given.interval, given.metax) == ("nvidia", timedelta(seconds=5), config.MetaX())


@pytest.mark.parametrize(
    ("text", "at"), [('"09:30"', time(9, 30)), ("21:15", time(21, 15)), ("noon", time(10, 0)), ('"25:00"', time(10, 0))]
)
def test_newer_kcovers_time_of_day(load, text, at):
    assert load(f"metaX:\n  day2CheckTime: {text}\n").metax.day2_check_time == at


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({"KCOVER_AGENT_URL": "ftp://x"}, "KCOVER_AGENT_URL"),
        ({"KCOVER_AGENT_URL": "http://user:secret@x"}, "KCOVER_AGENT_URL"),
        ({"KCOVER_AGENT_URL": "http://x:notaport"}, "KCOVER_AGENT_URL"),
        ({"KCOVER_AGENT_INTERVAL": "0"}, "KCOVER_AGENT_INTERVAL"),
        ({"KCOVER_AGENT_INTERVAL": "nan"}, "KCOVER_AGENT_INTERVAL"),
        ({"KCOVER_AGENT_INTERVAL": "30s"}, "KCOVER_AGENT_INTERVAL"),
        ({"KCOVER_AGENT_REBOOT_COMMAND": "sh -c 'open"}, "KCOVER_AGENT_REBOOT_COMMAND"),
        ({"NODE_NAME": "GPU_1"}, "NODE_NAME"),
        ({"KCOVER_AGENT_TOKEN": "a", "KCOVER_AGENT_TOKEN_FILE": "/b"}, "KCOVER_AGENT_TOKEN_FILE"),
    ],
)
def test_an_invalid_setting_is_refused_by_name(environ, name):
    with pytest.raises(errors.ConfigError, match=name):
        config.load(None, {"NODE_NAME": "n"} | environ)


@pytest.mark.parametrize("text", ["- a\n", "a: [\n", "just words"])
def test_a_file_that_is_no_mapping(load, text):
    with pytest.raises(errors.ConfigError, match="--config"):
        load(text)


def test_a_file_that_is_not_there():
    with pytest.raises(errors.ConfigError, match="--config"):
        config.load(pathlib.Path("/nonexistent"), {})


def test_probes_and_checks(load):
    plain = load(NODE_NAME="gpu-1")
    assert (plain.gpus, plain.hcas, plain.mounts, plain.peers) == (None, (), (), ())
    assert plain.checks == ("remapped", "gpupower", "pciebw", "dcgm", "ping")
    assert (plain.check_interval, plain.deep_checks, plain.deep_interval) == (
        timedelta(hours=1),
        (),
        timedelta(hours=4),
    )
    assert (plain.xid_events, plain.listen) == (True, ("127.0.0.1", 9412))
    given = load(
        "gpus: 8\nhcas: [mlx5_0, mlx5_1]\nmounts: [/data]\npeers: gpu-2,gpu-3\n"
        "checks: [remapped]\ndeepChecks: [dcgm, gpumem]\n"
        "checkInterval: 600\ndeepInterval: 7200\nxidEvents: false\nlisten: 0.0.0.0:9412\n",
        NODE_NAME="gpu-1",
        KCOVER_AGENT_MOUNTS="/a, /b",
    )
    assert (given.gpus, given.hcas, given.mounts) == (8, ("mlx5_0", "mlx5_1"), ("/a", "/b"))
    assert (given.peers, given.checks, given.deep_checks) == (("gpu-2", "gpu-3"), ("remapped",), ("dcgm", "gpumem"))
    assert (given.check_interval, given.deep_interval) == (timedelta(minutes=10), timedelta(hours=2))
    assert (given.xid_events, given.listen, given.unknown) == (False, ("0.0.0.0", 9412), ())
    assert (plain.pcie_min_gb_per_s, load("PCIeBW: 8\n").pcie_min_gb_per_s) == (4.0, 8.0)
    assert load("checks: []\n").checks == load(KCOVER_AGENT_CHECKS="none").checks == ()
    assert load(KCOVER_AGENT_LISTEN="none").listen is None
    assert load(KCOVER_AGENT_LISTEN="[::1]:80").listen == ("::1", 80)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KCOVER_AGENT_GPUS", "eight"),
        ("KCOVER_AGENT_GPUS", "-1"),
        ("KCOVER_AGENT_GPUS", "65"),
        ("KCOVER_AGENT_CHECK_INTERVAL", "hourly"),
        ("KCOVER_AGENT_DEEP_INTERVAL", "0"),
        ("KCOVER_AGENT_PCIEBW", "0"),
        ("KCOVER_AGENT_PCIEBW", "nan"),
        ("KCOVER_AGENT_XID_EVENTS", "maybe"),
        ("KCOVER_AGENT_LISTEN", "9412"),
        ("KCOVER_AGENT_LISTEN", "localhost:http"),
        ("KCOVER_AGENT_LISTEN", "localhost:70000"),
    ],
)
def test_an_invalid_probe_setting_is_refused_by_name(name, value):
    with pytest.raises(errors.ConfigError, match=name):
        config.load(None, {"NODE_NAME": "n", name: value})


def test_every_setting_is_explained():
    """The settings page lists each setting, by its variable and by its key."""
    text = (pathlib.Path(__file__).parents[2] / "docs/operations/install/settings.md").read_text()
    for variables, key in config.SETTINGS.values():
        assert f"`{variables[0]}`" in text
        assert f"`{key}`" in text


@pytest.mark.parametrize(("vendor", "expected"), [("nvidia", ()), ("metax", ("mlx5_0",))])
def test_the_adapters_of_kcovers_sample_are_expected_on_metax_nodes_only(
    vendor: str, expected: tuple[str, ...]
) -> None:
    settings = config.Config(node="gpu-1", vendor=vendor, metax=config.MetaX(hca_ids=("mlx5_0",)))
    [probe] = [one for one in setup.probes(settings, gpus=lambda: 0) if one.name == "infiniband"]
    assert probe.expected == expected
