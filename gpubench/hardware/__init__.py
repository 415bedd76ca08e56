"""Limits of devices: architectures, peaks, occupancy, the roofline."""
