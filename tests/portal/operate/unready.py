"""An application that notes when it starts, and then fails as TEST_STATUS says: 0 is an exception, as of a bug."""

import os
import time
from pathlib import Path

with Path(os.environ["TEST_FOLDER"], "starts").open("a") as file:
    file.write(f"{time.monotonic()}\n")

if status := int(os.environ["TEST_STATUS"]):
    raise SystemExit(status)
raise RuntimeError("not ready")
