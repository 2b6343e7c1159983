"""Health checks that a node runs on a timer, on command or before a job; names and limits follow Autopilot.

Belongs here: one module for each check, and the runner, which runs one at a time and keeps heavy ones off GPUs in use.
Never here: observation without load (a probe), or a decision about the node.
"""
