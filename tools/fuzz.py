"""Fuzzing of every parser that takes bytes from outside, guided by coverage (atheris, which is libFuzzer).

    make fuzz                                  # a minute for each parser
    make fuzz ARGS="policy report --seconds 3600"

Inputs that reach new code are kept in var/fuzz/NAME. An input that raises an unexpected error, or takes half a
minute, ends the run of its parser and is written to tests/fuzz_seeds/NAME, which the test suite replays: fix the
parser and commit the seed with the fix.
"""

import argparse
import importlib
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SEEDS = ROOT / "tests" / "fuzz_seeds"
INSTRUMENTED = ["kcover", "agents", "kcover_portal", "yaml", "verify_proof"]
MAX_BYTES = 8192
SLOW_SECONDS = 30  # PyYAML takes seconds for a thousand open brackets, on a busy machine


def main() -> int:
    """Fuzzes the named parsers one after the other, each in a process of its own. Returns how many have a bug."""
    options = _options()
    if options.inside:
        _inside(options.targets[0])
        return 0
    names = options.targets or sorted(path.name for path in SEEDS.iterdir() if path.is_dir())
    broken = [name for name in names if _fuzz(name, seconds=options.seconds)]
    print("parsers with a bug:", ", ".join(broken) or "none")
    return len(broken)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Fuzz the parsers that take bytes from outside.")
    parser.add_argument("targets", nargs="*", help="names of parsers; default: all")
    parser.add_argument("--seconds", type=int, default=60, help="for each parser")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_known_args()[0]


def _fuzz(name: str, *, seconds: int) -> bool:
    corpus, seeds = ROOT / "var" / "fuzz" / name, SEEDS / name
    corpus.mkdir(parents=True, exist_ok=True)
    command = [
        *(sys.executable, str(ROOT / "tools" / "fuzz.py"), name, "--inside"),
        *(str(corpus), str(seeds), f"-max_total_time={seconds}", f"-max_len={MAX_BYTES}", f"-timeout={SLOW_SECONDS}"),
        *(f"-artifact_prefix={seeds}/", "-rss_limit_mb=2048", "-print_final_stats=1", "-verbosity=0"),
    ]
    print(f"== {name}: {seconds} s", flush=True)
    return bool(subprocess.run(command, cwd=ROOT, check=False).returncode)


def _inside(name: str) -> None:
    """The fuzzing process: libFuzzer takes its own arguments and never returns."""
    sys.path.insert(0, str(ROOT))
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=INSTRUMENTED):
        targets = importlib.import_module("tools.fuzz_targets")
    atheris.Setup([sys.argv[0], *sys.argv[3:]], targets.TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
