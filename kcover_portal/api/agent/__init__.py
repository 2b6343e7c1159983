"""The agents' door, answered before Django: reports, enrolment, the long poll for commands.

A plain ASGI application: thousands of agents hold a connection open here, which no thread a connection could.
"""

from kcover_portal.api.agent.app import application, stay_open

__all__ = ["application", "stay_open"]
