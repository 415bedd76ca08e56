// A warp computes a row: lane l has the values l, l + 32, … of the row, and the sums of one pass.
constexpr int MAX_D = 256;

template <typename Scalar>
__global__ void attention_warp(const Scalar* Q, const Scalar* K, const Scalar* V, Scalar* O, int S,
                               int D) {
  const int row = blockIdx.x * blockDim.y + threadIdx.y;
  if (row >= S) return;
  const float scale = 1 / sqrtf(float(D));
  float q[MAX_D / 32], sums[MAX_D / 32], total = 0, largest = -3.4e38f;
  for (int i = 0; i < MAX_D / 32; ++i) {
    const int d = 32 * i + threadIdx.x;
    q[i] = d < D ? scale * float(Q[size_t(row) * D + d]) : 0;
    sums[i] = 0;
  }
  for (int other = 0; other <= row; ++other) {
    float score = 0;
    for (int i = 0; i < MAX_D / 32; ++i) {
      const int d = 32 * i + threadIdx.x;
      if (d < D) score += q[i] * float(K[size_t(other) * D + d]);
    }
    for (int lanes = 16; lanes > 0; lanes /= 2) score += __shfl_xor_sync(~0u, score, lanes);
    const float before = largest;
    largest = fmaxf(largest, score);
    const float kept = expf(before - largest), weight = expf(score - largest);
    total = total * kept + weight;
    for (int i = 0; i < MAX_D / 32; ++i) {
      const int d = 32 * i + threadIdx.x;
      if (d < D) sums[i] = sums[i] * kept + weight * float(V[size_t(other) * D + d]);
    }
  }
  for (int i = 0; i < MAX_D / 32; ++i) {
    const int d = 32 * i + threadIdx.x;
    if (d < D) O[size_t(row) * D + d] = Scalar(sums[i] / total);
  }
}
