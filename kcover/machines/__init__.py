"""Machines and their parts: controllers, serial numbers, risk."""
