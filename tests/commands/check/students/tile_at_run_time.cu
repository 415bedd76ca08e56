/*
 * Assignment 4 - dynamic shared memory
 * usage: ./a.out <M> <K> <N> <tile>
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" __global__ void mmDyn(const float *A, const float *B, float *C, int M, int K, int N)
{
    extern __shared__ float smem[];
    const int tile = blockDim.x;
    float *sA = smem;
    float *sB = smem + tile * tile;

    int r = blockIdx.y * tile + threadIdx.y;
    int c = blockIdx.x * tile + threadIdx.x;
    int tid = threadIdx.y * tile + threadIdx.x;

    float v = 0.f;
    for (int k0 = 0; k0 < K; k0 += tile) {
        sA[tid] = (r < M && k0 + threadIdx.x < K) ? A[r * K + k0 + threadIdx.x] : 0.f;
        sB[tid] = (c < N && k0 + threadIdx.y < K) ? B[(k0 + threadIdx.y) * N + c] : 0.f;
        __syncthreads();
        for (int j = 0; j < tile; j++)
            v += sA[threadIdx.y * tile + j] * sB[j * tile + threadIdx.x];
        __syncthreads();
    }
    if (r < M && c < N)
        C[r * N + c] = v;
}

static void die(const char *m) { fprintf(stderr, "%s\n", m); exit(EXIT_FAILURE); }

int main(int argc, char *argv[])
{
    if (argc != 5) die("usage: a.out M K N tile");
    int M = atoi(argv[1]), K = atoi(argv[2]), N = atoi(argv[3]);
    int T = atoi(argv[4]);
    float *A, *B, *C;
    if (cudaMallocManaged(&A, sizeof(float) * M * K) != cudaSuccess) die("A");
    if (cudaMallocManaged(&B, sizeof(float) * K * N) != cudaSuccess) die("B");
    if (cudaMallocManaged(&C, sizeof(float) * M * N) != cudaSuccess) die("C");
    for (int i = 0; i < M * K; i++) A[i] = (float)rand() / RAND_MAX;
    for (int i = 0; i < K * N; i++) B[i] = (float)rand() / RAND_MAX;
    memset(C, 0, sizeof(float) * M * N);
    dim3 thr(T, T), blk((N + T - 1) / T, (M + T - 1) / T);
    mmDyn<<<blk, thr, 2 * T * T * sizeof(float)>>>(A, B, C, M, K, N);
    cudaDeviceSynchronize();
    printf("%f\n", C[0]);
    return 0;
}
