"""The node agent: detects faults on one node, keeps them on disk until the portal has them, and executes its commands.

Belongs here: probes, health checks, the outbox of unsent reports, the connection to the portal, the execution of
commands. Never here: a decision about the node (the portal decides), a server that accepts writes, Kubernetes, global
state. Many agents may run in one process, so devices, clock and boot ID are arguments.
"""

VERSION = "1.0.0"
