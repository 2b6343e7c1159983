"""The names of rows, such as of sinks, sources, channels and machine drivers."""

import re
from typing import Final

MAX_NAME: Final = 63  # characters
NAME: Final = re.compile(rf"[a-z0-9]([a-z0-9-]{{0,{MAX_NAME - 2}}}[a-z0-9])?")
