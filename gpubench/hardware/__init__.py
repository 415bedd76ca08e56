"""What silicon can do: architectures, peaks, occupancy, the roofline."""
