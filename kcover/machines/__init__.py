"""Machines and their parts: controllers, repairs, vendors, serial numbers."""
