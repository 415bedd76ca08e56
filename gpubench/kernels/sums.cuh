// sums: over a warp by shuffles, over a block by shuffles and one barrier.

#pragma once

// Σ over the warp's lanes, the same in all of them.
template <typename Scalar>
__device__ inline Scalar warp_sum(Scalar sum) {
  for (int half = 16; half > 0; half /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, half);
  return sum;
}

// Σ over the block's threads, the same in all of them. `sums` holds THREADS / 32 elements of shared
// memory, and not those of the call before: another thread may still be reading them.
template <typename Scalar, int THREADS>
__device__ Scalar block_sum(Scalar sum, Scalar* sums) {
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  Scalar total = 0;
#pragma unroll
  for (int warp = 0; warp < THREADS / 32; ++warp) total += sums[warp];
  return total;
}
