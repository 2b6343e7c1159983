"""The probe of disks and mounts, over a /proc of its own."""

import functools
import os
import subprocess
import sys

import pytest

from agents.host import programs
from agents.probes.host import storage
from tests.agents.probe_run import ProbeRun


class Proc:
    """A /proc of our own, whose first process has the node's mounts."""

    def __init__(self, folder, *, pids=storage.HOST_PID_NAMESPACE):
        self.folder = folder
        (folder / "self/ns").mkdir(parents=True)
        (folder / "self/ns/pid").symlink_to(pids)
        (folder / "1").mkdir()
        (folder / "1/root").symlink_to("/")
        self.mounts()

    def mounts(self, *lines, of="1"):
        (self.folder / of / "mounts").write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture
def proc(tmp_path):
    return Proc(tmp_path / "proc")


def storage_probe_run(proc, **settings):
    return ProbeRun(storage.StorageProbe(**{"folders": (), **settings}, proc=proc.folder))


def failing(reason):
    """A stat of a mount that fails at once."""
    return functools.partial(storage.stat_in_child, program=f"raise SystemExit({reason!r})")


@pytest.mark.parametrize(("status", "free"), [("pass", 20), ("warn", 8), ("fail", 2)])
@pytest.mark.parametrize("scarce", ["blocks", "inodes", "blocks, and inodes are not counted"])
def test_room_on_a_disk(tmp_path, proc, scarce, status, free):
    blocks, inodes = ((free, 100), (99, 100)) if scarce.startswith("blocks") else ((99, 100), (free, 100))
    inodes = (0, 0) if "not counted" in scarce else inodes

    def statvfs(folder):
        if not folder.exists():
            raise FileNotFoundError(folder)
        # bsize frsize blocks bfree bavail files ffree favail flag namemax
        return os.statvfs_result((4096, 4096, blocks[1], 0, blocks[0], inodes[1], 0, inodes[0], 0, 255))

    probe_run = storage_probe_run(proc, folders=(tmp_path, tmp_path / "none"), statvfs=statvfs)
    assert probe_run.all() == [("disk", str(tmp_path), status)]


def test_a_mount_must_be_there_and_answer(tmp_path, proc):
    data = tmp_path / "my data"
    data.mkdir()
    escaped = str(data).replace(" ", "\\040")
    proc.mounts(f"server:/x {escaped} nfs4 rw,hard 0 0")
    probe_run = storage_probe_run(proc, mounts=(str(data), "/scratch"))
    assert probe_run.all() == [("mount", "/scratch", "fail"), ("mount", str(data), "pass")]
    data.rmdir()
    assert probe_run.bad() == [("mount", "/scratch", "fail", True), ("mount", str(data), "fail", True)]


def test_the_nodes_mounts_are_seen_out_of_a_container(tmp_path, proc):
    """Its own table and its own root have none of them."""
    node = tmp_path / "node"
    (node / "data").mkdir(parents=True)
    (proc.folder / "1/root").unlink()
    (proc.folder / "1/root").symlink_to(node)
    proc.mounts("/dev/sda1 / ext4 rw 0 0", "server:/x /data nfs4 rw 0 0")
    proc.mounts("overlay / overlay rw 0 0", of="self")
    probe_run = storage_probe_run(proc, mounts=("/data", "/gone"))
    assert probe_run.all() == [
        ("mount", "/gone", "fail"),
        ("mount", "/data", "pass"),
        ("disk_writable", "/", "pass"),
    ]


def test_required_mounts_are_checked_before_mounts_of_pods(tmp_path, proc, monkeypatch):
    monkeypatch.setattr(storage, "MAX_MOUNTS", 2)
    proc.mounts(*(f"server:/{point} {point} nfs4 rw 0 0" for point in ("/pod-1", "/pod-2", tmp_path)))
    assert ("mount", str(tmp_path), "pass") in storage_probe_run(proc, mounts=(str(tmp_path),)).all()


@pytest.mark.parametrize("why", ["another PID namespace", "the first process is not to be looked at"])
def test_a_mount_that_cannot_be_seen_is_no_fault(tmp_path, why):
    proc = Proc(tmp_path / "proc", pids="pid:[4026532999]" if "namespace" in why else storage.HOST_PID_NAMESPACE)
    proc.mounts(f"server:/x {tmp_path} nfs4 rw 0 0", of="self")
    if "looked" in why:
        (proc.folder / "1/root").unlink()
    probe_run = storage_probe_run(proc, mounts=("/scratch",))
    assert [(f.check.device, f.check.status, f.is_fault) for f in probe_run.observe()] == [
        ("/scratch", "skipped", False),
        (str(tmp_path), "pass", False),
    ]
    assert probe_run.observe()[0].check.message.startswith("only the agent's own mounts are visible: ")


class HungMounts:
    """Every stat starts a child that hangs, and that no signal ends, as one that waits inside the kernel."""

    def __init__(self):
        self.children = []

    def __call__(self, path):
        child = subprocess.Popen((sys.executable, "-S", "-c", "import time; time.sleep(60)"))
        self.children.append(child)
        raise programs.ProgramTimeout("stat did not end", process=child)

    def end(self):
        for child in self.children:
            with child:
                child.kill()


@pytest.fixture
def hung_mounts():
    mounts = HungMounts()
    yield mounts
    mounts.end()


def test_a_mount_that_hangs_is_found_by_a_child(proc):
    proc.mounts("server:/x /data nfs4 rw 0 0")
    stat = functools.partial(storage.stat_in_child, program="import time; time.sleep(60)", timeout=0.3)
    (found,) = storage_probe_run(proc, mounts=("/data",), stat_mount=stat).observe()
    assert (found.check.status, found.is_fault) == ("fail", True)
    (found,) = storage_probe_run(proc, stat_mount=stat).observe()  # no setting requires this mount
    assert (found.check.status, found.is_fault) == ("warn", False)


def test_a_mount_that_hung_and_is_no_longer_there_is_no_trouble_any_more(proc):
    proc.mounts("server:/x /data nfs4 rw 0 0", "/dev/sda1 /spare ext4 rw 0 0")
    probe_run = storage_probe_run(proc, stat_mount=failing("Stale file handle"))
    assert probe_run.bad() == [("mount", "/data", "warn", False)]
    proc.mounts("server:/x /data nfs4 rw 0 0", "/dev/sda1 /spare ext4 ro 0 0")
    assert probe_run.bad() == [("mount", "/data", "warn", False), ("disk_writable", "/spare", "fail", True)]
    proc.mounts("/dev/sdb1 /spare ext4 ro 0 0")  # another disk, mounted so
    assert probe_run.all() == [("mount", "/data", "pass"), ("disk_writable", "/spare", "pass")]
    assert probe_run.all() == []


def test_a_mount_that_is_unmounted_during_its_check_is_no_finding(proc):
    proc.mounts("server:/x /gone nfs4 rw 0 0")
    program = f"open({str(proc.folder / '1/mounts')!r}, 'w').close(); raise SystemExit('No such file')"
    assert storage_probe_run(proc, stat_mount=functools.partial(storage.stat_in_child, program=program)).all() == []


def test_mounts_of_pods_are_not_checked(proc):
    volume = "/pods/0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f/volumes/kubernetes.io~nfs/data"
    probe_run = storage_probe_run(proc, stat_mount=failing("No such file"))
    for kind, mode in (("nfs4", "rw"), ("ext4", "rw"), ("ext4", "ro")):
        folders = (f"/var/lib/kubelet{volume}", f"/srv{volume}", "/var/lib/kubelet/plugins/x/globalmount")
        proc.mounts(*(f"x {folder} {kind} {mode} 0 0" for folder in folders))
        assert probe_run.all() == []


@pytest.mark.parametrize("name", ["数据", "two words", "back\\slash", "é\tb", "wide\u3000space"])
def test_a_mount_of_any_name_answers(tmp_path, proc, name):
    data = tmp_path / name
    data.mkdir()
    escaped = str(data).replace("\\", "\\134").replace(" ", "\\040").replace("\t", "\\011")
    proc.mounts(f"server:/x {escaped} nfs4 rw 0 0")
    for settings in ({}, {"mounts": (str(data),)}):
        assert storage_probe_run(proc, **settings).all() == [("mount", str(data), "pass")]


def test_one_look_waits_for_few_mounts_that_are_not_required(proc, monkeypatch, hung_mounts):
    monkeypatch.setattr(storage, "MAX_TIMEOUTS", 2)
    proc.mounts(*(f"server:/x /data-{number} nfs4 rw 0 0" for number in range(5)))
    probe_run = storage_probe_run(proc, stat_mount=hung_mounts)
    assert [len(probe_run.observe()) for _ in range(4)] == [2, 4, 5, 5]  # a mount that hangs already is not waited for


def test_a_child_that_cannot_be_killed_is_not_joined_by_another(proc, hung_mounts):
    """Otherwise, after a day, the agent would have as many as systemd lets it have."""
    proc.mounts("server:/x /data nfs4 rw 0 0")
    answers = [hung_mounts, storage.stat_in_child]
    probe_run = storage_probe_run(proc, stat_mount=lambda path: answers[0](path))
    for _ in range(3):
        (found,) = probe_run.observe()
        assert found.check.status == "warn"
    assert len(hung_mounts.children) == 1
    hung_mounts.end()
    answers[0] = functools.partial(storage.stat_in_child, program="")
    assert probe_run.observe()[0].check.status == "pass"


def test_a_disk_that_turns_read_only(proc):
    proc.mounts("/dev/sda1 / ext4 rw,relatime 0 0", "/dev/sr0 /cd iso9660 ro 0 0", "/dev/sdb1 /ro xfs ro 0 0")
    probe_run = storage_probe_run(proc)
    assert probe_run.all() == [("disk_writable", "/", "pass")]
    proc.mounts("/dev/sda1 / ext4 ro,relatime 0 0")
    assert probe_run.bad() == [("disk_writable", "/", "fail", True)]
