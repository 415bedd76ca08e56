"""Computes limits of devices, such as peaks, occupancy and the roofline."""
