#include <iostream>
#include <vector>
#include <random>
#include <cassert>
#include <cuda_runtime.h>

#define CUDA_CHECK(call)                                                              \
    {                                                                                 \
        const cudaError_t error = call;                                               \
        if (error != cudaSuccess) {                                                   \
            std::cerr << "Error: " << __FILE__ << ":" << __LINE__ << ", "             \
                      << cudaGetErrorString(error) << std::endl;                      \
            exit(1);                                                                  \
        }                                                                             \
    }

constexpr int BLOCK_SIZE = 32;

__global__ void gemmKernel(const float* __restrict__ A, const float* __restrict__ B,
                           float* __restrict__ C, const int M, const int N, const int K) {
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= M || col >= N) return;
    float acc = 0.0f;
#pragma unroll 4
    for (int k = 0; k < K; ++k) {
        acc = fmaf(A[row * K + k], B[k * N + col], acc);
    }
    C[row * N + col] = acc;
}

void gemm(const float* dA, const float* dB, float* dC, int M, int N, int K) {
    dim3 block(BLOCK_SIZE, BLOCK_SIZE);
    dim3 grid((N + BLOCK_SIZE - 1) / BLOCK_SIZE, (M + BLOCK_SIZE - 1) / BLOCK_SIZE);
    gemmKernel<<<grid, block>>>(dA, dB, dC, M, N, K);
    CUDA_CHECK(cudaGetLastError());
    CUDA_CHECK(cudaDeviceSynchronize());
}

int main() {
    const int M = 1000, N = 1200, K = 800;
    std::vector<float> a(M * K), b(K * N), c(M * N);
    std::mt19937 gen(42);
    std::uniform_real_distribution<float> dist(-1.0f, 1.0f);
    for (auto& x : a) x = dist(gen);
    for (auto& x : b) x = dist(gen);
    float *dA, *dB, *dC;
    CUDA_CHECK(cudaMalloc(&dA, a.size() * sizeof(float)));
    CUDA_CHECK(cudaMalloc(&dB, b.size() * sizeof(float)));
    CUDA_CHECK(cudaMalloc(&dC, c.size() * sizeof(float)));
    CUDA_CHECK(cudaMemcpy(dA, a.data(), a.size() * sizeof(float), cudaMemcpyHostToDevice));
    CUDA_CHECK(cudaMemcpy(dB, b.data(), b.size() * sizeof(float), cudaMemcpyHostToDevice));
    gemm(dA, dB, dC, M, N, K);
    CUDA_CHECK(cudaMemcpy(c.data(), dC, c.size() * sizeof(float), cudaMemcpyDeviceToHost));
    std::cout << "C[0] = " << c[0] << std::endl;
    cudaFree(dA);
    cudaFree(dB);
    cudaFree(dC);
}
