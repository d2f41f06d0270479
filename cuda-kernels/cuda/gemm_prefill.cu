// Matrix product for many rows: a block of threads makes a tile of outputs, with copies three steps ahead of the
// tensor cores.
#include "gemm.cuh"

constexpr int ROWS = 128;     // rows of x of a block
constexpr int OUTPUTS = 128;  // outputs of a block
constexpr int STAGES = 3;
constexpr int GEMM_THREADS = 256;  // eight warps, two by four, each with 64 rows and 32 outputs
constexpr int WARP_ROWS = 64, WARP_OUTPUTS = 32;
constexpr int STAGE = (ROWS + OUTPUTS) * GEMM_STEP;

template <class Weights>
__device__ __forceinline__ void gemm_prefill(bf16* out, const bf16* x, const Weights& weights, int rows, int outputs,
                                             int inputs) {
    bf16* const stages = reinterpret_cast<bf16*>(dynamic_shared);
    const int first_row = blockIdx.x * ROWS, first_output = blockIdx.y * OUTPUTS;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const int warp_row = warp / 4 * WARP_ROWS, warp_output = warp % 4 * WARP_OUTPUTS;
    const int steps = (inputs + GEMM_STEP - 1) / GEMM_STEP;

    auto weight_tile_of = [&](int step) { return stages + step % STAGES * STAGE + ROWS * GEMM_STEP; };
    typename Weights::template Fetched<OUTPUTS, GEMM_THREADS> fetched;
    auto fetch = [&](int step) {
        if (step < steps) {
            const int input = step * GEMM_STEP;
            load_tile<ROWS, GEMM_THREADS>(stages + step % STAGES * STAGE, x, first_row, rows, input, inputs);
            fetched = weights.template fetch<OUTPUTS, GEMM_THREADS>(weight_tile_of(step), first_output, outputs, input, inputs);
        }
        commit_copies();  // an empty group where there is nothing left, so that waiting counts the same
    };
    auto put = [&](int step) {
        if (step < steps) weights.template put<OUTPUTS, GEMM_THREADS>(weight_tile_of(step), fetched);
    };
    for (int step = 0; step < STAGES - 1; ++step) fetch(step), put(step);

    constexpr int TALL = WARP_ROWS / 16, WIDE = WARP_OUTPUTS / 8;
    float sum[TALL][WIDE][4] = {}, total[TALL][WIDE][4] = {};
    for (int step = 0; step < steps; ++step) {
        wait_for_copies<STAGES - 2>();
        __syncthreads();  // this step is there, and nobody reads the one before it any more
        fetch(step + STAGES - 1);
        bf16* const x_tile = stages + step % STAGES * STAGE;
        bf16* const weight_tile = weight_tile_of(step);
#pragma unroll
        for (int k = 0; k < GEMM_STEP / 16; ++k) {
            u32 a[TALL][4], b[WIDE / 2][4];
            for (int i = 0; i < TALL; ++i) load_rows<GEMM_STEP>(a[i], x_tile, warp_row + 16 * i, k);
            for (int j = 0; j < WIDE / 2; ++j) load_columns<GEMM_STEP>(b[j], weight_tile, warp_output + 16 * j, k);
            for (int i = 0; i < TALL; ++i)
                for (int j = 0; j < WIDE; ++j)
                    multiply_add(sum[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
        put(step + STAGES - 1);
        if (step % (GEMM_SPLIT / GEMM_STEP) == GEMM_SPLIT / GEMM_STEP - 1 || step + 1 == steps) {
            for (int i = 0; i < TALL; ++i)
                for (int j = 0; j < WIDE; ++j)
                    for (int e = 0; e < 4; ++e) {
                        total[i][j][e] = __fadd_rn(total[i][j][e], sum[i][j][e]);
                        sum[i][j][e] = 0.0f;
                    }
        }
    }

    // Through shared memory, so that whole sectors are written. The groups that are not waited for are empty.
    bf16* const tile = stages;
    __syncthreads();
    for (int i = 0; i < TALL; ++i)
        for (int j = 0; j < WIDE; ++j)
            for (int half = 0; half < 2; ++half) {
                bf16* const chunk =
                    at<OUTPUTS>(tile, warp_row + 16 * i + 8 * half + lane / 4, warp_output / CHUNK + j);
                reinterpret_cast<u32*>(chunk)[lane % 4] = pack(total[i][j][2 * half], total[i][j][2 * half + 1]);
            }
    __syncthreads();
#pragma unroll 1
    for (int turn = 0; turn < ROWS * OUTPUTS / CHUNK / GEMM_THREADS; ++turn) {
        const int i = threadIdx.x + turn * GEMM_THREADS;
        const int row = i / (OUTPUTS / CHUNK), chunk = i % (OUTPUTS / CHUNK), output = first_output + chunk * CHUNK;
        if (first_row + row >= rows || output >= outputs) continue;
        *reinterpret_cast<uint4*>(out + static_cast<size_t>(first_row + row) * outputs + output) =
            *reinterpret_cast<uint4*>(at<OUTPUTS>(tile, row, chunk));
    }
}

// out: [rows][outputs], x: [rows][inputs], weights: [outputs][inputs].
// Grid: (ceil(rows / ROWS), ceil(outputs / OUTPUTS)). Shared memory: STAGES * STAGE bf16.
extern "C" __global__ void __launch_bounds__(GEMM_THREADS)
gemm_prefill(bf16* __restrict__ out, const bf16* __restrict__ x, const bf16* __restrict__ weights, int rows, int outputs,
             int inputs) {
    gemm_prefill(out, x, Bf16Weights{weights}, rows, outputs, inputs);
}

// The same with weights in bytes: codes [outputs][inputs], scales [outputs][ceil(inputs / GROUP)].
extern "C" __global__ void __launch_bounds__(GEMM_THREADS)
gemm_prefill_int8(bf16* __restrict__ out, const bf16* __restrict__ x, const signed char* __restrict__ codes,
                  const float* __restrict__ scales, int rows, int outputs, int inputs) {
    gemm_prefill(out, x, Int8Weights{codes, scales}, rows, outputs, inputs);
}

// The same with weights in blocks, as in gemm.cuh.
#define GEMM_PREFILL_BLOCKS(NAME, WEIGHTS)                                                                                \
    extern "C" __global__ void __launch_bounds__(GEMM_THREADS)                                                            \
    NAME(bf16* __restrict__ out, const bf16* __restrict__ x, const uint4* __restrict__ codes,                             \
         const unsigned short* __restrict__ scales, int rows, int outputs, int inputs) {                                  \
        gemm_prefill(out, x, WEIGHTS{codes, scales}, rows, outputs, inputs);                                              \
    }
GEMM_PREFILL_BLOCKS(gemm_prefill_int4, Int4Weights)
GEMM_PREFILL_BLOCKS(gemm_prefill_fp8, Fp8Weights)
