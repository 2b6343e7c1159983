"""Random rotations between random reads: every line arrives once and in order, or the loss is reported."""

import itertools
import os
import random
from datetime import UTC, datetime

import pytest

from agents.probes.log import sources

NOW = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)
START = 1_790_000_000 * 10**9


class Rotating:
    """A log as a daemon writes it and logrotate moves it, on a clock of its own."""

    def __init__(self, path, chance, *, how):
        self.path, self.chance, self.how = path, chance, how
        self.keep = chance.randint(2, 5)
        self.numbers, self.moments, self.days = itertools.count(), itertools.count(START), itertools.count(20261101)
        self.written = []
        self.write()

    def write(self):
        for number in itertools.islice(self.numbers, self.chance.randint(1, 4)):
            with self.path.open("a") as log:
                log.write(f"{number} {'x' * self.chance.choice((3, 400))}\n")
            self.written.append(number)
        self.touch(self.path)

    def touch(self, path):
        path.touch()
        os.utime(path, ns=(next(self.moments),) * 2)

    def rotate(self):
        if self.path.stat().st_size == 0:
            return  # logrotate's notifempty
        if self.how == "day":
            self.path.rename(self.named(next(self.days), "-"))
            for old in sorted(self.path.parent.glob("kern.log-*"))[: -self.keep]:
                old.unlink()
        else:
            for number, end in itertools.product(range(self.keep, 0, -1), ("", ".gz")):
                old = self.named(number, ".", end)
                if old.exists():
                    old.rename(self.named(number + 1, ".", end))
                    self.named(self.keep + 1, ".", end).unlink(missing_ok=True)
            self.path.rename(self.named(1, "."))
            if self.how != "number":
                self.pack(self.named(1 if self.how == "packed" else 2, "."))
        self.touch(self.path)

    def named(self, number, sign, end=""):
        return self.path.with_name(f"{self.path.name}{sign}{number}{end}")

    def pack(self, path):
        if path.exists():
            written = path.stat().st_mtime_ns
            packed = path.with_name(f"{path.name}.gz")
            packed.write_bytes(b"packed")
            os.utime(packed, ns=(written, written))
            path.unlink()


@pytest.mark.parametrize("how", ["number", "day", "packed", "packed late"])
def test_no_line_is_lost_without_a_word(tmp_path, how):
    silent, complete = [], 0
    for seed in range(50):
        chance, folder = random.Random(seed), tmp_path / str(seed)
        folder.mkdir()
        log = Rotating(folder / "kern.log", chance, how=how)
        source = sources.LogFile(log.path)
        lines, gaps = [], []

        def look(source=source, lines=lines, gaps=gaps):
            more = True
            while more:
                chunk = source.read(boot_id="boot-1", now=NOW)
                lines.extend(int(record.text.split()[0]) for record in chunk.records)
                gaps.extend(filter(None, [chunk.gap]))
                more = chunk.more

        look()
        for act in chance.choices((log.write, log.rotate, look), k=30):
            act()
        log.write()
        look()
        source.close()
        assert lines == sorted(set(lines))
        complete += lines == log.written
        if lines != log.written and not gaps:
            silent.append(seed)
    assert silent == []
    assert complete >= (
        1 if how == "packed" else 25
    )  # what is packed at once is lost where two rotations fall between two looks
