"""Faults of GPUs, NVLink switches and CPUs: log lines, codes and the catalog of their meaning."""
