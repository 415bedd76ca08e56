#include <iostream>
#include <cassert>
#define TILE_WIDTH 16

__global__ void MatrixMulKernel(float* A, float* B, float* C, int Width) {
  __shared__ float Mds[TILE_WIDTH][TILE_WIDTH];
  __shared__ float Nds[TILE_WIDTH][TILE_WIDTH];
  int bx = blockIdx.x;  int by = blockIdx.y;
  int tx = threadIdx.x; int ty = threadIdx.y;
  int Row = by * TILE_WIDTH + ty;
  int Col = bx * TILE_WIDTH + tx;
  float Pvalue = 0;
  for (int ph = 0; ph < (Width + TILE_WIDTH - 1) / TILE_WIDTH; ++ph) {
    if (Row < Width && ph * TILE_WIDTH + tx < Width)
      Mds[ty][tx] = A[Row * Width + ph * TILE_WIDTH + tx];
    else
      Mds[ty][tx] = 0.0f;
    if (ph * TILE_WIDTH + ty < Width && Col < Width)
      Nds[ty][tx] = B[(ph * TILE_WIDTH + ty) * Width + Col];
    else
      Nds[ty][tx] = 0.0f;
    __syncthreads();
    for (int k = 0; k < TILE_WIDTH; ++k) {
      Pvalue += Mds[ty][k] * Nds[k][tx];
    }
    __syncthreads();
  }
  if (Row < Width && Col < Width) C[Row * Width + Col] = Pvalue;
}

int main() {
  int Width = 1000;
  float *A, *B, *C;
  cudaMallocManaged(&A, Width * Width * sizeof(float));
  cudaMallocManaged(&B, Width * Width * sizeof(float));
  cudaMallocManaged(&C, Width * Width * sizeof(float));
  dim3 dimBlock(TILE_WIDTH, TILE_WIDTH);
  dim3 dimGrid(ceil(Width / (float)TILE_WIDTH), ceil(Width / (float)TILE_WIDTH));
  MatrixMulKernel<<<dimGrid, dimBlock>>>(A, B, C, Width);
  assert(cudaDeviceSynchronize() == cudaSuccess);
  std::cout << C[0] << std::endl;
}
