// sums: sums over a warp by shuffles, which `gemv_vectorized` introduces, and over a block by
// shuffles and one barrier, which `gemv_block` introduces.

#pragma once

// Returns the sum over the lanes of the warp, in every lane.
template <typename Scalar>
__device__ inline Scalar warp_sum(Scalar sum) {
  for (int half = 16; half > 0; half /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, half);
  return sum;
}

// Returns the sum over the threads of the block, in every thread. `sums` is shared memory for
// THREADS / 32 elements, which another thread may still read afterwards.
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
