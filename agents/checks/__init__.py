"""Health checks that a node runs on a timer, on command or before a job; the names and limits are Autopilot's.

Belongs here: one module a check, and the runner that lets one run at a time and keeps heavy ones off GPUs in use. Never
here: what only looks (a probe), or a verdict about the node.
"""
