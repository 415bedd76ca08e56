// Three products of a matrix and a vector with the habits of other people's kernels. The tests plant
// access faults in them.

template <typename T>
__device__ T warp_reduce(T val) {
  for (int offset = 16; offset > 0; offset /= 2) val += __shfl_down_sync(0xffffffff, val, offset);
  return val;
}

// A warp per row, and four rows per block.
__global__ void matvec_warp(const float *mat, const float *vec, float *out, int rows, int cols) {
  const int lane = threadIdx.x % 32;
  const int r = blockIdx.x * 4 + threadIdx.x / 32;
  if (r >= rows) return;
  float s = 0.f;
  for (int j = lane; j < cols; j += 32) {
    s += mat[(size_t)r * cols + j] * vec[j];
  }
  s = warp_reduce(s);
  if (lane == 0) out[r] = s;
}

// A block of 256 threads per row, whose sums are added in shared memory.
__global__ void matvec_block(const float *mat, const float *vec, float *out, int rows, int cols) {
  __shared__ float sums[256];
  const unsigned tid = threadIdx.x;
  float s = 0.f;
  for (int j = tid; j < cols; j += 256) {
    s += mat[(size_t)blockIdx.x * cols + j] * vec[j];
  }
  sums[tid] = s;
  __syncthreads();
  for (unsigned n = 1; n < 256; n *= 2) {
    const unsigned pairs = 128 / n;
    if (tid < pairs) sums[tid] += sums[tid + pairs];
    __syncthreads();
  }
  if (tid == 0) out[blockIdx.x] = sums[0];
}

// A block of 128 threads adds 32 rows of each strip of 128 columns, with loads of float4.
__global__ void matvec_strips(const float *mat, const float *vec, float *out, int rows, int cols) {
  __shared__ float part[32][33];
  const int tx = threadIdx.x, ty = threadIdx.y;
  const int r0 = blockIdx.x * 32;
  for (int i = ty; i < 32; i += 4) {
    float s = 0.f;
    for (int j = tx * 4; j < cols; j += 128) {
      const float4 m = *reinterpret_cast<const float4 *>(mat + (size_t)min(r0 + i, rows - 1) * cols + j);
      const float4 v = *reinterpret_cast<const float4 *>(vec + j);
      s += m.x * v.x + m.y * v.y + m.z * v.z + m.w * v.w;
    }
    part[i][tx] = s;
  }
  __syncthreads();
  if (ty == 0 && r0 + tx < rows) {
    float s = 0.f;
    for (int j = 0; j < 32; j++) s += part[tx][j];
    out[r0 + tx] = s;
  }
}
