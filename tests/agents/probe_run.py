"""Runs a probe again and again in a test, with time passing in between."""

from datetime import UTC, datetime, timedelta

START = datetime(2026, 11, 21, 8, 0, tzinfo=UTC)


class ProbeRun:
    """One probe and the time of its next run."""

    def __init__(self, probe):
        self.probe, self.now = probe, START

    def observe(self, after=60.0):
        self.now += timedelta(seconds=after)
        return self.probe.observe(self.now).findings

    def bad(self, after=60.0):
        findings = self.observe(after)
        return [
            (f.check.name, f.check.device, f.check.status, f.is_fault) for f in findings if f.check.status != "pass"
        ]

    def all(self, after=60.0):
        return [(one.check.name, one.check.device, one.check.status) for one in self.observe(after)]


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(f"{content}\n")
