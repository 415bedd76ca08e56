// gate: keeps the stream busy while the host enqueues what is to be timed behind it.
//
// It spins for a fixed number of cycles and not until the host raises a flag: with lazy module
// loading, a kernel that waits for the host can wait for itself.

__global__ void gate(long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
}
