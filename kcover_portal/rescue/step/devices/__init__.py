"""One GPU instead of a node: its names, its DeviceTaintRule."""
