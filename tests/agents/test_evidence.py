"""Evidence on a node: collected within its time, whatever its tools do, and uploaded until the portal has it."""

import gzip
import hashlib
import os
import subprocess
import sys
import threading
import time
import urllib.parse
import uuid
from datetime import UTC, datetime, timedelta

import pytest

from agents.checks.check_runner import CheckRunner
from agents.commands import executor
from agents.commands.journal import Journal
from agents.evidence import captures, collector, parts
from agents.evidence.collector import Collector
from agents.evidence.parts import Tool
from agents.host.store import MemoryStore
from agents.outbox.evidence_files import CHUNK_BYTES, MAX_AGE_SECONDS, MAX_FILES, EvidenceFiles
from agents.uplink.http import HttpUplink
from kcover.evidence import bundle
from kcover.faults.fault import Command

pytestmark = pytest.mark.real_clock("the kernel gives files their times")
NAME = uuid.UUID("0b1c2d3e-0000-4000-8000-000000000001")
NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


def tool(*command, seconds=10.0, max_bytes=1 << 16):
    return Tool(command=command, install=f"the package {command[0]}", seconds=seconds, max_bytes=max_bytes)


class Node:
    def __init__(self, folder):
        self.folder = folder / "evidence"
        self.log = folder / "kern.log"
        self.log.write_text("NVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen off the bus.\n")

    def collect(self, *tools, seconds=10.0):
        made = Collector(self.folder, kernel_log=self.log, boot_id=lambda: "boot-1", tools=tools, seconds=seconds)
        collected = made.collect(NAME)
        text = gzip.decompress(collected.path.read_bytes()).decode()
        return collected, text, {section.name: section for section in collected.sections}


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


# ----------------------------------------------------------------------------------------------------------- collect


def test_a_bundle_holds_the_log_the_tools_and_the_versions(node, tools):
    tools.say("lspci", "4e:00.0 3D controller\npassword=hunter2\n")
    collected, text, sections = node.collect(tool("lspci", "-nnvv"))
    assert "===== lspci -nnvv (ok" in text
    assert "4e:00.0 3D controller\npassword=[removed: password]\n" in text
    assert "GPU has fallen off the bus." in text
    assert "boot id: boot-1" in text
    assert [section.status for section in sections.values()] == ["ok", "ok", "ok"]
    assert collected.sha256 == hashlib.sha256(collected.path.read_bytes()).hexdigest()
    assert collected.output()["size"] == collected.path.stat().st_size
    assert [path.name for path in node.folder.iterdir()] == [f"{NAME}.gz"]


def test_a_missing_tool_is_named_and_does_not_stop_the_collection(node, tools):
    _, text, sections = node.collect(tool("dcgmi", "health", "-c"))
    assert sections["dcgmi health -c"].status == "missing"
    assert "install the package dcgmi" in text
    assert sections["kernel log"].status == "ok"


def test_the_output_of_a_failing_tool_is_kept(node, tools):
    tools.say("nvidia-smi", "Unable to determine the device handle for GPU 0000:4E:00.0\n", status=9)
    _, text, sections = node.collect(tool("nvidia-smi", "-q"))
    assert (sections["nvidia-smi -q"].status, sections["nvidia-smi -q"].note) == ("failed", "exit status 9")
    assert "Unable to determine" in text


def test_a_tool_that_hangs_is_killed_and_delays_no_other(node, tools):
    tools.add("nvidia-smi", "echo begun; exec sleep 600")
    tools.say("lspci", "4e:00.0\n")
    _, text, sections = node.collect(tool("nvidia-smi", "-q", seconds=0.3), tool("lspci"))
    assert sections["nvidia-smi -q"].status == "late"
    assert sections["lspci"].status == "ok"
    assert "begun" in text


def test_the_whole_has_a_limit(node, tools):
    tools.add("ipmitool", "exec sleep 600")
    _, _, sections = node.collect(tool("ipmitool", "sel", seconds=600), seconds=0.3)
    assert sections["ipmitool sel"].status == "late"


def test_a_child_that_keeps_the_output_open_is_killed_too(node, tools):
    tools.add("dcgmi", "sleep 600 & echo done")
    _, text, sections = node.collect(tool("dcgmi", seconds=0.3))
    assert sections["dcgmi"].status == "late"
    assert "done" in text


def test_output_is_cut_at_its_bound(node, tools):
    tools.add("lspci", "yes 4e:00.0 | head -c 500000")
    _, _, sections = node.collect(tool("lspci", max_bytes=1000))
    assert (sections["lspci"].status, sections["lspci"].bytes) == ("ok", 1000)
    assert "1000 bytes" in sections["lspci"].note


def test_a_log_that_cannot_be_read_is_named(node, tools):
    node.log.unlink()
    _, _, sections = node.collect()
    assert sections["kernel log"].status == "missing"


def test_the_end_of_a_long_log_is_kept(node, tools, monkeypatch):
    monkeypatch.setattr(parts, "KERNEL_LOG_BYTES", 1000)
    node.log.write_text("".join(f"line {number}\n" for number in range(10_000)))
    _, text, sections = node.collect()
    assert "line 9999" in text
    assert "line 0\n" not in text
    assert sections["kernel log"].bytes == 1000


def test_records_of_the_device_read_like_dmesg(tmp_path):
    path, target = tmp_path / "kmsg", tmp_path / "copy"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    os.write(writer, b"4,7,5678000,-;NVRM: Xid\n SUBSYSTEM=pci\n")
    handle = os.open(target, os.O_WRONLY | os.O_CREAT)
    parts.kernel_log(path, handle)
    os.close(writer)
    assert target.read_text() == "[    5.678000] NVRM: Xid\n SUBSYSTEM=pci\n"


def test_files_of_an_interrupted_collection_are_removed(node):
    node.folder.mkdir()
    (node.folder / "a.tmp").touch()
    (node.folder / "a.part").mkdir()
    (node.folder / "a.part" / "0").touch()
    (node.folder / f"{NAME}.gz").touch()
    collector.clear(node.folder)
    assert [path.name for path in node.folder.iterdir()] == [f"{NAME}.gz"]


def test_the_shipped_limits_fit_into_a_bundle_and_its_time():
    assert sum(one.max_bytes for one in parts.TOOLS) + parts.KERNEL_LOG_BYTES <= bundle.MAX_BYTES
    assert max(one.seconds for one in parts.TOOLS) <= collector.COLLECT_SECONDS < 20


def test_a_file_that_cannot_be_written_leaves_no_program_running(tmp_path, tools):
    tools.add("first", f"echo $$ > {tmp_path}/pid; exec sleep 600")
    with pytest.raises(FileNotFoundError):
        captures.run(
            [(tool("first"), tmp_path / "a"), (tool("second"), tmp_path / "missing" / "b")],
            until=time.monotonic() + 600,
        )


# -------------------------------------------------------------------------------------------------------- the command


def host(evidence):
    return executor.HostExecutor(
        reboot_command=("true",), checks=CheckRunner((), gpu_users=lambda: ()), gpu_users=lambda: (), evidence=evidence
    )


def test_the_command_names_its_bundle():
    asked = []
    outcome = host(lambda name: asked.append(name) or {"size": 7}).collect_evidence({"bundle": str(NAME)})
    assert (outcome.status, outcome.output, asked) == ("done", {"size": 7}, [NAME])


@pytest.mark.parametrize("args", [{}, {"bundle": "../../etc/passwd"}, {"bundle": 7}])
def test_a_bundle_without_a_proper_name_is_refused(args):
    assert host(lambda name: {}).collect_evidence(args).status == "refused"


def test_a_full_disk_is_a_failure():
    def full(name):
        raise OSError(28, "No space left on device")

    assert host(full).collect_evidence({"bundle": str(NAME)}).status == "failed"


def test_a_reset_waits_until_no_tool_uses_the_gpus(tools):
    tools.say("nvidia-smi", "reset\n")
    begun, goes_on, order = threading.Event(), threading.Event(), []

    def slow(name):
        begun.set()
        assert goes_on.wait(60)
        order.append("collected")
        return {}

    made = host(slow)
    collecting = threading.Thread(target=made.collect_evidence, args=({"bundle": str(NAME)},))
    collecting.start()
    assert begun.wait(60)
    resetting = threading.Thread(target=lambda: order.append(made.reset_gpu({"gpu_uuid": "GPU-12345678"}).status))
    resetting.start()
    goes_on.set()
    collecting.join(60)
    resetting.join(60)
    assert order[0] == "collected"
    assert len(order) == 2


def test_an_evidence_command_is_for_one_boot_only():
    journal = Journal(MemoryStore(), host(lambda name: {}))
    args = {"bundle": str(NAME), "boot_id": "boot-1"}
    command = Command(id="c1", kind=bundle.COMMAND, args=args, created_at=NOW, expires_at=NOW + timedelta(minutes=5))
    journal.offer([command])
    journal.execute(clock=lambda: NOW, boot_id="boot-2")
    (result,) = journal.results(now=NOW, boot_id="boot-2")
    assert result.status == "refused"


# ------------------------------------------------------------------------------------------------------------- upload


class Outbox:
    """The bundles of an agent, and the bytes that the portal stored."""

    def __init__(self, folder, portal):
        self.folder, self.portal, self.now = folder, portal, datetime.now(UTC)
        self.uplink = HttpUplink(
            url=portal.url, node="gpu-1", token=lambda: "kca_x", store=MemoryStore(), clock=lambda: self.now
        )
        self.restart()

    def restart(self):
        self.files = EvidenceFiles(self.folder, uplink=self.uplink, clock=lambda: self.now)

    def write(self, content, name=NAME):
        self.folder.mkdir(exist_ok=True)
        path = self.folder / f"{name}.gz"
        path.write_bytes(content)
        return path


@pytest.fixture
def outbox(tmp_path, portal):
    made = Outbox(tmp_path / "evidence", portal)
    yield made
    made.uplink.close()


CONTENT = bytes(range(256)) * (CHUNK_BYTES // 256) + b"the last chunk"


def test_a_bundle_is_uploaded_in_chunks_and_deleted(outbox, portal):
    path = outbox.write(CONTENT)
    outbox.files.run_round()
    assert portal.evidence == {str(NAME): CONTENT}
    assert [len(chunk) for _, chunk in portal.chunks] == [CHUNK_BYTES, len(b"the last chunk")]
    query = portal.chunks[0][0]
    assert (query["size"], query["sha256"]) == (str(len(CONTENT)), hashlib.sha256(CONTENT).hexdigest())
    assert not path.exists()


def test_an_upload_goes_on_where_it_was(outbox, portal):
    path = outbox.write(CONTENT)
    portal.evidence_answers = [None, (503, {"detail": "down"})]
    assert outbox.files.run_round() < 300
    assert path.exists()
    outbox.restart()
    outbox.files.run_round()
    assert portal.evidence == {str(NAME): CONTENT}
    assert not path.exists()


def test_a_lost_answer_costs_one_request(outbox, portal):
    outbox.write(CONTENT)
    portal.cut = 1
    outbox.files.run_round()
    outbox.files.run_round()
    assert portal.evidence == {str(NAME): CONTENT}


@pytest.mark.parametrize("status", [400, 403, 404, 413])
def test_a_bundle_that_is_not_wanted_is_deleted(outbox, portal, status):
    path = outbox.write(CONTENT)
    portal.evidence_answers = [(status, {"detail": "no"})]
    outbox.files.run_round()
    assert not path.exists()


@pytest.mark.parametrize("status", [401, 429, 500, 503])
def test_a_portal_in_trouble_gets_it_later(outbox, portal, status):
    path = outbox.write(CONTENT)
    portal.evidence_answers = [(status, {"detail": "later"})]
    outbox.files.run_round()
    assert path.exists()
    outbox.files.run_round()
    assert not path.exists()


def test_bytes_that_never_arrive_whole_end_the_upload(outbox, portal):
    path = outbox.write(CONTENT)
    portal.evidence_answers = [(202, {"received": 0})] * 20
    outbox.files.run_round()
    assert not path.exists()
    assert len(portal.chunks) < 20


@pytest.mark.parametrize("answer", [{}, {"received": "7"}, {"received": -1}, {"received": 1 << 40}, []])
def test_an_answer_that_cannot_be_read_is_no_answer(outbox, portal, answer):
    path = outbox.write(CONTENT)
    portal.evidence_answers = [(202, answer)]
    outbox.files.run_round()
    assert path.exists()


def test_old_and_many_bundles_are_deleted(outbox, portal):
    portal.evidence_answers = [(503, {})] * 100
    for number in range(MAX_FILES + 2):
        outbox.write(b"x", name=uuid.UUID(int=number))
    outbox.files.run_round()
    assert len(list(outbox.folder.iterdir())) == MAX_FILES
    outbox.now += timedelta(seconds=MAX_AGE_SECONDS + 60)
    outbox.files.run_round()
    assert list(outbox.folder.iterdir()) == []


def test_a_file_that_the_agent_did_not_write_is_not_uploaded(outbox, portal):
    outbox.folder.mkdir()
    (outbox.folder / "passwords.gz").write_text("x")
    outbox.files.run_round()
    assert portal.chunks == []


def test_a_parsed_address_has_no_secret(outbox, portal):
    outbox.write(CONTENT)
    outbox.files.run_round()
    assert "kca_x" not in urllib.parse.urlencode(portal.chunks[0][0])


def test_an_agent_uploads_evidence_on_command(tmp_path, portal):
    """The whole program, over HTTP."""
    log = tmp_path / "kern.log"
    log.write_text("NVRM: Xid (PCI:0000:4e:00): 79, GPU has fallen off the bus. password=hunter2\n")
    settings = {
        "NODE_NAME": "gpu-1",
        "KCOVER_AGENT_URL": portal.url,
        "KCOVER_AGENT_TOKEN": "kca_x",
        "KCOVER_AGENT_KMSG": str(log),
        "KCOVER_AGENT_SPOOL": str(tmp_path / "spool"),
        "KCOVER_AGENT_LISTEN": "127.0.0.1:0",
    }
    now = datetime.now(UTC)
    portal.commands = [
        Command(
            id="c1",
            kind=bundle.COMMAND,
            args={"bundle": str(NAME)},
            created_at=now,
            expires_at=now + timedelta(minutes=5),
        )
    ]
    process = subprocess.Popen((sys.executable, "-m", "agents"), env=os.environ | settings, stderr=subprocess.DEVNULL)
    try:
        portal.wait_for(lambda: portal.results and portal.evidence)
    finally:
        process.kill()
        process.wait()
    assert portal.results[0].status == "done"
    output = portal.results[0].output
    content = portal.evidence[str(NAME)]
    assert (len(content), hashlib.sha256(content).hexdigest()) == (output["size"], output["sha256"])
    text = gzip.decompress(content).decode()
    assert "GPU has fallen off the bus. password=[removed: password]" in text
    assert "versions" in [section["name"] for section in output["sections"]]
