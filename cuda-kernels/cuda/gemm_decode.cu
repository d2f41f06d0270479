// Matrix product for few rows, where reading the weights is all that takes time: a block of threads for each GEMM_SPLIT
// inputs, so that all multiprocessors read, and a second kernel that adds the splits.
#include "gemm.cuh"

constexpr int ROWS = 16;     // rows of x of a block
constexpr int OUTPUTS = 64;  // outputs of a block, sixteen to a warp
constexpr int GEMM_THREADS = 128;
constexpr int STEPS = GEMM_SPLIT / GEMM_STEP;
constexpr int STAGE = (ROWS + OUTPUTS) * GEMM_STEP;

template <class Weights>
__device__ __forceinline__ void gemm_decode(float* parts, const bf16* x, const Weights& weights, int rows, int outputs,
                                            int inputs) {
    bf16* const stages = reinterpret_cast<bf16*>(dynamic_shared);
    // Blocks are begun with x first: those with the same weights one after another, so that all but the first find them
    // in the cache.
    const int first_row = blockIdx.x * ROWS, split = blockIdx.y, first_output = blockIdx.z * OUTPUTS;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    // Everything is fetched at once: the more is under way, the nearer to the memory's speed.
    typename Weights::template Fetched<OUTPUTS, GEMM_THREADS> fetched[STEPS];
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        bf16* const stage = stages + step * STAGE;
        const int input = split * GEMM_SPLIT + step * GEMM_STEP;
        load_tile<ROWS, GEMM_THREADS>(stage, x, first_row, rows, input, inputs);
        fetched[step] = weights.template fetch<OUTPUTS, GEMM_THREADS>(stage + ROWS * GEMM_STEP, first_output, outputs, input,
                                                                      inputs);
        commit_copies();
    }
    float sum[2][4] = {};
    auto add = [&](int step) {
        bf16* const x_tile = stages + step * STAGE;
        weights.template put<OUTPUTS, GEMM_THREADS>(x_tile + ROWS * GEMM_STEP, fetched[step]);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < GEMM_STEP / 16; ++k) {
            u32 a[4], b[4];
            load_rows<GEMM_STEP>(a, x_tile, 0, k);
            load_columns<GEMM_STEP>(b, x_tile + ROWS * GEMM_STEP, 16 * warp, k);
            multiply_add(sum[0], a, b[0], b[1]);
            multiply_add(sum[1], a, b[2], b[3]);
        }
    };
    static_assert(STEPS == 4, "a wait for each step");
    wait_for_copies<3>(), add(0);
    wait_for_copies<2>(), add(1);
    wait_for_copies<1>(), add(2);
    wait_for_copies<0>(), add(3);

    for (int half = 0; half < 2; ++half) {
        const int row = first_row + lane / 4 + 8 * half;
        if (row >= rows) continue;
        for (int i = 0; i < 2; ++i) {
            const int output = first_output + warp * 16 + i * 8 + lane % 4 * 2;
            if (output >= outputs) continue;
            float* const to = parts + (static_cast<size_t>(split) * rows + row) * outputs + output;
            *reinterpret_cast<float2*>(to) = make_float2(sum[i][2 * half], sum[i][2 * half + 1]);
        }
    }
}

// parts: [ceil(inputs / GEMM_SPLIT)][rows][outputs], x: [rows][inputs], weights: [outputs][inputs].
// Grid: (ceil(rows / ROWS), ceil(inputs / GEMM_SPLIT), ceil(outputs / OUTPUTS)). Shared memory: STEPS * STAGE bf16.
extern "C" __global__ void __launch_bounds__(GEMM_THREADS)
gemm_decode(float* __restrict__ parts, const bf16* __restrict__ x, const bf16* __restrict__ weights, int rows,
            int outputs, int inputs) {
    gemm_decode(parts, x, Bf16Weights{weights}, rows, outputs, inputs);
}

// The same with weights in bytes: codes [outputs][inputs], scales [outputs][ceil(inputs / GROUP)].
extern "C" __global__ void __launch_bounds__(GEMM_THREADS)
gemm_decode_int8(float* __restrict__ parts, const bf16* __restrict__ x, const signed char* __restrict__ codes,
                 const float* __restrict__ scales, int rows, int outputs, int inputs) {
    gemm_decode(parts, x, Int8Weights{codes, scales}, rows, outputs, inputs);
}

// The same with weights in blocks, as in gemm.cuh.
#define GEMM_DECODE_BLOCKS(NAME, WEIGHTS)                                                                                 \
    extern "C" __global__ void __launch_bounds__(GEMM_THREADS)                                                            \
    NAME(float* __restrict__ parts, const bf16* __restrict__ x, const uint4* __restrict__ codes,                          \
         const unsigned short* __restrict__ scales, int rows, int outputs, int inputs) {                                  \
        gemm_decode(parts, x, WEIGHTS{codes, scales}, rows, outputs, inputs);                                             \
    }
GEMM_DECODE_BLOCKS(gemm_decode_int4, Int4Weights)
GEMM_DECODE_BLOCKS(gemm_decode_fp8, Fp8Weights)

__device__ __forceinline__ float sum_of_splits(const float* parts, size_t i, size_t count, int splits) {
    float sum = 0.0f;
    for (int split = 0; split < splits; ++split) sum = __fadd_rn(sum, parts[split * count + i]);
    return sum;
}

// out: [count] from parts [splits][count], where count is rows * outputs. Grid: ceil(count / THREADS).
extern "C" __global__ void __launch_bounds__(THREADS)
add_splits(bf16* __restrict__ out, const float* __restrict__ parts, int splits, int count) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < count) out[i] = to_bf16(sum_of_splits(parts, i, count, splits));
}

// The same in f32: scores over the vocabulary.
extern "C" __global__ void __launch_bounds__(THREADS)
add_splits_f32(float* __restrict__ out, const float* __restrict__ parts, int splits, int count) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < count) out[i] = sum_of_splits(parts, i, count, splits);
}
