// The functions of CUDA's header of this name, which the wheels do not have.
#pragma once

#include <cuda_runtime_api.h>

extern "C" cudaError_t cudaProfilerStart();
extern "C" cudaError_t cudaProfilerStop();
