"""An application of production in which the deadlines of slow clients are those of a test."""

import importlib
import os

from kcover_portal.config import request_limits

request_limits.HEAD_SECONDS = float(os.environ["TEST_HEAD_SECONDS"])
request_limits.REQUEST_SECONDS = float(os.environ["TEST_REQUEST_SECONDS"])

application = importlib.import_module(os.environ["TEST_APPLICATION"]).application
