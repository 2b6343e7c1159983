"""``python -m agents.yaml_to_json FILE`` prints a YAML file as JSON.

It is a separate program because the agent reads its settings once, and would keep the parser, more than 1 MiB, for as
long as it lives.
"""

import json
import pathlib
import sys
from collections.abc import Sequence

import yaml


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0, or 1 with the reason on standard error."""
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
