"""Faults of GPUs, NVLink switches and CPUs: log lines, codes and the catalogue of their meaning."""
