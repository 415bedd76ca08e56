// softmax_warp: a warp computes a row, and shuffles its maximum and its sum among its lanes.

template <typename Scalar>
__global__ void softmax_warp(const Scalar* X, Scalar* Y, int ROWS, int COLS) {
  const int row = blockIdx.x * blockDim.y + threadIdx.y;
  const int lane = threadIdx.x;
  if (row >= ROWS) return;  // all threads of a warp have one row
  const Scalar* x = X + (long long)row * COLS;
  Scalar* y = Y + (long long)row * COLS;
  float highest = -3.4e38f, total = 0;
  for (int column = lane; column < COLS; column += 32) highest = fmaxf(highest, (float)x[column]);
  for (int step = 16; step > 0; step /= 2)
    highest = fmaxf(highest, __shfl_xor_sync(0xffffffff, highest, step));
  for (int column = lane; column < COLS; column += 32) total += expf((float)x[column] - highest);
  for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(0xffffffff, total, step);
  for (int column = lane; column < COLS; column += 32)
    y[column] = (Scalar)(expf((float)x[column] - highest) / total);
}
