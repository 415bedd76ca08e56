// Matrices are stored in row-major order:
// M(row, col) = *(M.elements + row * M.stride + col)
#include <stdio.h>
#include <stdlib.h>

typedef struct {
    int width;
    int height;
    int stride;
    float* elements;
} Matrix;

#define BLOCK_SIZE 16

__device__ float GetElement(const Matrix A, int row, int col)
{
    return (row < A.height && col < A.width) ? A.elements[row * A.stride + col] : 0.0f;
}

__device__ void SetElement(Matrix A, int row, int col, float value)
{
    if (row < A.height && col < A.width)
        A.elements[row * A.stride + col] = value;
}

__global__ void MatMulKernel(Matrix A, Matrix B, Matrix C)
{
    __shared__ float As[BLOCK_SIZE][BLOCK_SIZE];
    __shared__ float Bs[BLOCK_SIZE][BLOCK_SIZE];
    int row = threadIdx.y, col = threadIdx.x;
    int r = blockIdx.y * BLOCK_SIZE + row, c = blockIdx.x * BLOCK_SIZE + col;
    float Cvalue = 0;
    for (int m = 0; m < (A.width + BLOCK_SIZE - 1) / BLOCK_SIZE; ++m) {
        As[row][col] = GetElement(A, r, m * BLOCK_SIZE + col);
        Bs[row][col] = GetElement(B, m * BLOCK_SIZE + row, c);
        __syncthreads();
        for (int e = 0; e < BLOCK_SIZE; ++e)
            Cvalue += As[row][e] * Bs[e][col];
        __syncthreads();
    }
    SetElement(C, r, c, Cvalue);
}

void MatMul(const Matrix A, const Matrix B, Matrix C)
{
    Matrix d_A, d_B, d_C;
    d_A.width = d_A.stride = A.width; d_A.height = A.height;
    size_t size = A.width * A.height * sizeof(float);
    cudaMalloc(&d_A.elements, size);
    cudaMemcpy(d_A.elements, A.elements, size, cudaMemcpyHostToDevice);
    d_B.width = d_B.stride = B.width; d_B.height = B.height;
    size = B.width * B.height * sizeof(float);
    cudaMalloc(&d_B.elements, size);
    cudaMemcpy(d_B.elements, B.elements, size, cudaMemcpyHostToDevice);
    d_C.width = d_C.stride = C.width; d_C.height = C.height;
    size = C.width * C.height * sizeof(float);
    cudaMalloc(&d_C.elements, size);

    dim3 dimBlock(BLOCK_SIZE, BLOCK_SIZE);
    dim3 dimGrid((B.width + dimBlock.x - 1) / dimBlock.x, (A.height + dimBlock.y - 1) / dimBlock.y);
    MatMulKernel<<<dimGrid, dimBlock>>>(d_A, d_B, d_C);

    cudaMemcpy(C.elements, d_C.elements, size, cudaMemcpyDeviceToHost);
    cudaFree(d_A.elements);
    cudaFree(d_B.elements);
    cudaFree(d_C.elements);
}

int main(int argc, char* argv[])
{
    Matrix A, B, C;
    A.height = atoi(argv[1]); A.width = A.stride = atoi(argv[2]);
    B.height = A.width; B.width = B.stride = atoi(argv[3]);
    C.height = A.height; C.width = C.stride = B.width;
    A.elements = (float*)malloc(A.width * A.height * sizeof(float));
    B.elements = (float*)malloc(B.width * B.height * sizeof(float));
    C.elements = (float*)malloc(C.width * C.height * sizeof(float));
    for (int i = 0; i < A.height * A.width; i++) A.elements[i] = (rand() % 3);
    for (int i = 0; i < B.height * B.width; i++) B.elements[i] = (rand() % 2);
    MatMul(A, B, C);
    printf("%f\n", C.elements[0]);
}
