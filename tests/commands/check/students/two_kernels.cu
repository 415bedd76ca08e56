/* Compare naive and tiled multiplication of square matrices.
   Author: me :)   CS 475                                      */
#include <stdio.h>
#include <math.h>
#define BLOCK 16
#define N_DEFAULT 1000

#define gpuErrchk(ans) { gpuAssert((ans), __FILE__, __LINE__); }
inline void gpuAssert(cudaError_t code, const char *file, int line, bool abort = true)
{
   if (code != cudaSuccess)
   {
      fprintf(stderr, "GPUassert: %s %s %d\n", cudaGetErrorString(code), file, line);
      if (abort) exit(code);
   }
}

__global__ void gpu_naive(const float *A, const float *B, float *C, int N)
{
   int i = blockIdx.y * BLOCK + threadIdx.y;
   int j = blockIdx.x * BLOCK + threadIdx.x;
   if (i >= N || j >= N) return;
   float t = 0.0;
   for (int k = 0; k < N; k++) t += A[i*N + k] * B[k*N + j];
   C[i*N + j] = t;
}

__global__ void gpu_tiled(const float *A, const float *B, float *C, int N)
{
   __shared__ float tileA[BLOCK][BLOCK];
   __shared__ float tileB[BLOCK][BLOCK];
   int i = blockIdx.y * BLOCK + threadIdx.y;
   int j = blockIdx.x * BLOCK + threadIdx.x;
   float t = 0.0;
   for (int s = 0; s < (N + BLOCK - 1) / BLOCK; s++)
   {
      int ka = s*BLOCK + threadIdx.x;
      int kb = s*BLOCK + threadIdx.y;
      tileA[threadIdx.y][threadIdx.x] = (i < N && ka < N) ? A[i*N + ka] : 0;
      tileB[threadIdx.y][threadIdx.x] = (j < N && kb < N) ? B[kb*N + j] : 0;
      __syncthreads();
      for (int k = 0; k < BLOCK; k++)
         t += tileA[threadIdx.y][k] * tileB[k][threadIdx.x];
      __syncthreads();
   }
   if (i < N && j < N) C[i*N + j] = t;
}

int main(int argc, char **argv)
{
   int N = argc > 1 ? atoi(argv[1]) : N_DEFAULT;
   size_t size = N*N*sizeof(float);
   float *hA, *hB, *hC, *hD, *dA, *dB, *dC;
   cudaMallocHost((void **) &hA, size);
   cudaMallocHost((void **) &hB, size);
   cudaMallocHost((void **) &hC, size);
   cudaMallocHost((void **) &hD, size);
   for (int i = 0; i < N*N; i++) { hA[i] = i % 7; hB[i] = i % 5; }
   gpuErrchk(cudaMalloc((void **) &dA, size));
   gpuErrchk(cudaMalloc((void **) &dB, size));
   gpuErrchk(cudaMalloc((void **) &dC, size));
   gpuErrchk(cudaMemcpy(dA, hA, size, cudaMemcpyHostToDevice));
   gpuErrchk(cudaMemcpy(dB, hB, size, cudaMemcpyHostToDevice));
   unsigned int g = (N + BLOCK - 1) / BLOCK;
   dim3 dimGrid(g, g);
   dim3 dimBlock(BLOCK, BLOCK);
   gpu_naive<<<dimGrid, dimBlock>>>(dA, dB, dC, N);
   gpuErrchk(cudaPeekAtLastError());
   cudaMemcpy(hC, dC, size, cudaMemcpyDeviceToHost);
   gpu_tiled<<<dimGrid, dimBlock>>>(dA, dB, dC, N);
   gpuErrchk(cudaPeekAtLastError());
   cudaMemcpy(hD, dC, size, cudaMemcpyDeviceToHost);
   int bad = 0;
   for (int i = 0; i < N*N; i++) if (fabs(hC[i] - hD[i]) > 1e-3) bad++;
   printf("%d differences\n", bad);
   return bad != 0;
}
