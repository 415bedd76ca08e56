// The functions of CUDA's header with this name, which the wheels lack.
#pragma once

#include <cuda_runtime_api.h>

extern "C" cudaError_t cudaProfilerStart();
extern "C" cudaError_t cudaProfilerStop();
