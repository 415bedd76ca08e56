"""What a device can do: architectures, peaks, occupancy, the roofline."""
