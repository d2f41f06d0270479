// Matrix product for few rows, where reading the weights is all that takes time. A block of threads has some outputs of all
// rows, so that weights are read once. Where there are enough such blocks for all multiprocessors, each adds all of its
// splits itself; otherwise a block has one split, and a second kernel adds them.
#include "gemm.cuh"

constexpr int ROWS = 16;     // rows of a row tile, of which a block has one or four
constexpr int OUTPUTS = 64;  // outputs of a block, sixteen to a warp
constexpr int GEMM_THREADS = 128;
constexpr int STEPS = GEMM_SPLIT / GEMM_STEP;  // of a split, all of which are under way together

// What a product is given beside its weights.
struct Product {
    void* __restrict__ out;     // [rows][outputs] in bf16 or f32, where a block has all splits
    float* __restrict__ parts;  // [splits][rows][outputs], where it has one
    const bf16* __restrict__ x;
    int rows, outputs, inputs;
    bool is_f32;
};

// What a thread has of a block's outputs.
template <int TILES>
struct Sums {
    float of[TILES][2][4];

    __device__ __forceinline__ void clear() {
        for (int tile = 0; tile < TILES; ++tile)
            for (int i = 0; i < 2; ++i)
                for (int e = 0; e < 4; ++e) of[tile][i][e] = 0.0f;
    }
    __device__ __forceinline__ void add(const Sums& split) {
        for (int tile = 0; tile < TILES; ++tile)
            for (int i = 0; i < 2; ++i)
                for (int e = 0; e < 4; ++e) of[tile][i][e] = __fadd_rn(of[tile][i][e], split.of[tile][i][e]);
    }
};

template <int TILES, class Weights>
__device__ __forceinline__ void gemm_decode(const Product& product, const Weights& weights) {
    const int rows = product.rows, outputs = product.outputs, inputs = product.inputs;
    const int first_row = blockIdx.x * TILES * ROWS, first_output = blockIdx.z * OUTPUTS;
    constexpr int STAGE = (TILES * ROWS + OUTPUTS) * GEMM_STEP;
    // [STEPS][x [TILES * ROWS][GEMM_STEP], weights [OUTPUTS][GEMM_STEP]]
    bf16* const stages = reinterpret_cast<bf16*>(dynamic_shared);
    auto x_tile = [&](int stage) { return stages + stage * STAGE; };
    auto weight_tile = [&](int stage) { return stages + stage * STAGE + TILES * ROWS * GEMM_STEP; };
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const bool has_all = gridDim.y == 1;
    const int begin = blockIdx.y * GEMM_SPLIT, end = has_all ? inputs : min(inputs, begin + GEMM_SPLIT);

    typename Weights::template Fetched<OUTPUTS, GEMM_THREADS> fetched[STEPS];
    auto fetch = [&](int stage, int input) {
        if (input < end) {
            load_tile<TILES * ROWS, GEMM_THREADS>(x_tile(stage), product.x, first_row, rows, input, inputs);
            fetched[stage] =
                weights.template fetch<OUTPUTS, GEMM_THREADS>(weight_tile(stage), first_output, outputs, input, inputs);
        }
        commit_copies();  // also of nothing: groups are counted
    };
    Sums<TILES> sum, total;
    total.clear();
#pragma unroll
    for (int step = 0; step < STEPS; ++step) fetch(step, begin + step * GEMM_STEP);
#pragma unroll 1
    for (int split = begin; split < end; split += GEMM_SPLIT) {
        sum.clear();
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            const int input = split + step * GEMM_STEP;
            // Of the groups behind this step's, STEPS - 2 at most are under way: a stage is filled again one step after it
            // was read, behind the barrier that all threads come to when they have done with it.
            wait_for_copies<STEPS - 2>();
            if (input < end) weights.template put<OUTPUTS, GEMM_THREADS>(weight_tile(step), fetched[step]);
            __syncthreads();
            if (input > begin) fetch((step + STEPS - 1) % STEPS, input + (STEPS - 1) * GEMM_STEP);
            if (input >= end) continue;
#pragma unroll
            for (int k = 0; k < GEMM_STEP / 16; ++k) {
                u32 b[4];
                load_columns<GEMM_STEP>(b, weight_tile(step), 16 * warp, k);
#pragma unroll
                for (int tile = 0; tile < TILES; ++tile) {
                    u32 a[4];
                    load_rows<GEMM_STEP>(a, x_tile(step), tile * ROWS, k);
                    multiply_add(sum.of[tile][0], a, b[0], b[1]);
                    multiply_add(sum.of[tile][1], a, b[2], b[3]);
                }
            }
        }
        total.add(sum);
    }

#pragma unroll
    for (int tile = 0; tile < TILES; ++tile)
        for (int half = 0; half < 2; ++half) {
            const int row = first_row + tile * ROWS + lane / 4 + 8 * half;
            if (row >= rows) continue;
            for (int i = 0; i < 2; ++i) {
                const int output = first_output + warp * 16 + i * 8 + lane % 4 * 2;
                if (output >= outputs) continue;
                const size_t to = static_cast<size_t>(row) * outputs + output;
                const float low = total.of[tile][i][2 * half], high = total.of[tile][i][2 * half + 1];
                if (has_all && !product.is_f32) {
                    *reinterpret_cast<u32*>(static_cast<bf16*>(product.out) + to) = pack(low, high);
                } else {
                    float* const sums = has_all ? static_cast<float*>(product.out)
                                                : product.parts + static_cast<size_t>(blockIdx.y) * rows * outputs;
                    *reinterpret_cast<float2*>(sums + to) = make_float2(low, high);
                }
            }
        }
}

// out: [rows][outputs] in bf16, or in f32 where is_f32 is 1; parts: [ceil(inputs / GEMM_SPLIT)][rows][outputs];
// x: [rows][inputs], weights: [outputs][inputs].
// Grid: (ceil(rows / rows of a block), 1 or ceil(inputs / GEMM_SPLIT), ceil(outputs / OUTPUTS)). With 1, out is written; with
// more, parts are, and add_splits has the rest. Shared memory: STEPS * STAGE bf16.
#define GEMM_DECODE(NAME, TILES)                                                                                          \
    extern "C" __global__ void __launch_bounds__(GEMM_THREADS, 2)                                                         \
    NAME(void* __restrict__ out, float* __restrict__ parts, const bf16* __restrict__ x, const bf16* __restrict__ weights, \
         int rows, int outputs, int inputs, int is_f32) {                                                                 \
        gemm_decode<TILES>(Product{out, parts, x, rows, outputs, inputs, is_f32 != 0}, Bf16Weights{weights});             \
    }
GEMM_DECODE(gemm_decode_16, 1)
GEMM_DECODE(gemm_decode_64, 4)

// The same with weights in bytes: codes [outputs][inputs], scales [outputs][ceil(inputs / GROUP)].
#define GEMM_DECODE_INT8(NAME, TILES)                                                                                     \
    extern "C" __global__ void __launch_bounds__(GEMM_THREADS, 2)                                                         \
    NAME(void* __restrict__ out, float* __restrict__ parts, const bf16* __restrict__ x,                                   \
         const signed char* __restrict__ codes, const float* __restrict__ scales, int rows, int outputs, int inputs,      \
         int is_f32) {                                                                                                    \
        gemm_decode<TILES>(Product{out, parts, x, rows, outputs, inputs, is_f32 != 0}, Int8Weights{codes, scales});       \
    }
GEMM_DECODE_INT8(gemm_decode_int8_16, 1)
GEMM_DECODE_INT8(gemm_decode_int8_64, 4)

// The same with weights in blocks, as in gemm.cuh.
#define GEMM_DECODE_BLOCKS(NAME, TILES, WEIGHTS)                                                                          \
    extern "C" __global__ void __launch_bounds__(GEMM_THREADS, 2)                                                         \
    NAME(void* __restrict__ out, float* __restrict__ parts, const bf16* __restrict__ x, const uint4* __restrict__ codes,  \
         const unsigned short* __restrict__ scales, int rows, int outputs, int inputs, int is_f32) {                      \
        gemm_decode<TILES>(Product{out, parts, x, rows, outputs, inputs, is_f32 != 0}, WEIGHTS{codes, scales});           \
    }
GEMM_DECODE_BLOCKS(gemm_decode_int4_16, 1, Int4Weights)
GEMM_DECODE_BLOCKS(gemm_decode_int4_64, 4, Int4Weights)
GEMM_DECODE_BLOCKS(gemm_decode_fp8_16, 1, Fp8Weights)
GEMM_DECODE_BLOCKS(gemm_decode_fp8_64, 4, Fp8Weights)

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
