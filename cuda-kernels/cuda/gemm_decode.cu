// Matrix product for few rows, where reading the weights is all that takes time. A block of threads has some outputs of all
// rows, so that weights are read once. Where there are enough such blocks for all multiprocessors, each adds all of its
// splits itself; otherwise a block has one split, and the next kernel adds them: add_splits, or the one that needs the sum.
#include "gemm.cuh"
#include "splits.cuh"

constexpr int ROWS = 16;     // rows of a row tile, of which a block has one or four
constexpr int OUTPUTS = 64;  // outputs of a block, sixteen to a warp
constexpr int GEMM_THREADS = 128;
constexpr int STEPS = GEMM_SPLIT / GEMM_STEP;  // of a split, all of which are under way together

// Steps whose weights are asked for before earlier kernels have ended.
template <int TILES>
constexpr int EARLY = TILES == 1 ? STEPS : 0;

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

// Gates and ups of a feed-forward layer, [2][outputs][inputs]: a tile has eight rows of the gates, then eight of the ups, and so
// on. So a thread that has a sum of a gate has that of its up, too.
struct GateUpWeights : Bf16Weights {
    template <int ROWS_OF_TILE, int THREADS_OF_BLOCK>
    __device__ __forceinline__ Fetched<ROWS_OF_TILE, THREADS_OF_BLOCK> fetch(bf16* tile, int output, int outputs, int input,
                                                                             int inputs) const {
        constexpr int LANES = GEMM_STEP / CHUNK, AT_ONCE = THREADS_OF_BLOCK / LANES;
        static_assert(AT_ONCE == 16, "a thread has either gates or ups");
        const int own = threadIdx.x / LANES, row = output + own % 8, k = input + threadIdx.x % LANES * CHUNK;
        const bool inside = k < inputs;
        bf16* const to = at<GEMM_STEP>(tile, own, threadIdx.x % LANES);
        const bf16* from = weights + (static_cast<long long>(own < 8 ? row : outputs + row) * inputs + k);
#pragma unroll
        for (int turn = 0; turn < ROWS_OF_TILE; turn += AT_ONCE) {
            const bool there = inside && row + turn / 2 < outputs;
            copy_async(to + turn * GEMM_STEP, there ? from : weights, there);
            from += static_cast<long long>(AT_ONCE / 2) * inputs;
        }
        return {};
    }
};

// HAS_GATES: weights are gates and ups, a block has half as many outputs, and all of their inputs.
template <int TILES, bool HAS_GATES = false, class Weights>
__device__ __forceinline__ void gemm_decode(const Product& product, const Weights& weights) {
    const int rows = product.rows, outputs = product.outputs, inputs = product.inputs;
    const int first_row = blockIdx.x * TILES * ROWS, first_output = blockIdx.z * (HAS_GATES ? OUTPUTS / 2 : OUTPUTS);
    constexpr int STAGE = (TILES * ROWS + OUTPUTS) * GEMM_STEP;
    // [STEPS][x [TILES * ROWS][GEMM_STEP], weights [OUTPUTS][GEMM_STEP]]
    bf16* const stages = reinterpret_cast<bf16*>(dynamic_shared);
    auto x_tile = [&](int stage) { return stages + stage * STAGE; };
    auto weight_tile = [&](int stage) { return stages + stage * STAGE + TILES * ROWS * GEMM_STEP; };
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const bool has_all = gridDim.y == 1;
    const int begin = blockIdx.y * GEMM_SPLIT, end = has_all ? inputs : min(inputs, begin + GEMM_SPLIT);

    typename Weights::template Fetched<OUTPUTS, GEMM_THREADS> fetched[STEPS];
    auto fetch_x = [&](int stage, int input) {
        if (input < end) load_tile<TILES * ROWS, GEMM_THREADS>(x_tile(stage), product.x, first_row, rows, input, inputs);
    };
    auto fetch_weights = [&](int stage, int input) {
        if (input >= end) return;
        fetched[stage] =
            weights.template fetch<OUTPUTS, GEMM_THREADS>(weight_tile(stage), first_output, outputs, input, inputs);
    };
    Sums<TILES> sum, total;
    total.clear();
#pragma unroll
    for (int step = 0; step < EARLY<TILES>; ++step) fetch_weights(step, begin + step * GEMM_STEP);
    after_earlier_kernels();
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
        fetch_x(step, begin + step * GEMM_STEP);
        if (step >= EARLY<TILES>) fetch_weights(step, begin + step * GEMM_STEP);
        commit_copies();
    }
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
            if (input > begin) {
                const int stage = (step + STEPS - 1) % STEPS, later = input + (STEPS - 1) * GEMM_STEP;
                fetch_x(stage, later);
                fetch_weights(stage, later);
                commit_copies();  // also of nothing: groups are counted
            }
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
            const size_t to = static_cast<size_t>(row) * outputs;
            if constexpr (HAS_GATES) {
                const int output = first_output + warp * 8 + lane % 4 * 2;
                if (output >= outputs) continue;
                // Rounded to bfloat16 in between, as they are where the gate is a kernel of its own.
                auto gated = [&](int e) {
                    return silu_times(to_float(to_bf16(total.of[tile][0][e])), to_float(to_bf16(total.of[tile][1][e])));
                };
                *reinterpret_cast<u32*>(static_cast<bf16*>(product.out) + to + output) =
                    pack(gated(2 * half), gated(2 * half + 1));
            } else {
                for (int i = 0; i < 2; ++i) {
                    const int output = first_output + warp * 16 + i * 8 + lane % 4 * 2;
                    if (output >= outputs) continue;
                    const float low = total.of[tile][i][2 * half], high = total.of[tile][i][2 * half + 1];
                    if (has_all && !product.is_f32) {
                        *reinterpret_cast<u32*>(static_cast<bf16*>(product.out) + to + output) = pack(low, high);
                    } else {
                        float* const sums = has_all ? static_cast<float*>(product.out)
                                                    : product.parts + static_cast<size_t>(blockIdx.y) * rows * outputs;
                        *reinterpret_cast<float2*>(sums + to + output) = make_float2(low, high);
                    }
                }
            }
        }
}

// out: [rows][outputs] in bf16, or in f32 where is_f32 is 1; parts: [ceil(inputs / GEMM_SPLIT)][rows][outputs];
// x: [rows][inputs], weights: [outputs][inputs].
// Grid: (ceil(rows / rows of a block), 1 or ceil(inputs / GEMM_SPLIT), ceil(outputs / OUTPUTS)). With 1, out is written; with
// more, parts are, and whoever reads them adds them (splits.cuh). Shared memory: STEPS * STAGE bf16.
#define GEMM_DECODE(NAME, TILES)                                                                                          \
    extern "C" __global__ void __launch_bounds__(GEMM_THREADS, 2)                                                         \
    NAME(void* __restrict__ out, float* __restrict__ parts, const bf16* __restrict__ x, const bf16* __restrict__ weights, \
         int rows, int outputs, int inputs, int is_f32) {                                                                 \
        gemm_decode<TILES>(Product{out, parts, x, rows, outputs, inputs, is_f32 != 0}, Bf16Weights{weights});             \
    }
GEMM_DECODE(gemm_decode_16, 1)
GEMM_DECODE(gemm_decode_64, 4)

// The first product of a feed-forward layer with its gate: out [rows][outputs] = silu(x * gates) * (x * ups), weights: gates and
// then ups, [2][outputs][inputs]. The bits of gemm_decode and swiglu. Grid: (as above, 1, ceil(outputs / (OUTPUTS / 2))).
#define GEMM_DECODE_SWIGLU(NAME, TILES)                                                                                   \
    extern "C" __global__ void __launch_bounds__(GEMM_THREADS, 2)                                                         \
    NAME(bf16* __restrict__ out, const bf16* __restrict__ x, const bf16* __restrict__ weights, int rows, int outputs,     \
         int inputs) {                                                                                                    \
        gemm_decode<TILES, true>(Product{out, nullptr, x, rows, outputs, inputs, false}, GateUpWeights{{weights}});         \
    }
GEMM_DECODE_SWIGLU(gemm_decode_swiglu_16, 1)
GEMM_DECODE_SWIGLU(gemm_decode_swiglu_64, 4)

// gemm_decode with weights in bytes: codes [outputs][inputs], scales [outputs][ceil(inputs / GROUP)].
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

__device__ __forceinline__ float sum_at(const float* parts, size_t i, size_t count, int splits) {
    return sum_of_splits<16, 1>(splits, [&](int split) { return Floats<1>{parts[split * count + i]}; }).of[0];
}

// out: [count] from parts [splits][count], where count is rows * outputs. Grid: ceil(count / THREADS).
extern "C" __global__ void __launch_bounds__(THREADS)
add_splits(bf16* __restrict__ out, const float* __restrict__ parts, int splits, int count) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < count) out[i] = to_bf16(sum_at(parts, i, count, splits));
}

// The same in f32: scores over the vocabulary.
extern "C" __global__ void __launch_bounds__(THREADS)
add_splits_f32(float* __restrict__ out, const float* __restrict__ parts, int splits, int count) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < count) out[i] = sum_at(parts, i, count, splits);
}
