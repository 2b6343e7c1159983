"""Reports of a large fleet: throughput, CPU cost, latency, and reports lost in a crash."""
