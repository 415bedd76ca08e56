"""The emulated types of 8 and 16 bits have the numbers and the rounding of ml_dtypes."""

import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from gpubench.on_cpu.run import gxx
from gpubench.on_cpu.unit import SHIM

pytestmark = pytest.mark.slow

PROGRAM = """
#include "cuda_fp8.h"
#include <cstdio>
template <typename F, typename Bits> void decoded() {
  for (unsigned bits = 0; bits < 1u << 8 * sizeof(Bits); ++bits) {
    const float value = F::decode(static_cast<Bits>(bits));
    std::fwrite(&value, 4, 1, stdout);
  }
}
int main() {
  decoded<on_cpu::HalfFormat, unsigned short>();
  decoded<on_cpu::Bfloat16Format, unsigned short>();
  decoded<on_cpu::Format<unsigned char, 4, 3, 0x7E>, unsigned char>();
  decoded<on_cpu::Format<unsigned char, 5, 2, 0x7B>, unsigned char>();
  for (float value; std::fread(&value, 4, 1, stdin) == 1;) {
    const unsigned short bits[] = {__half(value).bits, __nv_bfloat16(value).bits,
                                   __nv_fp8_e4m3(value).__x, __nv_fp8_e5m2(value).__x};
    std::fwrite(bits, 2, 4, stdout);
  }
}
"""

TYPES = (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)


def test_every_number_and_the_rounding_of_every_kind_of_number(tmp_path: Path) -> None:
    program = tmp_path / "program"
    gxx("-O1", "-w", f"-I{SHIM}", "-x", "c++", "-", "-o", str(program),
        "-Wl,--unresolved-symbols=ignore-all", text=PROGRAM)  # fmt: skip
    rng = np.random.default_rng(1)
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    values = np.concatenate(
        [
            rng.normal(size=20_000) * 10.0 ** rng.integers(-9, 6, 20_000),
            (halves[:-1] + halves[1:]) / 2,  # halfway between two numbers
            [0.0, -0.0, 65504, 65519, 65520, 2.0**-25, 448, 464, 465, 1e9, np.inf],
        ]
    ).astype(np.float32)
    done = subprocess.run([program], input=values.tobytes(), capture_output=True, check=True)
    decoded = np.frombuffer(done.stdout, np.float32, 2 * 65_536 + 2 * 256)
    encoded = np.frombuffer(done.stdout, np.uint16, offset=decoded.nbytes).reshape(-1, 4)
    start = 0
    for column, kind in enumerate(TYPES):
        bits = np.dtype(f"u{np.dtype(kind).itemsize}")
        count = 256**bits.itemsize
        with np.errstate(invalid="ignore", over="ignore"):
            all_numbers = np.arange(count).astype(bits).view(kind).astype(np.float32)
            limit = np.inf if bits.itemsize > 1 else float(ml_dtypes.finfo(kind).max)
            rounded = np.clip(values, -limit, limit).astype(kind).view(bits)
        np.testing.assert_array_equal(decoded[start : start + count], all_numbers)
        np.testing.assert_array_equal(encoded[:, column], rounded)
        start += count
