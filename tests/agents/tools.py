"""Fake tools of a node: small shell scripts on a PATH of their own."""

TRACKING = """Reference ID    : 771CB7B8 (119.28.183.184)
Stratum         : 3
System time     : 0.0{offset} seconds {way} of NTP time
Last offset     : -0.000130641 seconds
Leap status     : {leap}
"""


def tracking(offset, *, way="fast", leap="Normal"):
    return TRACKING.format(offset=offset, way=way, leap=leap)


class Tools:
    """The only folder on PATH besides what the scripts themselves need."""

    def __init__(self, folder, monkeypatch):
        self.folder = folder / "bin"
        self.folder.mkdir()
        monkeypatch.setenv("PATH", str(self.folder))

    def add(self, name, script):
        """A tool from the body of a shell script."""
        tool = self.folder / name
        tool.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
        tool.chmod(0o755)

    def say(self, name, text, *, status=0):
        """A tool that prints a text whatever it is asked."""
        answer = self.folder.parent / f"{name}.said"
        answer.write_text(text)
        self.add(name, f"cat '{answer}'\nexit {status}")
