#!/usr/bin/env python3
"""Build ``static/vendor`` from npm packages at exact versions, or verify its files.

``python tools/vendor_frontend.py`` fetches the packages with ``npm pack`` (network, no install scripts), copies the
files that pages use, strips source-map comments, builds the sprite of the icons named in ``icons.txt``, bundles
``codemirror.js`` with esbuild, copies the licences and writes ``VENDOR.json``. ``--verify`` compares every file with
its sha256 there, without network or Node. The result is committed, so that building, testing and running need no Node.
htmx is not included: django-htmx brings its own. Tabler's stylesheet is not served whole, so it is in ``tools/vendor``;
``trim_css.py`` makes the one that is served.
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree  # nosec B405

VENDOR = Path(__file__).resolve().parent.parent / "static" / "vendor"
UNSERVED = Path(__file__).with_name("vendor")
STYLES = "tabler.min.css"
MANIFEST = "VENDOR.json"
SVG = "http://www.w3.org/2000/svg"


class VendorError(Exception):
    """A file cannot be built or does not match; the message names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """One npm package: ``files`` maps a path inside it to a name in static/vendor."""

    name: str
    version: str
    files: dict[str, str]
    licence_file: str | None = "LICENSE"
    inside: str | None = None  # the package or bundle that contains this one: only its licence is copied

    @property
    def licence_name(self) -> str:
        """The path of its licence under static/vendor."""
        return f"licences/{self.name.removeprefix('@').replace('/', '-')}.txt"


BUNDLER = "@esbuild/linux-x64"  # builds the bundle; nothing of it is shipped
PACKAGES = (
    Package(
        name="@tabler/core",
        version="1.6.1",
        files={"dist/css/tabler.min.css": STYLES},
        licence_file=None,  # published without a licence file: see _tabler_licence
    ),
    Package(name="bootstrap", version="5.3.8", files={}, inside="@tabler/core"),
    Package(
        name="uplot",
        version="1.6.32",
        files={"dist/uPlot.iife.min.js": "uPlot.iife.min.js", "dist/uPlot.min.css": "uPlot.min.css"},
    ),
    Package(name="@tabler/icons", version="3.51.0", files={}),
    *(
        Package(name=name, version=version, files={}, inside="codemirror.js")
        for name, version in {
            "@codemirror/autocomplete": "6.20.4",
            "@codemirror/commands": "6.11.1",
            "@codemirror/lang-yaml": "6.1.3",
            "@codemirror/language": "6.13.1",
            "@codemirror/lint": "6.9.8",
            "@codemirror/search": "6.7.2",
            "@codemirror/state": "6.7.6",
            "@codemirror/streamparser": "6.0.0",
            "@codemirror/view": "6.43.15",
            "@lezer/common": "1.5.5",
            "@lezer/highlight": "1.2.5",
            "@lezer/lr": "1.4.12",
            "@lezer/yaml": "1.0.4",
            "@marijn/find-cluster-break": "1.0.4",
            "crelt": "1.0.7",
            "style-mod": "4.1.5",
            "w3c-keyname": "2.2.8",
        }.items()
    ),
    Package(name=BUNDLER, version="0.28.2", files={}, licence_file=None),  # after the packages of its bundle
)

# Outline icons of @tabler/icons, one per line, as <symbol id="tabler-NAME"> of icons.svg.
ICONS = Path(__file__).with_name("icons.txt")
ENTRY = Path(__file__).with_name("codemirror.js")  # what the bundle exports
BUNDLE = "codemirror.js"

SOURCE_MAP = re.compile(rb"\n?(?://[#@] sourceMappingURL=\S+|/\*[#@] sourceMappingURL=.*?\*/)[ \t]*\n?$")
COMMENT = re.compile(rb"/\*.*?\*/", re.DOTALL)
# References to other servers. The SVG namespace is a name, not an address.
EXTERNAL_REFERENCE = re.compile(
    rb"(?:https?:)?//(?!www\.w3\.org/)[a-z0-9-]+\.[a-z]{2,}[^\s\"'`)]*|@import", re.IGNORECASE
)


def build() -> None:
    """Fetches the packages and writes all files. Raises VendorError."""
    files: dict[str, bytes] = {}
    records = []
    with tempfile.TemporaryDirectory() as folder:
        fetched = {package.name: _fetch(package, into=Path(folder)) for package in PACKAGES}
        for package in PACKAGES:
            root, facts = fetched[package.name]
            built = {name: _clean(name, (root / path).read_bytes()) for path, name in package.files.items()}
            if package.name == "@tabler/icons":
                built["icons.svg"] = _sprite(root / "icons" / "outline")
            if package.name == BUNDLER:
                built[BUNDLE] = _clean(BUNDLE, _bundle(root / "bin" / "esbuild", Path(folder), fetched))
            elif package.licence_file:
                built[package.licence_name] = (root / package.licence_file).read_bytes()
            else:
                template = (fetched["@tabler/icons"][0] / "LICENSE").read_text()
                built[package.licence_name] = _tabler_licence(built[STYLES].decode(), template).encode()
            files |= built
            records.append(_record(package, facts, built))
    files[MANIFEST] = (json.dumps({"packages": records}, indent=2, ensure_ascii=False) + "\n").encode()
    for path in _present():
        if path not in files:
            _place(path).unlink()
    for path, content in files.items():
        target = _place(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def verify() -> int:
    """Compares the vendored files with their manifest and returns their number. Raises VendorError."""
    manifest = json.loads((VENDOR / MANIFEST).read_text(encoding="utf-8"))
    expected = {path: digest for package in manifest["packages"] for path, digest in package["sha256"].items()}
    present = _present() - {MANIFEST}
    problems = [f"{path} is not in {MANIFEST}" for path in sorted(present - expected.keys())]
    problems += [f"{path} is missing" for path in sorted(expected.keys() - present)]
    for path in sorted(present & expected.keys()):
        if _sha256(_place(path).read_bytes()) != expected[path]:
            problems.append(f"{path} was changed by hand")
    versions = {package["name"]: package["version"] for package in manifest["packages"]}
    if versions != {package.name: package.version for package in PACKAGES}:
        problems.append(f"{MANIFEST} has other versions than this tool: run it without --verify")
    if problems:
        raise VendorError("\n".join(problems))
    return len(expected)


def _fetch(package: Package, *, into: Path) -> tuple[Path, dict[str, str]]:
    """Downloads and unpacks one package; returns its folder and its registry metadata (licence, integrity)."""
    spec = f"{package.name}@{package.version}"
    packed = subprocess.run(
        ["npm", "pack", "--json", "--silent", "--ignore-scripts", spec], cwd=into, capture_output=True, check=False
    )  # nosec B607
    if packed.returncode:
        raise VendorError(f"npm pack {spec} failed: {packed.stderr.decode(errors='replace').strip()}")
    [facts] = json.loads(packed.stdout)
    root = into / package.name.replace("/", "-")
    with tarfile.open(into / facts["filename"]) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.3 has none
        archive.extractall(root)  # nosec B202
    described = json.loads((root / "package" / "package.json").read_text(encoding="utf-8"))
    return root / "package", {"licence": described["license"], "integrity": facts["integrity"]}


def _bundle(esbuild: Path, folder: Path, fetched: dict[str, tuple[Path, dict[str, str]]]) -> bytes:
    """One ES module of ENTRY and the packages that are inside the bundle, minified. Raises VendorError."""
    modules = folder / "node_modules"
    for package in PACKAGES:
        if package.inside == BUNDLE:
            (modules / package.name).parent.mkdir(parents=True, exist_ok=True)
            fetched[package.name][0].rename(modules / package.name)
    entry = folder / ENTRY.name
    entry.write_bytes(ENTRY.read_bytes())
    options = ("--bundle", "--minify", "--format=esm", "--target=es2022", "--legal-comments=none", "--charset=utf8")
    built = subprocess.run([esbuild, entry.name, *options], cwd=folder, capture_output=True, check=False)
    if built.returncode:
        raise VendorError(f"esbuild failed: {built.stderr.decode(errors='replace').strip()}")
    return built.stdout


def _record(package: Package, facts: dict[str, str], built: dict[str, bytes]) -> dict[str, object]:
    record: dict[str, object] = {"name": package.name, "version": package.version, **facts}
    if package.inside:
        record["inside"] = package.inside
    return record | {"sha256": {path: _sha256(content) for path, content in sorted(built.items())}}


def _clean(name: str, content: bytes) -> bytes:
    """The file without its source-map comment. Raises VendorError if it refers to another server."""
    content = SOURCE_MAP.sub(b"\n", content)
    if b"sourceMappingURL" in content:
        raise VendorError(f"{name}: a reference to a source map is left")
    code = COMMENT.sub(b"", content)
    if references := set(EXTERNAL_REFERENCE.findall(code)):
        raise VendorError(f"{name} refers to other servers: {sorted(references)}")
    return content


def _sprite(folder: Path) -> bytes:
    """One SVG with symbols that take colour and size from the <svg> that uses them."""
    ElementTree.register_namespace("", SVG)
    sprite = ElementTree.Element(f"{{{SVG}}}svg")
    sprite.text = "\n"
    for icon in ICONS.read_text(encoding="utf-8").split():
        drawing = ElementTree.parse(folder / f"{icon}.svg").getroot()  # nosec B314
        symbol = ElementTree.SubElement(sprite, f"{{{SVG}}}symbol", id=f"tabler-{icon}")
        for name in ("viewBox", "fill", "stroke", "stroke-width", "stroke-linecap", "stroke-linejoin"):
            symbol.set(name, drawing.attrib[name])
        for shape in drawing:
            if shape.get("stroke") == "none" and shape.get("fill") == "none":
                continue  # the invisible box around every icon
            shape.tail = None
            symbol.append(shape)
        symbol.tail = "\n"
    return ElementTree.tostring(sprite, encoding="unicode").encode() + b"\n"


def _tabler_licence(stylesheet: str, template: str) -> str:
    """Tabler's MIT licence: the text that its authors use for the icons, with the copyright lines of the stylesheet."""
    holders = re.findall(r"^\s*\*\s*(Copyright .+)$", stylesheet, re.MULTILINE)[:2]
    if not holders or "MIT" not in stylesheet[:500]:
        raise VendorError("tabler.min.css: no copyright line or another licence than MIT")
    return re.sub(r"^Copyright .+$", "\n".join(holders), template, count=1, flags=re.MULTILINE)


def _place(name: str) -> Path:
    return (UNSERVED if name == STYLES else VENDOR) / name


def _present() -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for folder in (VENDOR, UNSERVED)
        for path in folder.rglob("*")
        if path.is_file()
    }


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def main() -> int:
    """Builds or verifies; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--verify", action="store_true", help="only compare the files with VENDOR.json")
    options = parser.parse_args()
    try:
        if not options.verify:
            build()
        print(f"vendored: {verify()} files match their packages")
    except VendorError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
