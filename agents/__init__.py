"""The node agent: sees faults on one node, keeps them on disk until the portal has them, does what the portal asks.

Belongs here: probes that read the node, the spool, the line to the portal, the execution of commands. Never here: a
decision about the node (the portal decides), a server, Kubernetes, anything process-global: many agents may live in one
process, with devices, clock and boot id passed in.
"""

VERSION = "1.0.0"
