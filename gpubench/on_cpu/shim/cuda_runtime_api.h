// What a source for nvcc includes: cuda.h has it all.
#pragma once
#include "cuda.h"
