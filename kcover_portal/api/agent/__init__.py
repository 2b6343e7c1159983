"""The agents' endpoints, served before Django: reports, enrolment and the long poll for commands.

This is a plain ASGI application, because thousands of agents hold a connection open. A thread per connection would not
scale to that.
"""

from kcover_portal.api.agent.app import application as application, stay_open as stay_open, stop as stop
