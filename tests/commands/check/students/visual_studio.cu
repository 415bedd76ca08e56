#include "cuda_runtime.h"
#include "device_launch_parameters.h"
#include <iostream>
#include <chrono>
using namespace std;

typedef float real;

// P = M * N, where M is (height x inner) and N is (inner x width)
__global__ void MatrixMulKernel(real* d_M, real* d_N, real* d_P, int height, int width, int inner)
{
	int Row = threadIdx.y + blockIdx.y * blockDim.y;
	int Col = threadIdx.x + blockIdx.x * blockDim.x;

	if ((Row < height) && (Col < width))
	{
		real Pvalue = 0;
		for (int k = 0; k < inner; ++k)
		{
			Pvalue += d_M[Row * inner + k] * d_N[k * width + Col];
		}
		d_P[Row * width + Col] = Pvalue;
	}
}

int main()
{
	int height = 100, inner = 80, width = 60;
	real *d_M, *d_N, *d_P;
	cudaMalloc((void**)&d_M, height * inner * sizeof(real));
	cudaMalloc((void**)&d_N, inner * width * sizeof(real));
	cudaMalloc((void**)&d_P, height * width * sizeof(real));

	dim3 DimBlock(16, 16, 1);
	dim3 DimGrid(ceil(width / 16.0), ceil(height / 16.0), 1);

	auto begin = chrono::high_resolution_clock::now();
	MatrixMulKernel << <DimGrid, DimBlock >> > (d_M, d_N, d_P, height, width, inner);
	cudaDeviceSynchronize();
	auto end = chrono::high_resolution_clock::now();
	cout << chrono::duration<double, milli>(end - begin).count() << " ms" << endl;

	cudaFree(d_M);
	cudaFree(d_N);
	cudaFree(d_P);
	return 0;
}
