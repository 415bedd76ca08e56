// C = alpha*A*B + beta*C, column major storage like BLAS/Fortran
#include <stdio.h>
#include <cublas_v2.h>
#include "helper_cuda.h"

#define IDX2C(i, j, ld) (((j) * (ld)) + (i))
#define TS 16

__global__ void sgemm_cm(int M, int N, int K, float alpha, const float *A, int lda, const float *B, int ldb,
                         float beta, float *C, int ldc)
{
    __shared__ float Asub[TS][TS + 1];
    __shared__ float Bsub[TS][TS + 1];
    const int i = threadIdx.x, j = threadIdx.y;
    const int gi = blockIdx.x * TS + i;
    const int gj = blockIdx.y * TS + j;
    float acc = 0.0f;
    for (int t = 0; t < (K + TS - 1) / TS; t++) {
        int kA = t * TS + j, kB = t * TS + i;
        Asub[j][i] = 0.0f;
        Bsub[j][i] = 0.0f;
        if (gi < M && kA < K) Asub[j][i] = A[IDX2C(gi, kA, lda)];
        if (gj < N && kB < K) Bsub[j][i] = B[IDX2C(kB, gj, ldb)];
        __syncthreads();
        for (int k = 0; k < TS; k++)
            acc += Asub[k][i] * Bsub[j][k];
        __syncthreads();
    }
    if (gi < M && gj < N) {
        if (beta == 0.0f)
            C[IDX2C(gi, gj, ldc)] = alpha * acc;
        else
            C[IDX2C(gi, gj, ldc)] = alpha * acc + beta * C[IDX2C(gi, gj, ldc)];
    }
}

int main(void)
{
    const int M = 640, N = 320, K = 480;
    const float alpha = 1.0f, beta = 0.0f;
    float *A, *B, *C;
    checkCudaErrors(cudaMalloc((void **)&A, M * K * sizeof(float)));
    checkCudaErrors(cudaMalloc((void **)&B, K * N * sizeof(float)));
    checkCudaErrors(cudaMalloc((void **)&C, M * N * sizeof(float)));
    dim3 threads(TS, TS);
    dim3 blocks((M + TS - 1) / TS, (N + TS - 1) / TS);
    sgemm_cm<<<blocks, threads>>>(M, N, K, alpha, A, M, B, K, beta, C, M);
    checkCudaErrors(cudaDeviceSynchronize());
    cublasHandle_t handle;
    cublasCreate(&handle);
    cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, M, N, K, &alpha, A, M, B, K, &beta, C, M);
    cublasDestroy(handle);
    return 0;
}
