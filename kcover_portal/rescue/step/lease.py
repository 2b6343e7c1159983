"""How long a worker has a rescue, or a node's lock, without renewing it."""

from datetime import timedelta
from typing import Final

TIME: Final = timedelta(seconds=30)  # longer than any single call may take (25 s); renewed before each write
RENEW_AFTER: Final = timedelta(seconds=3)
