// tensor_cores: products by a warpgroup (wgmma), and what kernels with such products share. `wgmma`
// introduces the product, `wgmma_ring` introduces the roles of warpgroups and the ring of stages,
// `wgmma_persistent` introduces `multiply_tile` and the store of results, and `wgmma_deferred`
// introduces the pair `start_step` and `end_step`.
//
// The instructions exist on compute capability 9.0 only, and are compiled for sm_90a.
//
// A warpgroup, four warps, multiplies 64 rows of A by N columns of B, 32 bytes of k at a time, and
// adds to N/2 sums in the registers of each thread. Both operands lie in shared memory, in rows of
// 128 bytes. A row of A holds 64 values of k with 16 bits, or 128 with 8 bits. A row of B holds 64
// columns of 16 bits. With 8 bits the instruction takes B along k only, like A, so the kernels take
// B as N×K. A descriptor says where an operand lies. The TMA writes tiles with the 128-byte swizzle
// (`bits16.cuh`), the tensor core reads them like that, and results go the same way back.

#pragma once

#include "bits16.cuh"
#include "../tma/tma.cuh"

constexpr int ROW_BYTES = 128;
constexpr int STEP = 64;  // values of k in a row of 128 bytes: 16-bit elements

struct __nv_fp8_e4m3;  // as in `bits16.cuh`: a name suffices

// The types of sums and of results, by the type of operands, and the bytes of a result.
template <typename Scalar>
struct Types {
  using Sum = float;
  using Output = Scalar;
  static constexpr bool IS_8_BITS = false;
  static constexpr int RESULT_BYTES = 2;
};
template <>
struct Types<__nv_fp8_e4m3> {
  using Sum = float;
  using Output = __nv_bfloat16;
  static constexpr bool IS_8_BITS = true;
  static constexpr int RESULT_BYTES = 2;
};
template <>
struct Types<signed char> {
  using Sum = int;
  using Output = int;
  static constexpr bool IS_8_BITS = true;
  static constexpr int RESULT_BYTES = 4;
};
template <typename Scalar>
using Sum = typename Types<Scalar>::Sum;
template <typename Scalar>
using Output = typename Types<Scalar>::Output;
template <typename Scalar>
constexpr bool IS_8_BITS = Types<Scalar>::IS_8_BITS;
template <typename Scalar>
constexpr int RESULT_BYTES = Types<Scalar>::RESULT_BYTES;

// This thread's warpgroup, read from lane 0, so that the compiler treats it as uniform in a warp.
__device__ __forceinline__ int warpgroup_index() {
  return __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 128, 0);
}

// ---- multiplication

// The matrix descriptor of a tile in shared memory. Bits 0 to 13 are its address, and bits 16 to 29
// and 32 to 45 two strides, all in units of 16 bytes. Bits 62 and 63 are the swizzle: 128 bytes.
__device__ __forceinline__ unsigned long long descriptor(unsigned address, unsigned leading_bytes,
                                                         unsigned stride_bytes) {
  return (address & 0x3FFFF) >> 4 | static_cast<unsigned long long>(leading_bytes >> 4) << 16 |
         static_cast<unsigned long long>(stride_bytes >> 4) << 32 | 1ull << 62;
}

// Part `k` of A, 32 bytes of k, in rows with 128 bytes of k: 1024 bytes from 8 rows to the next 8.
// The leading stride is not used. The next part begins 32 bytes further.
__device__ __forceinline__ unsigned long long part_of_a(unsigned address, int k) {
  return descriptor(address, 16, 8 * ROW_BYTES) + k * (32 / 16);
}

// Part `k` of B. With 8 bits, B lies like A. With 16 bits, 64 columns have 64 rows. The strides
// lead to the next 64 columns, and to the next 8 values of k. The next part begins 16 rows further.
template <typename Scalar>
__device__ __forceinline__ unsigned long long part_of_b(unsigned address, int k) {
  if constexpr (IS_8_BITS<Scalar>) return part_of_a(address, k);
  return descriptor(address, STEP * ROW_BYTES, 8 * ROW_BYTES) + k * (16 * ROW_BYTES / 16);
}

// Operands of an instruction for WIDTH columns: WIDTH / 2 sums of a thread, from %0 on. J repeats
// for each four sums after the first four. The other operands follow, A from the number HALF on.
#define FOURS_4(J)
#define FOURS_8(J) FOURS_4(J) J(4, 5, 6, 7)
#define FOURS_12(J) FOURS_8(J) J(8, 9, 10, 11)
#define FOURS_16(J) FOURS_12(J) J(12, 13, 14, 15)
#define FOURS_20(J) FOURS_16(J) J(16, 17, 18, 19)
#define FOURS_24(J) FOURS_20(J) J(20, 21, 22, 23)
#define FOURS_28(J) FOURS_24(J) J(24, 25, 26, 27)
#define FOURS_32(J) FOURS_28(J) J(28, 29, 30, 31)
#define FOURS_36(J) FOURS_32(J) J(32, 33, 34, 35)
#define FOURS_40(J) FOURS_36(J) J(36, 37, 38, 39)
#define FOURS_44(J) FOURS_40(J) J(40, 41, 42, 43)
#define FOURS_48(J) FOURS_44(J) J(44, 45, 46, 47)
#define FOURS_52(J) FOURS_48(J) J(48, 49, 50, 51)
#define FOURS_56(J) FOURS_52(J) J(52, 53, 54, 55)
#define FOURS_60(J) FOURS_56(J) J(56, 57, 58, 59)
#define FOURS_64(J) FOURS_60(J) J(60, 61, 62, 63)
#define FOURS_68(J) FOURS_64(J) J(64, 65, 66, 67)
#define FOURS_72(J) FOURS_68(J) J(68, 69, 70, 71)
#define FOURS_76(J) FOURS_72(J) J(72, 73, 74, 75)
#define FOURS_80(J) FOURS_76(J) J(76, 77, 78, 79)
#define FOURS_84(J) FOURS_80(J) J(80, 81, 82, 83)
#define FOURS_88(J) FOURS_84(J) J(84, 85, 86, 87)
#define FOURS_92(J) FOURS_88(J) J(88, 89, 90, 91)
#define FOURS_96(J) FOURS_92(J) J(92, 93, 94, 95)
#define FOURS_100(J) FOURS_96(J) J(96, 97, 98, 99)
#define FOURS_104(J) FOURS_100(J) J(100, 101, 102, 103)
#define FOURS_108(J) FOURS_104(J) J(104, 105, 106, 107)
#define FOURS_112(J) FOURS_108(J) J(108, 109, 110, 111)
#define FOURS_116(J) FOURS_112(J) J(112, 113, 114, 115)
#define FOURS_120(J) FOURS_116(J) J(116, 117, 118, 119)
#define FOURS_124(J) FOURS_120(J) J(120, 121, 122, 123)
#define FOURS_128(J) FOURS_124(J) J(124, 125, 126, 127)
#define NAMES(a, b, c, d) ",%" #a ",%" #b ",%" #c ",%" #d
#define FLOATS(a, b, c, d) "+f"(sum[a]), "+f"(sum[b]), "+f"(sum[c]), "+f"(sum[d])
#define MORE_FLOATS(a, b, c, d) , FLOATS(a, b, c, d)
#define INTS(a, b, c, d) "+r"(sum[a]), "+r"(sum[b]), "+r"(sum[c]), "+r"(sum[d])
#define MORE_INTS(a, b, c, d) , INTS(a, b, c, d)
#define WGMMA(TYPES, FLAGS, SUMS, WIDTH, HALF, A_AND_B, ADD, ...)                                  \
  if constexpr (N == WIDTH)                                                                        \
    asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " ADD                                       \
                 ", 0;\n"                                                                          \
                 "wgmma.mma_async.sync.aligned.m64n" #WIDTH TYPES                                  \
                 " {%0,%1,%2,%3" FOURS_##HALF(NAMES) "}, " A_AND_B ", add" FLAGS ";\n}"            \
                 : SUMS(0, 1, 2, 3) FOURS_##HALF(MORE_##SUMS)                                      \
                 : __VA_ARGS__, "r"(static_cast<int>(add)));
// With descriptors of A and B, and with A in four registers.
#define WGMMA_SHARED(TYPES, FLAGS, SUMS, WIDTH, HALF, B, ADD, ...)                                 \
  WGMMA(TYPES, FLAGS, SUMS, WIDTH, HALF, "%" #HALF ", %" #B, "%" #ADD, "l"(a), "l"(b))
#define WGMMA_REGISTERS(TYPES, FLAGS, SUMS, WIDTH, HALF, A1, A2, A3, B, ADD)                       \
  WGMMA(TYPES, FLAGS, SUMS, WIDTH, HALF, "{%" #HALF ",%" #A1 ",%" #A2 ",%" #A3 "}, %" #B,          \
        "%" #ADD, "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
// Every width, with the numbers of the operands behind the sums.
#define WGMMA_WIDTHS(W)                                                                            \
  W(8, 4, 5, 6, 7, 8, 9) W(16, 8, 9, 10, 11, 12, 13) W(24, 12, 13, 14, 15, 16, 17)                 \
  W(32, 16, 17, 18, 19, 20, 21) W(40, 20, 21, 22, 23, 24, 25) W(48, 24, 25, 26, 27, 28, 29)        \
  W(56, 28, 29, 30, 31, 32, 33) W(64, 32, 33, 34, 35, 36, 37) W(72, 36, 37, 38, 39, 40, 41)        \
  W(80, 40, 41, 42, 43, 44, 45) W(88, 44, 45, 46, 47, 48, 49) W(96, 48, 49, 50, 51, 52, 53)        \
  W(104, 52, 53, 54, 55, 56, 57) W(112, 56, 57, 58, 59, 60, 61) W(120, 60, 61, 62, 63, 64, 65)     \
  W(128, 64, 65, 66, 67, 68, 69) W(136, 68, 69, 70, 71, 72, 73) W(144, 72, 73, 74, 75, 76, 77)     \
  W(152, 76, 77, 78, 79, 80, 81) W(160, 80, 81, 82, 83, 84, 85) W(168, 84, 85, 86, 87, 88, 89)     \
  W(176, 88, 89, 90, 91, 92, 93) W(184, 92, 93, 94, 95, 96, 97) W(192, 96, 97, 98, 99, 100, 101)   \
  W(200, 100, 101, 102, 103, 104, 105) W(208, 104, 105, 106, 107, 108, 109)                        \
  W(216, 108, 109, 110, 111, 112, 113) W(224, 112, 113, 114, 115, 116, 117)                        \
  W(232, 116, 117, 118, 119, 120, 121) W(240, 120, 121, 122, 123, 124, 125)                        \
  W(248, 124, 125, 126, 127, 128, 129) W(256, 128, 129, 130, 131, 132, 133)
// Flags of floats: no operand is negated. Flags of 16 bits also say whether A and B are transposed.
#define WGMMA_INT8(...) WGMMA_SHARED("k32.s32.s8.s8", "", INTS, __VA_ARGS__)
#define WGMMA_FLOAT8(...) WGMMA_SHARED("k32.f32.e4m3.e4m3", ", 1, 1", FLOATS, __VA_ARGS__)
#define WGMMA_BFLOAT16(...) WGMMA_SHARED("k16.f32.bf16.bf16", ", 1, 1, 0, 1", FLOATS, __VA_ARGS__)
#define WGMMA_FLOAT16(...) WGMMA_SHARED("k16.f32.f16.f16", ", 1, 1, 0, 1", FLOATS, __VA_ARGS__)
#define WGMMA_BFLOAT16_SWAPPED(...) \
  WGMMA_SHARED("k16.f32.bf16.bf16", ", 1, 1, 1, 0", FLOATS, __VA_ARGS__)
#define WGMMA_FLOAT16_SWAPPED(...) \
  WGMMA_SHARED("k16.f32.f16.f16", ", 1, 1, 1, 0", FLOATS, __VA_ARGS__)
#define WGMMA_TF32(...) WGMMA_REGISTERS("k8.f32.tf32.tf32", ", 1, 1", FLOATS, __VA_ARGS__)

// Starts to multiply 64 rows of A by N columns of B, 32 bytes of k. The old values of `sum` count
// only if `add`. Thread t of the warpgroup has the rows r = 16(t/32) + (t%32)/4 and r + 8. For each
// j, it gets the columns c = 8j + 2(t%4) and c + 1: of row r in sum[4j] and sum[4j + 1], and of row
// r + 8 in sum[4j + 2] and sum[4j + 3].
//
// With 16 bits, A lies along k, and B along n. SWAPPED: A lies along m, and B along k.
template <typename Scalar, int N, bool SWAPPED = false, int SUMS>
__device__ __forceinline__ void
multiply_async(Sum<Scalar> (&sum)[SUMS], unsigned long long a, unsigned long long b, bool add) {
  static_assert(N % 8 == 0 && N >= 8 && N <= 256, "add a line for further widths");
  static_assert(SUMS >= N / 2, "a thread has N / 2 sums");
  if constexpr (Sum<Scalar>(0.5f) == 0) {  // ints
    WGMMA_WIDTHS(WGMMA_INT8)
  } else if constexpr (IS_8_BITS<Scalar>) {
    WGMMA_WIDTHS(WGMMA_FLOAT8)
  } else if constexpr (SWAPPED && IS_BFLOAT16<Scalar>) {
    WGMMA_WIDTHS(WGMMA_BFLOAT16_SWAPPED)
  } else if constexpr (SWAPPED) {
    WGMMA_WIDTHS(WGMMA_FLOAT16_SWAPPED)
  } else if constexpr (IS_BFLOAT16<Scalar>) {
    WGMMA_WIDTHS(WGMMA_BFLOAT16)
  } else {
    WGMMA_WIDTHS(WGMMA_FLOAT16)
  }
}

// Starts to multiply a whole step. `a` and `b` are addresses in shared memory.
template <typename Scalar, int N, int SUMS>
__device__ __forceinline__ void
multiply_step(Sum<Scalar> (&sum)[SUMS], unsigned a, unsigned b, bool add) {
#pragma unroll
  for (int k = 0; k < ROW_BYTES / 32; ++k) {
    const unsigned long long of_b = part_of_b<Scalar>(b, k);
    multiply_async<Scalar, N>(sum, part_of_a(a, k), of_b, add || k > 0);
  }
}

// Required before the first multiplication, and after registers with sums were used.
__device__ __forceinline__ void wgmma_fence() { PTX("wgmma.fence.sync.aligned;"); }
// Closes the group of the multiplications that were started since the last call.
__device__ __forceinline__ void commit_multiplications() {
  PTX("wgmma.commit_group.sync.aligned;");
}
// Keeps the compiler from reading sums before a wait above this call.
template <int SUMS>
__device__ __forceinline__ void fence_sums(float (&sum)[SUMS]) {
#pragma unroll
  for (float& part : sum) asm volatile("" : "+f"(part)::"memory");
}
template <int SUMS>
__device__ __forceinline__ void fence_sums(int (&sum)[SUMS]) {
#pragma unroll
  for (int& part : sum) asm volatile("" : "+r"(part)::"memory");
}
// Waits until at most PENDING groups are unfinished.
template <int PENDING>
__device__ __forceinline__ void await_multiplications() {
  PTX("wgmma.wait_group.sync.aligned %0;", "n"(PENDING));
}

// ---- roles

// The warpgroup that requests tiles gives up registers, and the other warpgroups take them, by
// these two calls in the two branches of a single `if`.
template <int REGISTERS>
__device__ __forceinline__ void lower_registers() {
  PTX("setmaxnreg.dec.sync.aligned.u32 %0;", "n"(REGISTERS));
}
template <int REGISTERS>
__device__ __forceinline__ void raise_registers() {
  PTX("setmaxnreg.inc.sync.aligned.u32 %0;", "n"(REGISTERS));
}

// How BM rows are divided: two warpgroups multiply, or one where there are 64 rows.
template <int BM>
struct Roles {
  static constexpr int CONSUMERS = BM == 64 ? 1 : 2;
  static constexpr int PIECES = BM / 64 / CONSUMERS;  // of 64 rows each, by a consumer
  static constexpr int THREADS = 128 * (CONSUMERS + 1);
  // Registers of a thread. Their sum over the block is at most what the block starts with.
  static constexpr int PRODUCER_REGISTERS = CONSUMERS == 1 ? 40 : 24;
  static constexpr int CONSUMER_REGISTERS = CONSUMERS == 1 ? 232 : 240;
};

// STAGES stages of shared memory between the producer, which fills them, and the consumers. Each
// stage has two barriers: "filled" (one arrival, and the bytes) and "free" (all releases). A
// consumer waits for the parity of its `Slot`. A producer waits for the other parity: a new barrier
// counts that phase as ended, so the first round finds all stages free.
template <int STAGES>
struct Ring {
  Mbarrier filled[STAGES];
  Mbarrier freed[STAGES];

  __device__ __forceinline__ void init(int releases) {
    for (int stage = 0; stage < STAGES; ++stage) {
      filled[stage].init(1);
      freed[stage].init(releases);
    }
    fence_mbarrier_init();
  }
};

// Reports that this warpgroup, or another group of THREADS, has read a stage: one thread per block
// arrives at that block's barrier, for BLOCKS blocks of the cluster from number `first` on. The
// caller has waited for the multiplications that read the stage, so no further ordering is needed.
// An arrival with release semantics in the cluster would also wait for all memory accesses of the
// thread, which took 9 to 23 % of the time on an H200.
template <int BLOCKS = 1, int THREADS = 128>
__device__ __forceinline__ void free_stage(Mbarrier& barrier, int first = 0) {
  const int block = threadIdx.x % THREADS;
  if (block < BLOCKS) {
    if constexpr (BLOCKS == 1) {
      PTX("mbarrier.arrive.shared::cta.b64 _, [%0];", "r"(shared_address(&barrier)));
    } else {
      PTX("{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %0, %1;\n"
          "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}",
          "r"(shared_address(&barrier)), "r"(first + block));
    }
  }
}

// Requests a step's rows of A and columns of B: B by boxes of 64 columns, one below the other.
template <int BM, int BN>
__device__ __forceinline__ void request_step(Mbarrier& filled, unsigned char* stage,
                                             const CUtensorMap* a_map, const CUtensorMap* b_map,
                                             int row, int col, int k) {
  filled.arrive_expect_bytes((BM + BN) * ROW_BYTES);
  filled.copy_box(stage, a_map, row, k);
#pragma unroll
  for (int j = 0; j < BN / 64; ++j) {
    filled.copy_box(stage + BM * ROW_BYTES + j * STEP * ROW_BYTES, b_map, k, col + j * 64);
  }
}

// Waits for a step's stage and starts its multiplications, for WIDTH columns of a tile of BN.
// Kernels store results between this call and `end_step`.
template <typename Scalar, int BM, int BN, int WIDTH, int STAGES, int PIECES>
__device__ __forceinline__ void start_step(Sum<Scalar> (&sum)[PIECES][BN / 2], Ring<STAGES>& ring,
                                           Slot<STAGES> slot, unsigned base, int first_row,
                                           bool add) {
  const unsigned stage = base + slot.stage * (BM + BN) * ROW_BYTES;
  ring.filled[slot.stage].wait(slot.parity);
  wgmma_fence();
#pragma unroll
  for (int p = 0; p < PIECES; ++p) {
    multiply_step<Scalar, WIDTH>(sum[p], stage + (first_row + p * 64) * ROW_BYTES,
                                 stage + BM * ROW_BYTES, add);
  }
  commit_multiplications();
}

// Waits for the previous step, and frees its stage in BLOCKS blocks from number `first_block` on.
template <int BLOCKS, int STAGES>
__device__ __forceinline__ void
end_step(Ring<STAGES>& ring, Slot<STAGES>& slot, int& previous, bool first, int first_block = 0) {
  await_multiplications<1>();
  if (!first) free_stage<BLOCKS>(ring.freed[previous], first_block);
  previous = slot.stage;
  slot.advance();
}

// Multiplies all steps of a tile. `start` waits for a step's stage, and starts to multiply. Two
// steps are under way at a time, so a stage is freed one step late.
template <int BLOCKS, int STAGES, typename Start>
__device__ __forceinline__ void
multiply_steps(Ring<STAGES>& ring, Slot<STAGES>& slot, int steps, int first_block, Start start) {
  int previous = 0;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    start(step > 0);
    end_step<BLOCKS>(ring, slot, previous, step == 0, first_block);
  }
  await_multiplications<0>();
  free_stage<BLOCKS>(ring.freed[previous], first_block);
}

// Computes a consumer's part of a tile: its rows of A times BN columns of B, for all steps.
template <typename Scalar, int BM, int BN, int BLOCKS, int STAGES>
__device__ __forceinline__ void multiply_tile(float (&sum)[Roles<BM>::PIECES][BN / 2],
                                              Ring<STAGES>& ring, Slot<STAGES>& slot,
                                              unsigned stages, int warpgroup, int steps) {
  const int first_row = warpgroup * Roles<BM>::PIECES * 64;
  multiply_steps<BLOCKS>(ring, slot, steps, 0, [&](bool add) {
    start_step<Scalar, BM, BN, BN>(sum, ring, slot, stages, first_row, add);
  });
}

// ---- results

// A box of results is 64 rows of 128 bytes. BOX_SUMS is a thread's number of sums in a box. These
// sums take 16 words: pairs of rounded sums, or ints.
template <typename Scalar>
constexpr int BOX_SUMS = 16 * 4 / RESULT_BYTES<Scalar>;
template <typename Scalar>
constexpr int BOX_COLUMNS = ROW_BYTES / RESULT_BYTES<Scalar>;

// Rounds a thread's sums of a box to words. The code is volatile, to stay behind a wait.
template <typename Scalar>
__device__ __forceinline__ void take_results(unsigned (&words)[16], const Sum<Scalar>* sums) {
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    if constexpr (RESULT_BYTES<Scalar> == 4) {
      asm volatile("mov.b32 %0, %1;" : "=r"(words[i]) : "r"(sums[i]));
    } else {
      words[i] = pack<Output<Scalar>>(sums[2 * i], sums[2 * i + 1]);
    }
  }
}

// Stores the sums of 64 rows × N columns at (row0, col0) from registers. N and the address of C are
// even, so the two columns of a pair are both inside or both outside.
template <typename Scalar, int N, int SUMS>
__device__ __forceinline__ void
store_sums(const float (&sum)[SUMS], Scalar* C, int row0, int col0, int rows, int cols) {
  const int lane = threadIdx.x % 32;
  const int row = row0 + threadIdx.x % 128 / 32 * 16 + lane / 4;
  unsigned* const c = reinterpret_cast<unsigned*>(C);
#pragma unroll
  for (int j = 0; j < N / 8; ++j) {
    const int col = col0 + 8 * j + lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (row + 8 * half < rows && col < cols) {
        c[(static_cast<size_t>(row + 8 * half) * cols + col) / 2] =
            pack<Scalar>(sum[4 * j + 2 * half], sum[4 * j + 2 * half + 1]);
      }
    }
  }
}

// Writes four 8×8 matrices of 16-bit results by rows, or by columns. A lane names 16 bytes.
template <bool TRANSPOSED>
__device__ __forceinline__ void put_unit(unsigned address, const unsigned* words) {
  if constexpr (TRANSPOSED) {
    PTX("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};", "r"(address),
        "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]));
  } else {
    PTX("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};", "r"(address),
        "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]));
  }
}

// Lets the TMA see what this thread has written to shared memory.
__device__ __forceinline__ void publish_to_tma() { PTX("fence.proxy.async.shared::cta;"); }

// Makes the TMA store a box at (row, col) of the map's matrix, without the part outside. The L2
// cache need not keep results, which are not read again.
__device__ __forceinline__ void store_by_tma(const CUtensorMap* map, unsigned box, int row,
                                             int col) {
  PTX("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group.L2::cache_hint"
      " [%0, {%1, %2}], [%3], %4;",
      "l"(map), "r"(col), "r"(row), "r"(box), "l"(EVICT_FIRST));
}

// Waits until the TMA has read all but the last PENDING boxes that this thread made it store.
template <int PENDING = 0>
__device__ __forceinline__ void await_stored_boxes() {
  PTX("cp.async.bulk.wait_group.read %0;", "n"(PENDING));
}

__device__ __forceinline__ void synchronize_warpgroup(int warpgroup) {
  PTX("bar.sync %0, 128;", "r"(warpgroup + 1));
}

// Stores results from registers. A warpgroup writes boxes of 64 rows and 128 bytes to shared
// memory, in two buffers by turns. One thread makes the TMA store them. The others go on.
struct ResultBoxes {
  static constexpr int BYTES = 64 * ROW_BYTES;
  static constexpr int BUFFERS = 2;

  const CUtensorMap* map;
  unsigned buffers;  // the warpgroup's own, in shared memory
  int warpgroup;
  int buffer = 0;  // whose turn it is

  // `all_buffers`: the buffers of warpgroup 0, and then those of the other warpgroups.
  __device__ __forceinline__ ResultBoxes(const CUtensorMap* map, unsigned all_buffers,
                                         int warpgroup)
      : map(map), buffers(all_buffers + warpgroup * BUFFERS * BYTES), warpgroup(warpgroup) {}

  // Offset of the 16 bytes that thread t names for `stmatrix` number i. A warp writes four 8×8
  // matrices at once, 16 rows of 16 columns, and each of its lanes names one row of a matrix.
  static __host__ __device__ constexpr int offset(int t, int i) {
    const int row = t / 32 * 16 + t % 16;
    return row * ROW_BYTES + swizzle(row, 2 * i + t % 32 / 16) * 16;
  }

  // Offset of thread t's two ints of a block of 8 columns, in a row or (`half`) 8 rows further.
  static __host__ __device__ constexpr int int_offset(int t, int block, int half) {
    const int row = t / 32 * 16 + t % 32 / 4 + 8 * half;
    return row * ROW_BYTES + swizzle(row, 2 * block + t % 4 / 2) * 16 + t % 2 * 8;
  }
  // The block that thread t stores as its i-th. Rows that differ in the last bit would meet in
  // banks, so odd rows take blocks in another order.
  static __host__ __device__ constexpr int int_block(int t, int i) { return i ^ t / 4 % 2 * 2; }

  // Stores a box at (row, col) of C; a thread gives 16 pairs of its sums, or 16 ints.
  template <int EACH = 2>  // bytes
  __device__ __forceinline__ void store(const unsigned* words, int row, int col) {
    const int t = threadIdx.x % 128;
    const unsigned to = buffers + buffer * BYTES;
    buffer ^= 1;
    if (t == 0) await_stored_boxes<BUFFERS - 1>();  // what this buffer held has been read
    synchronize_warpgroup(warpgroup);
    if constexpr (EACH == 4) {
      store_ints(to, words);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) put_unit<false>(to + offset(t, i), words + 4 * i);
    }
    publish_to_tma();
    synchronize_warpgroup(warpgroup);
    if (t == 0) {
      store_by_tma(map, to, row, col);
      PTX("cp.async.bulk.commit_group;");
    }
  }
  // Stores box number `box`, from the left, of a thread's sums.
  template <typename Scalar, int SUMS>
  __device__ __forceinline__ void
  store_sums(const Sum<Scalar> (&sum)[SUMS], int box, int row, int col) {
    unsigned words[16];
    take_results<Scalar>(words, sum + box * BOX_SUMS<Scalar>);
    store<RESULT_BYTES<Scalar>>(words, row, col + box * BOX_COLUMNS<Scalar>);
  }
  // Stores all sums of a warpgroup whose first row and column are `row` and `col`.
  template <typename Scalar, int PIECES, int SUMS>
  __device__ __forceinline__ void
  store_tile(const Sum<Scalar> (&sum)[PIECES][SUMS], int row, int col) {
    constexpr int ACROSS = SUMS / BOX_SUMS<Scalar>;
#pragma unroll
    for (int i = 0; i < PIECES * ACROSS; ++i) {
      store_sums<Scalar>(sum[i / ACROSS], i % ACROSS, row + i / ACROSS * 64, col);
    }
  }
  // Call this before the block ends: shared memory must last until the TMA has read it.
  __device__ __forceinline__ void finish() const {
    if (threadIdx.x % 128 == 0) await_stored_boxes();
  }

 private:
  __device__ __forceinline__ static void store_ints(unsigned to, const unsigned* ints) {
    const int t = threadIdx.x % 128;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int block = int_block(t, i);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        // Selects one of two registers by constant numbers: registers cannot be indexed.
        const unsigned* const here = ints + 4 * i + 2 * half;
        const unsigned* const other = ints + 4 * (i ^ 2) + 2 * half;
        PTX("st.shared.v2.b32 [%0], {%1, %2};", "r"(to + int_offset(t, block, half)),
            "r"(block == i ? here[0] : other[0]), "r"(block == i ? here[1] : other[1]));
      }
    }
  }
};
