// What both matrix products share: how weights are stored, and the order of sums.
//
// out [rows][outputs] = x [rows][inputs] * weights [outputs][inputs], transposed. A sum is taken over GEMM_SPLIT inputs
// at a time, sixteen by sixteen in the tensor cores, and the splits are added one after the other. That depends on
// `inputs` alone: a row has the same bits from gemm_prefill and from gemm_decode with add_splits, in any batch.
// `inputs` and `outputs` are multiples of 8.
#pragma once
#include "codes.cuh"

constexpr int GEMM_SPLIT = 256;  // inputs after which a sum is closed
constexpr int GEMM_STEP = 64;    // inputs in shared memory at a time
constexpr int GROUP = 64;        // weights in bytes that share a scale
static_assert(GROUP == GEMM_STEP, "a tile's row has one scale");

// Begins to fill a tile [ROWS][GEMM_STEP] from a matrix [rows][inputs]; zeros outside of it. A thread has the same place in
// every so many rows, so that one address leads to the next.
template <int ROWS, int THREADS_OF_BLOCK>
__device__ __forceinline__ void load_tile(bf16* tile, const bf16* matrix, int row, int rows, int input, int inputs) {
    constexpr int LANES = GEMM_STEP / CHUNK, AT_ONCE = THREADS_OF_BLOCK / LANES;  // threads of a row, rows at a time
    static_assert(AT_ONCE % 8 == 0, "the chunks of all of a thread's rows are exchanged alike");
    const int own = row + threadIdx.x / LANES, k = input + threadIdx.x % LANES * CHUNK;
    const bool inside = k < inputs;
    bf16* const to = at<GEMM_STEP>(tile, threadIdx.x / LANES, threadIdx.x % LANES);
    const bf16* from = matrix + (static_cast<long long>(own) * inputs + k);
#pragma unroll
    for (int turn = 0; turn < ROWS; turn += AT_ONCE) {
        const bool there = inside && own + turn < rows;
        copy_async(to + turn * GEMM_STEP, there ? from : matrix, there);
        from += static_cast<long long>(AT_ONCE) * inputs;
    }
}

// Weights are fetched into a tile in two steps, so that what has to go through registers is under way while the tensor cores
// multiply: fetch() begins, put() ends. What fetch() gives is kept in between.

struct Bf16Weights {
    const bf16* __restrict__ weights;  // [outputs][inputs]

    template <int ROWS, int THREADS_OF_BLOCK>
    struct Fetched {};

    template <int ROWS, int THREADS_OF_BLOCK>
    __device__ __forceinline__ Fetched<ROWS, THREADS_OF_BLOCK> fetch(bf16* tile, int output, int outputs, int input,
                                                                     int inputs) const {
        load_tile<ROWS, THREADS_OF_BLOCK>(tile, weights, output, outputs, input, inputs);
        return {};
    }
    template <int ROWS, int THREADS_OF_BLOCK>
    __device__ __forceinline__ void put(bf16*, const Fetched<ROWS, THREADS_OF_BLOCK>&) const {}
};

// Signed bytes with a scale for each GROUP inputs of an output; a weight is code * scale, rounded to bfloat16.
struct Int8Weights {
    const signed char* __restrict__ codes;  // [outputs][inputs]
    const float* __restrict__ scales;       // [outputs][ceil(inputs / GROUP)]

    template <int ROWS, int THREADS_OF_BLOCK>
    struct Fetched {
        static constexpr int COUNT = ROWS * GEMM_STEP / CHUNK / THREADS_OF_BLOCK;
        uint2 bytes[COUNT];
        float scales[COUNT];
    };

    template <int ROWS, int THREADS_OF_BLOCK>
    __device__ __forceinline__ Fetched<ROWS, THREADS_OF_BLOCK> fetch(bf16*, int output, int outputs, int input,
                                                                     int inputs) const {
        Fetched<ROWS, THREADS_OF_BLOCK> fetched;
#pragma unroll
        for (int i = 0; i < fetched.COUNT; ++i) {
            const int e = threadIdx.x + i * THREADS_OF_BLOCK;
            const int r = e / (GEMM_STEP / CHUNK), chunk = e % (GEMM_STEP / CHUNK), k = input + chunk * CHUNK;
            fetched.bytes[i] = make_uint2(0, 0);
            fetched.scales[i] = 0.0f;
            if (output + r < outputs && k < inputs) {
                const size_t row = output + r;
                fetched.bytes[i] = *reinterpret_cast<const uint2*>(codes + row * inputs + k);
                fetched.scales[i] = scales[row * ((inputs + GROUP - 1) / GROUP) + k / GROUP];
            }
        }
        return fetched;
    }
    template <int ROWS, int THREADS_OF_BLOCK>
    __device__ __forceinline__ void put(bf16* tile, const Fetched<ROWS, THREADS_OF_BLOCK>& fetched) const {
#pragma unroll
        for (int i = 0; i < fetched.COUNT; ++i) {
            const int e = threadIdx.x + i * THREADS_OF_BLOCK;
            const uint2 bytes = fetched.bytes[i];
            const float scale = fetched.scales[i];
            store_chunk(at<GEMM_STEP>(tile, e / (GEMM_STEP / CHUNK), e % (GEMM_STEP / CHUNK)),
                        pack_codes<Int8>(bytes.x, scale), pack_codes<Int8>(bytes.x >> 16, scale),
                        pack_codes<Int8>(bytes.y, scale), pack_codes<Int8>(bytes.y >> 16, scale));
        }
    }
};

// Blocks of BLOCK weights with a scale in half precision, as rung 04 and GGUF's Q4_0 have them, but codes and scales apart:
// codes [outputs][inputs / BLOCK] blocks, scales [inputs / BLOCK][outputs], so that neighbours read what lies side by side.
// A weight is code * scale, rounded to bfloat16. `inputs` is a multiple of BLOCK.
constexpr int BLOCK = 32;

// LANES lanes have 16 bytes each of a row of GEMM_STEP weights. Unpack::unpack makes chunk `which` of 16 bytes.
template <int LANES, class Unpack>
struct BlockWeights {
    static constexpr int WEIGHTS = GEMM_STEP / LANES;  // in 16 bytes
    const uint4* __restrict__ codes;
    const unsigned short* __restrict__ scales;

    template <int ROWS, int THREADS_OF_BLOCK>
    struct Fetched {
        static constexpr int COUNT = ROWS * LANES / THREADS_OF_BLOCK;
        uint4 bytes[COUNT];
        unsigned short scales[COUNT];
    };

    template <int ROWS, int THREADS_OF_BLOCK>
    __device__ __forceinline__ Fetched<ROWS, THREADS_OF_BLOCK> fetch(bf16*, int output, int outputs, int input,
                                                                     int inputs) const {
        Fetched<ROWS, THREADS_OF_BLOCK> fetched;
#pragma unroll
        for (int i = 0; i < fetched.COUNT; ++i) {
            const int e = threadIdx.x + i * THREADS_OF_BLOCK;
            const int r = e / LANES, k = input + e % LANES * WEIGHTS;
            fetched.bytes[i] = make_uint4(0, 0, 0, 0);
            fetched.scales[i] = 0;
            if (output + r < outputs && k < inputs) {
                const size_t row = output + r;
                fetched.bytes[i] = codes[(row * inputs + k) / WEIGHTS];
                fetched.scales[i] = scales[static_cast<size_t>(k / BLOCK) * outputs + row];
            }
        }
        return fetched;
    }
    template <int ROWS, int THREADS_OF_BLOCK>
    __device__ __forceinline__ void put(bf16* tile, const Fetched<ROWS, THREADS_OF_BLOCK>& fetched) const {
#pragma unroll
        for (int i = 0; i < fetched.COUNT; ++i) {
            const int e = threadIdx.x + i * THREADS_OF_BLOCK;
            constexpr int CHUNKS = WEIGHTS / CHUNK;
            for (int which = 0; which < CHUNKS; ++which) {
                bf16* const chunk = at<GEMM_STEP>(tile, e / LANES, CHUNKS * (e % LANES) + which);
                Unpack::unpack(chunk, fetched.bytes[i], which, from_half(fetched.scales[i]));
            }
        }
    }
};

// A byte's lower half is one weight's, its upper half that of the weight sixteen on.
struct UnpackInt4 {
    static __device__ __forceinline__ void unpack(bf16* chunk, uint4 bytes, int which, float scale) {
        const u32 low = which % 2 ? bytes.z : bytes.x, high = which % 2 ? bytes.w : bytes.y;
        const int shift = which / 2 * 4;
        store_chunk(chunk, pack_codes<Int4>(low >> shift, scale), pack_codes<Int4>(low >> (shift + 16), scale),
                    pack_codes<Int4>(high >> shift, scale), pack_codes<Int4>(high >> (shift + 16), scale));
    }
};
typedef BlockWeights<2, UnpackInt4> Int4Weights;

// A byte for each weight.
struct UnpackFp8 {
    static __device__ __forceinline__ void unpack(bf16* chunk, uint4 bytes, int which, float scale) {
        const u32 low = which ? bytes.z : bytes.x, high = which ? bytes.w : bytes.y;
        store_chunk(chunk, pack_codes<E4m3>(low, scale), pack_codes<E4m3>(low >> 16, scale), pack_codes<E4m3>(high, scale),
                    pack_codes<E4m3>(high >> 16, scale));
    }
};
typedef BlockWeights<4, UnpackFp8> Fp8Weights;
