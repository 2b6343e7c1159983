"""``python -m bench [NAME ...]``: runs measurements (all without a name) and writes bench/RESULTS.md."""

import argparse

from bench import post_to_cordon, result

MEASUREMENTS = {"post-to-cordon": post_to_cordon.measure}


def main() -> None:
    """Runs what is named."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MEASUREMENTS)}; none: all")
    names = parser.parse_args().names or list(MEASUREMENTS)
    unknown = [name for name in names if name not in MEASUREMENTS]
    if unknown:
        parser.error(f"unknown measurement {', '.join(unknown)}: known are {', '.join(MEASUREMENTS)}")
    for name in names:
        found = MEASUREMENTS[name]()
        result.write(found)
        print(f"{found.name}:")
        for what, figure, goal in found.rows:
            print(f"  {what:<32} {figure:<16} {goal}")


main()
