// rectangular multiply, one thread per column block of 4 rows
#include <cstdio>
#define ROWS 4
#define THREADS 128

__global__ void mm_rows(int m, int n, int k, const double *a, const double *b, double *c)
{
    int j = blockIdx.x * THREADS + threadIdx.x;
    int i0 = blockIdx.y * ROWS;
    if (j >= n)
        return;
    double s[ROWS] = {0.0};
    for (int p = 0; p < k; p++) {
        double bv = b[p * n + j];
        for (int r = 0; r < ROWS; r++)
            if (i0 + r < m) s[r] += a[(i0 + r) * k + p] * bv;
    }
    for (int r = 0; r < ROWS; r++)
        if (i0 + r < m)
            c[(i0 + r) * n + j] = s[r];
}

int main()
{
    int m = 1023, n = 511, k = 257;
    double *a, *b, *c;
    cudaMalloc(&a, sizeof(double) * m * k);
    cudaMalloc(&b, sizeof(double) * k * n);
    cudaMalloc(&c, sizeof(double) * m * n);
    cudaMemset(a, 0, sizeof(double) * m * k);
    cudaMemset(b, 0, sizeof(double) * k * n);
    dim3 grid((n + THREADS - 1) / THREADS, (m + ROWS - 1) / ROWS);
    mm_rows<<<grid, THREADS>>>(m, n, k, a, b, c);
    printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
}
