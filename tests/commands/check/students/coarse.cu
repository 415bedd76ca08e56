/** thread coarsening: each thread computes COARSE columns, W x W matrices */
#include <assert.h>
#include <stdio.h>
#define TILE 16
#define COARSE 2

__global__ void coarse(const float *__restrict__ P, const float *__restrict__ Q, float *__restrict__ R, unsigned W)
{
    __shared__ float p[TILE][TILE], q[TILE][TILE];
    const unsigned tx = threadIdx.x, ty = threadIdx.y;
    const unsigned y = blockIdx.y * TILE + ty;
    const unsigned x0 = blockIdx.x * TILE * COARSE + tx;

    float sum[COARSE] = {0.0f};

    for (unsigned t = 0; t < W; t += TILE) {
        p[ty][tx] = y < W && t + tx < W ? P[y * W + t + tx] : 0;
        for (int c = 0; c < COARSE; c++) {
            unsigned x = x0 + c * TILE;
            q[ty][tx] = x < W && t + ty < W ? Q[(t + ty) * W + x] : 0;
            __syncthreads();
            for (int k = 0; k < TILE; k++)
                sum[c] += p[ty][k] * q[k][tx];
            __syncthreads();
        }
    }
    for (int c = 0; c < COARSE; c++) {
        unsigned x = x0 + c * TILE;
        if (y < W && x < W)
            R[y * W + x] = sum[c];
    }
}

int main()
{
    const unsigned W = 777;
    float *P, *Q, *R;
    assert(cudaMallocManaged(&P, W * W * 4) == cudaSuccess);
    assert(cudaMallocManaged(&Q, W * W * 4) == cudaSuccess);
    assert(cudaMallocManaged(&R, W * W * 4) == cudaSuccess);
    const unsigned gx = (W + TILE * COARSE - 1) / (TILE * COARSE);
    const unsigned gy = (W + TILE - 1) / TILE;
    coarse<<<dim3(gx, gy), dim3(TILE, TILE)>>>(P, Q, R, W);
    cudaDeviceSynchronize();
    puts("done");
}
