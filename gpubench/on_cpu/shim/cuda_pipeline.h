// A kernel includes it for __pipeline_memcpy_async, which cuda.h defines.
#pragma once
