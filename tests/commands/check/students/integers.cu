#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <vector>
using std::cout;
using std::generate;
using std::vector;

__global__ void matrixMul(const int *a, const int *b, int *c, int N) {
  int row = blockIdx.y * blockDim.y + threadIdx.y;
  int col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= N || col >= N) return;
  c[row * N + col] = 0;
  for (int k = 0; k < N; k++) {
    c[row * N + col] += a[row * N + k] * b[k * N + col];
  }
}

void verify_result(vector<int> &a, vector<int> &b, vector<int> &c, int N) {
  for (int i = 0; i < N; i++) cout << a[i] + b[i] + c[i];
}

int main() {
  int N = 1 << 10;
  vector<int> h_a(N * N), h_b(N * N), h_c(N * N);
  generate(h_a.begin(), h_a.end(), []() { return rand() % 100; });
  int *d_a, *d_b, *d_c;
  cudaMalloc(&d_a, N * N * sizeof(int));
  cudaMalloc(&d_b, N * N * sizeof(int));
  cudaMalloc(&d_c, N * N * sizeof(int));
  int THREADS = 32;
  int BLOCKS = (N + THREADS - 1) / THREADS;
  dim3 threads(THREADS, THREADS);
  dim3 blocks(BLOCKS, BLOCKS);
  matrixMul<<<blocks, threads>>>(d_a, d_b, d_c, N);
  verify_result(h_a, h_b, h_c, N);
}
