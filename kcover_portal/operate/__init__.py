"""Commands and endpoints for running the portal: processes, the watch, health and metrics.

Belongs here: starting, leading and stopping processes, and reporting their health. Never here: the work that they do.
"""
