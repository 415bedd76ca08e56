// A source for nvcc includes this file. cuda.h has all of its definitions.
#pragma once
#include "cuda.h"
