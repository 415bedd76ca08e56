// float4 loads where the row is a multiple of 4, scalar otherwise
#include <cuda_runtime.h>
#include <cstdint>

#define TILE_M 32
#define TILE_N 64
#define TILE_K 16
#define CEIL_DIV(a, b) (((a) + (b) - 1) / (b))

__device__ __forceinline__ float4 load4(const float *p, int row, int col, int rows, int cols)
{
    float4 v = make_float4(0.f, 0.f, 0.f, 0.f);
    if (row >= rows) return v;
    const float *q = p + (int64_t)row * cols + col;
    if (cols % 4 == 0 && col + 3 < cols) {
        v = *reinterpret_cast<const float4 *>(q);
    } else {
        if (col + 0 < cols) v.x = q[0];
        if (col + 1 < cols) v.y = q[1];
        if (col + 2 < cols) v.z = q[2];
        if (col + 3 < cols) v.w = q[3];
    }
    return v;
}

__global__ void sgemm_float4(const float *A, const float *B, float *C, int m, int n, int k)
{
    __shared__ float sa[TILE_K][TILE_M + 4];
    __shared__ __align__(16) float sb[TILE_K][TILE_N];
    const int t = threadIdx.x;             // 128 threads
    const int bm = blockIdx.x * TILE_M;
    const int bn = blockIdx.y * TILE_N;
    float4 acc[4] = {};

    for (int k0 = 0; k0 < k; k0 += TILE_K) {
        {   // A: 32 x 16 = 128 float4
            int r = t / 4, c = (t % 4) * 4;
            float4 v = load4(A, bm + r, k0 + c, m, k);
            sa[c + 0][r] = v.x; sa[c + 1][r] = v.y; sa[c + 2][r] = v.z; sa[c + 3][r] = v.w;
        }
        for (int i = 0; i < 2; i++) {   // B: 16 x 64 = 256 float4
            int x = t + i * 128;
            int r = x / 16, c = (x % 16) * 4;
            *(float4 *)&sb[r][c] = load4(B, k0 + r, bn + c, k, n);
        }
        __syncthreads();
        const int tr = (t / 16) * 4, tc = (t % 16) * 4;
        #pragma unroll
        for (int p = 0; p < TILE_K; p++) {
            float4 b4 = *(float4 *)&sb[p][tc];
            for (int i = 0; i < 4; i++) {
                float a = sa[p][tr + i];
                acc[i].x += a * b4.x;
                acc[i].y += a * b4.y;
                acc[i].z += a * b4.z;
                acc[i].w += a * b4.w;
            }
        }
        __syncthreads();
    }
    const int tr = (t / 16) * 4, tc = (t % 16) * 4;
    for (int i = 0; i < 4; i++) {
        int row = bm + tr + i, col = bn + tc;
        if (row < m) {
            float *out = C + (int64_t)row * n + col;
            if (n % 4 == 0 && col + 3 < n) *(float4 *)out = acc[i];
            else {
                if (col < n) out[0] = acc[i].x;
                if (col + 1 < n) out[1] = acc[i].y;
                if (col + 2 < n) out[2] = acc[i].z;
                if (col + 3 < n) out[3] = acc[i].w;
            }
        }
    }
}

void solve(const float *A, const float *B, float *C, int m, int n, int k)
{
    dim3 blocks(CEIL_DIV(m, TILE_M), CEIL_DIV(n, TILE_N));
    sgemm_float4<<<blocks, 128>>>(A, B, C, m, n, k);
    cudaDeviceSynchronize();
}
