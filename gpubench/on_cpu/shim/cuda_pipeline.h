// A kernel includes this file for __pipeline_memcpy_async, which cuda.h defines.
#pragma once
