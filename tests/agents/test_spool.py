"""The spool and the store under it, with crashes, damage and full disks."""

import errno
import stat

import pytest

from agents.host import store
from agents.outbox.spool import Spool


class FullDisk(store.MemoryStore):
    full = False

    def write(self, name, data):
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(name, data)


def report(name, *, faults=1):
    return {"batch_id": name, "faults": [{"code": 79}] * faults, "checks": []}


def ids(spool):
    found = []
    while (waiting := spool.next_report()) is not None:
        found.append(waiting["batch_id"])
        spool.acknowledge(waiting["batch_id"])
    return found


@pytest.fixture(params=["folder", "memory"])
def disk(request, tmp_path):
    if request.param == "memory":
        yield store.MemoryStore()
        return
    folder = store.FolderStore(tmp_path / "spool")
    yield folder
    folder.close()


def test_a_store_returns_what_was_written(disk):
    disk.write("a.json", b"1")
    disk.write("f/b.json", b"2")
    disk.write("f/b.json", b"3")
    assert (disk.read("a.json"), disk.read("f/b.json"), disk.read("f/none")) == (b"1", b"3", None)
    assert (disk.names("f"), disk.names("g")) == (["f/b.json"], [])
    disk.quarantine("f/b.json")
    disk.delete("a.json")
    disk.delete("a.json")
    assert (disk.names("f"), disk.names("aside"), disk.read("a.json")) == ([], ["aside/f-b.json"], None)


def test_a_folder_is_private_locked_and_cleaned(tmp_path):
    path = tmp_path / "spool"
    first = store.FolderStore(path)
    first.write("f/a", b"secret")
    assert stat.S_IMODE((path / "f/a").stat().st_mode) == 0o600
    with pytest.raises(BlockingIOError):
        store.FolderStore(path)
    first.close()
    (path / "f/b.tmp").write_bytes(b"half")
    second = store.FolderStore(path)
    assert second.names("f") == ["f/a"]
    second.close()


def test_batches_come_back_in_order_after_a_restart(disk):
    spool = Spool(disk)
    for name in ("a", "b", "c"):
        spool.append(report(name), mark={"at": name})
    spool.acknowledge("a")
    again = Spool(disk)
    assert again.mark == {"at": "c"}
    assert ids(again) == ["b", "c"]
    assert Spool(disk).mark == {"at": "c"}


def test_a_batch_carries_its_mark_so_that_no_crash_separates_them():
    disk = store.MemoryStore()
    spool = Spool(disk)
    spool.set_mark({"at": 1})
    spool.save()
    spool.append(report("a"), mark={"at": 2})
    assert Spool(disk).mark == {"at": 2}  # crashed right after the write
    spool.set_mark({"at": 3})
    spool.save()
    assert Spool(disk).mark == {"at": 3}


def test_the_mark_outlives_the_last_batch():
    disk = store.MemoryStore()
    spool = Spool(disk)
    spool.append(report("a"), mark={"at": 1})
    spool.acknowledge("a")
    again = Spool(disk)
    assert (again.waiting, again.mark) == (0, {"at": 1})
    again.append(report("b"), mark={"at": 2})  # its number must be higher than the stored mark's
    assert Spool(disk).mark == {"at": 2}


def test_a_deferred_batch_lets_others_pass(disk):
    spool = Spool(disk)
    for name in ("a", "b"):
        spool.append(report(name), mark={})
    spool.defer("a")
    assert ids(spool) == ["b", "a"]


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"number": 2, "mark": {}}', b"\xff\xfe", b'{"number":"x"}'])
def test_a_damaged_batch_is_set_aside_and_the_others_go(disk, damage):
    spool = Spool(disk)
    for name in ("a", "b"):
        spool.append(report(name), mark={})
    disk.write(disk.names("batches")[0], damage)
    assert ids(Spool(disk)) == ["b"]
    assert len(disk.names("aside")) == 1


class BadMoment(store.MemoryStore):
    bad = ()

    def read(self, name):
        if name in self.bad:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().read(name)


def test_a_batch_that_cannot_be_read_now_is_read_later_and_the_others_go():
    disk = BadMoment()
    spool = Spool(disk)
    for name in ("a", "b"):
        spool.append(report(name), mark={})
    disk.bad = disk.names("batches")[:1]
    assert ids(spool) == ["b"]
    assert (spool.waiting, spool.ready) == (1, False)
    disk.bad = ()
    assert ids(spool) == ["a"]
    assert spool.waiting == 0


def test_a_batch_that_cannot_be_read_at_the_start_is_not_written_over():
    disk = BadMoment()
    Spool(disk).append(report("a"), mark={})
    disk.bad = disk.names("batches")
    again = Spool(disk)
    again.append(report("b"), mark={})
    disk.bad = ()
    assert ids(Spool(disk)) == ["a", "b"]


def test_a_damaged_mark_is_a_fresh_start(disk):
    disk.write("mark.json", b"{")
    assert Spool(disk).mark == {}


def test_a_spool_full_of_faults_reports_full_and_drops_none():
    spool = Spool(store.MemoryStore(), max_batches=3)
    for name in ("a", "b", "c", "d"):
        spool.append(report(name), mark={})
    assert spool.full
    assert ids(spool) == ["a", "b", "c", "d"]
    assert not spool.full


def test_batches_without_faults_make_room():
    spool = Spool(store.MemoryStore(), max_batches=4)
    for number in range(3):
        spool.append(report(f"check-{number}", faults=0), mark={})
    for name in ("a", "b"):
        spool.append(report(name), mark={})
    assert not spool.full
    assert ids(spool) == ["check-2", "a", "b"]


def test_bytes_are_bounded_too():
    spool = Spool(store.MemoryStore(), max_bytes=1000)
    spool.append(report("a", faults=10), mark={})
    assert not spool.full
    spool.append(report("b", faults=60), mark={})
    assert spool.full


def test_a_full_disk_keeps_batches_in_memory_and_the_mark_back():
    disk = FullDisk()
    spool = Spool(disk)
    spool.append(report("a"), mark={"at": 1})
    disk.full = True
    spool.append(report("b"), mark={"at": 2})
    spool.save()
    assert spool.next_report()["batch_id"] == "a"
    assert Spool(disk).mark == {"at": 1}  # after a crash the lines of b are read again
    disk.full = False
    spool.append(report("c"), mark={"at": 3})
    again = Spool(disk)
    assert again.mark == {"at": 3}
    assert ids(again) == ["a", "b", "c"]


def test_a_disk_that_stays_full_stops_the_reading_of_the_log():
    disk = FullDisk()
    disk.full = True
    spool = Spool(disk)
    appended = 0
    while not spool.full:
        spool.append(report(f"b{appended}", faults=10_000), mark={})
        appended += 1
    assert 1 < appended < 100
    assert len(ids(spool)) == appended
