"""``python -m tools.sbom [FILE]``: the software bill of materials of the portal's image, as CycloneDX 1.6 in JSON.

Three sources: the lock (versions, hashes of all files on PyPI), the metadata of the installed packages (licences, what
they depend on), and ``static/vendor/VENDOR.json`` (scripts of the console). What only the extras need is optional.
The same sources give the same file: there is no serial number, and the time is that of ``SOURCE_DATE_EPOCH`` if set.
"""

import argparse
import base64
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "dist" / "kcover-portal.cdx.json"
LOCK, EXTRAS = ROOT / "requirements.lock", ROOT / "requirements-extras.lock"
DIRECT = tuple(ROOT / f"requirements{name}.txt" for name in ("", "-otel", "-sentry"))
VENDORED = ROOT / "static" / "vendor" / "VENDOR.json"
PIN = re.compile(r"^([\w.-]+)(?:\[[\w,]+\])?==", re.MULTILINE)

Json = dict[str, Any]


def bill(debian: str = "") -> Json:
    """The bill of materials. Raises SystemExit if a locked package is installed in another version.

    ``debian``: lines with the name, version and architecture of a package.
    """
    made = _cyclonedx("requirements", "--pyproject", str(ROOT / "pyproject.toml"), str(EXTRAS))
    installed = _cyclonedx("environment", sys.executable)
    known = {_key(one["name"]): one for one in installed["components"]}
    needed = set(map(_key, PIN.findall(LOCK.read_text(encoding="utf-8"))))
    refs: dict[str, str] = {}
    for one in made["components"]:
        key = _key(one["name"])
        refs[key] = one["bom-ref"] = one["purl"]
        one["description"] = known.get(key, {}).get("description", "")
        one["scope"] = "required" if key in needed else "optional"
        one["licenses"] = _licences(one, known.get(key))
    vendored = json.loads(VENDORED.read_text(encoding="utf-8"))["packages"]
    others = [_script(one) for one in vendored if one["sha256"]]  # the bundler leaves no file of its own
    others += [_debian(*line.split()) for line in debian.splitlines()]
    direct = {_key(name) for path in DIRECT for name in PIN.findall(path.read_text(encoding="utf-8"))}
    root = made["metadata"]["component"]["bom-ref"]
    graph = {ref: set[str]() for ref in refs.values()} | {one["bom-ref"]: set[str]() for one in others}
    for one in installed["dependencies"]:
        if (ref := refs.get(_key(one["ref"].partition("==")[0]))) is not None:
            names = (_key(name.partition("==")[0]) for name in one.get("dependsOn", ()))
            graph[ref] = {refs[name] for name in names if name in refs}
    graph[root] = {refs[name] for name in direct} | {one["bom-ref"] for one in others}
    made["components"] = sorted((*made["components"], *others), key=lambda one: str(one["bom-ref"]))
    made["dependencies"] = [{"ref": ref, "dependsOn": sorted(graph[ref])} for ref in sorted(graph)]
    return made


def _cyclonedx(*words: str) -> Json:
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "bom.json"
        options = ("--output-reproducible", "--spec-version", "1.6", "--no-validate", "--output-file", str(target))
        # Without validation: tests validate what is made here, which takes seconds.
        command = [sys.executable, "-W", "ignore", "-m", "cyclonedx_py", words[0], *options, *words[1:]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        found: Json = json.loads(target.read_text(encoding="utf-8"))
        return found


def _key(name: str) -> str:
    """The normalized name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _licences(component: Json, installed: Json | None) -> list[Json]:
    """As the package declares them; empty for one that this platform does not install."""
    if installed is None:
        return []
    if installed["version"] != component["version"]:
        raise SystemExit(f"{component['name']} {installed['version']} is installed: run `make venv`")
    found: list[Json] = installed.get("licenses", [])
    if found:
        return found
    text = metadata.metadata(component["name"]).get("License", "")
    return [{"license": {"name": text, "acknowledgement": "declared"}}] if text else []


def _script(package: Mapping[str, Any]) -> Json:
    """A package of npm whose files, or parts of them, are in ``static/vendor``."""
    name, version = package["name"], package["version"]
    algorithm, _, digest = package["integrity"].partition("-")
    if algorithm != "sha512":
        raise SystemExit(f"{VENDORED.name}: {name} has no sha512")
    group, _, short = name.rpartition("/")
    purl = f"pkg:npm/{quote(name, safe='/')}@{version}"
    made = {
        "type": "library",
        "bom-ref": purl,
        "name": short,
        "version": version,
        "purl": purl,
        "scope": "required",
        "licenses": [{"license": {"id": package["licence"], "acknowledgement": "declared"}}],
        "externalReferences": [
            {
                "type": "distribution",
                "url": f"https://registry.npmjs.org/{name}/-/{short}-{version}.tgz",
                "hashes": [{"alg": "SHA-512", "content": base64.b64decode(digest).hex()}],
            }
        ],
    }
    return made | ({"group": group} if group else {})


def _debian(name: str, version: str, architecture: str) -> Json:
    """A package of Debian; its licences are in the source package."""
    purl = f"pkg:deb/debian/{quote(name, safe='')}@{quote(version, safe='')}?arch={architecture}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "scope": "required",
        "licenses": [],
        "externalReferences": [],
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tools.sbom", description="Writes the bill of materials.")
    parser.add_argument("file", nargs="?", type=Path, default=TARGET)
    parser.add_argument("--debian", type=Path, metavar="FILE", help="packages.txt of deploy/portal/build.sh")
    options = parser.parse_args()
    target: Path = options.file
    made = bill(options.debian.read_text(encoding="utf-8") if options.debian else "")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{target}: {len(made['components'])} packages")


if __name__ == "__main__":
    main()
