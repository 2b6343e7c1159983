"""``python tools/agent_zip.py [FILE]``: build the node agent as one file, with everything except Python 3.11.

The dependencies are the installed ones, in the versions that agents/requirements.txt pins. The archive also has byte
code for this Python, because an import from a zip file cannot store any. The byte code keeps its docstrings: for a data
class without one the standard library imports ``inspect``, which uses more memory than they do. Another Python version
uses the sources. The same sources give the same file.
"""

import io
import py_compile
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "dist" / "kcover-agent.pyz"
PACKAGES = ("kcover", "agents")
EXCLUDED = ("example.py",)  # nvidia-ml-py's
MAIN = "import sys\n\nfrom agents.__main__ import main\n\nsys.exit(main())\n"
SHEBANG = b"#!/usr/bin/env python3\n"
DATE = (2026, 1, 1, 0, 0, 0)


def build(target: Path) -> None:
    """Writes the archive. Raises SystemExit if a dependency is not installed in its pinned version."""
    contents = {name: data for source in (_own(), *map(_dependency, _pinned())) for name, data in source}
    contents["__main__.py"] = MAIN.encode()
    packed = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(contents.items()):
            archive.writestr(_entry(name), data)
            if name.endswith(".py") and name != "__main__.py":
                archive.writestr(_entry(f"{name}c"), _compiled(name, data, Path(folder)))
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(SHEBANG + packed.getvalue())
    target.chmod(0o755)


def _own() -> Iterator[tuple[str, bytes]]:
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*"):
            if path.suffix in (".py", ".json"):
                yield path.relative_to(ROOT).as_posix(), path.read_bytes()


def _pinned() -> list[tuple[str, str]]:
    lines = (ROOT / "agents" / "requirements.txt").read_text(encoding="utf-8").splitlines()
    pins = [line.partition("#")[0].strip() for line in lines]
    return [(name, version) for name, _, version in (pin.partition("==") for pin in pins) if name]


def _dependency(pin: tuple[str, str]) -> Iterator[tuple[str, bytes]]:
    """The Python files of an installed distribution, and its licence."""
    name, version = pin
    try:
        installed = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        raise SystemExit(f"{name} is not installed: run make venv") from None
    if installed.version != version:
        raise SystemExit(
            f"{name} {installed.version} is installed, but agents/requirements.txt pins {version}: run make venv"
        )
    for file in installed.files or ():
        included = file.suffix == ".py" or file.name.startswith(("LICENSE", "LICENCE", "COPYING"))
        if included and file.as_posix() not in EXCLUDED and not file.as_posix().startswith(".."):
            yield file.as_posix(), file.read_binary()


def _compiled(name: str, data: bytes, folder: Path) -> bytes:
    """Byte code with an unchecked hash: an archive has no modification times to compare it with."""
    source, target = folder / "source.py", folder / "source.pyc"
    source.write_bytes(data)
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(source), str(target), dfile=name, doraise=True, invalidation_mode=unchecked, optimize=1)
    return target.read_bytes()


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, DATE)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry


if __name__ == "__main__":
    chosen = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    build(chosen)
    print(chosen)
