"""``python -m agents.yaml_file FILE`` prints a YAML file as JSON.

A program of its own, because an agent reads its settings once and would keep the parser, more than a MiB, for life.
"""

import json
import pathlib
import sys
from collections.abc import Sequence

import yaml


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, or 1 with the reason on standard error."""
    (name,) = sys.argv[1:] if arguments is None else arguments
    try:
        content = yaml.safe_load(pathlib.Path(name).read_text())
        text = json.dumps(content, default=str)
    except (OSError, ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        print(error, file=sys.stderr)
        return 1
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
