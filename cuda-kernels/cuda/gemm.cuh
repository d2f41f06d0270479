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

// Begins to fill a tile [ROWS][GEMM_STEP] from a matrix [rows][inputs]; zeros outside of it.
template <int ROWS, int THREADS_OF_BLOCK>
__device__ __forceinline__ void load_tile(bf16* tile, const bf16* matrix, int row, int rows, int input, int inputs) {
#pragma unroll
    for (int i = 0; i < ROWS * GEMM_STEP / CHUNK / THREADS_OF_BLOCK; ++i) {
        const int e = threadIdx.x + i * THREADS_OF_BLOCK;
        const int r = e / (GEMM_STEP / CHUNK), chunk = e % (GEMM_STEP / CHUNK), k = input + chunk * CHUNK;
        const bool there = row + r < rows && k < inputs;
        copy_async(at<GEMM_STEP>(tile, r, chunk), there ? matrix + static_cast<size_t>(row + r) * inputs + k : matrix,
                   there);
    }
}

struct Bf16Weights {
    const bf16* __restrict__ weights;  // [outputs][inputs]

    template <int ROWS, int THREADS_OF_BLOCK>
    __device__ __forceinline__ void load(bf16* tile, int output, int outputs, int input, int inputs) const {
        load_tile<ROWS, THREADS_OF_BLOCK>(tile, weights, output, outputs, input, inputs);
    }
};

// Signed bytes with a scale for each GROUP inputs of an output; a weight is code * scale, rounded to bfloat16.
struct Int8Weights {
    const signed char* __restrict__ codes;  // [outputs][inputs]
    const float* __restrict__ scales;       // [outputs][ceil(inputs / GROUP)]

    template <int ROWS, int THREADS_OF_BLOCK>
    __device__ __forceinline__ void load(bf16* tile, int output, int outputs, int input, int inputs) const {
#pragma unroll
        for (int i = 0; i < ROWS * GEMM_STEP / CHUNK / THREADS_OF_BLOCK; ++i) {
            const int e = threadIdx.x + i * THREADS_OF_BLOCK;
            const int r = e / (GEMM_STEP / CHUNK), chunk = e % (GEMM_STEP / CHUNK), k = input + chunk * CHUNK;
            uint2 bytes = make_uint2(0, 0);
            float scale = 0.0f;
            if (output + r < outputs && k < inputs) {
                const size_t row = output + r;
                bytes = *reinterpret_cast<const uint2*>(codes + row * inputs + k);
                scale = scales[row * ((inputs + GROUP - 1) / GROUP) + k / GROUP];
            }
            store_chunk(at<GEMM_STEP>(tile, r, chunk), pack_codes<Int8>(bytes.x, scale), pack_codes<Int8>(bytes.x >> 16, scale),
                        pack_codes<Int8>(bytes.y, scale), pack_codes<Int8>(bytes.y >> 16, scale));
        }
    }
};

// Blocks of BLOCK weights with a scale in half precision, as rung 04 and GGUF's Q4_0 have them, but codes and scales apart:
// codes [outputs][inputs / BLOCK] blocks, scales [inputs / BLOCK][outputs], so that neighbours read what lies side by side.
// A weight is code * scale, rounded to bfloat16. `inputs` is a multiple of BLOCK.
constexpr int BLOCK = 32;

// Reads the blocks of a tile's rows, 16 bytes and their scale at a time, and hands them to `store`.
template <int ROWS, int THREADS_OF_BLOCK, int LANES, class Store>
__device__ __forceinline__ void load_blocks(const uint4* codes, const unsigned short* scales, int output, int outputs,
                                            int input, int inputs, Store store) {
    // LANES lanes have 16 bytes each of a row of GEMM_STEP weights.
    constexpr int WEIGHTS = GEMM_STEP / LANES;  // in 16 bytes
#pragma unroll
    for (int i = 0; i < ROWS * LANES / THREADS_OF_BLOCK; ++i) {
        const int e = threadIdx.x + i * THREADS_OF_BLOCK;
        const int r = e / LANES, part = e % LANES, k = input + part * WEIGHTS;
        uint4 bytes = make_uint4(0, 0, 0, 0);
        float scale = 0.0f;
        if (output + r < outputs && k < inputs) {
            const size_t row = output + r;
            bytes = codes[(row * inputs + k) / WEIGHTS];
            scale = from_half(scales[static_cast<size_t>(k / BLOCK) * outputs + row]);
        }
        store(r, part, bytes, scale);
    }
}

// A byte's lower half is one weight's, its upper half that of the weight sixteen on.
struct Int4Weights {
    const uint4* __restrict__ codes;
    const unsigned short* __restrict__ scales;

    template <int ROWS, int THREADS_OF_BLOCK>
    __device__ __forceinline__ void load(bf16* tile, int output, int outputs, int input, int inputs) const {
        auto store = [&](int r, int block, uint4 bytes, float scale) {
            for (int which = 0; which < 4; ++which) {
                const u32 low = which % 2 ? bytes.z : bytes.x, high = which % 2 ? bytes.w : bytes.y;
                const int shift = which / 2 * 4;
                store_chunk(at<GEMM_STEP>(tile, r, 4 * block + which), pack_codes<Int4>(low >> shift, scale),
                            pack_codes<Int4>(low >> (shift + 16), scale), pack_codes<Int4>(high >> shift, scale),
                            pack_codes<Int4>(high >> (shift + 16), scale));
            }
        };
        load_blocks<ROWS, THREADS_OF_BLOCK, 2>(codes, scales, output, outputs, input, inputs, store);
    }
};

// A byte for each weight, in FP8.
struct Fp8Weights {
    const uint4* __restrict__ codes;
    const unsigned short* __restrict__ scales;

    template <int ROWS, int THREADS_OF_BLOCK>
    __device__ __forceinline__ void load(bf16* tile, int output, int outputs, int input, int inputs) const {
        auto store = [&](int r, int part, uint4 bytes, float scale) {
            for (int which = 0; which < 2; ++which) {
                const u32 low = which ? bytes.z : bytes.x, high = which ? bytes.w : bytes.y;
                store_chunk(at<GEMM_STEP>(tile, r, 2 * part + which), pack_codes<E4m3>(low, scale),
                            pack_codes<E4m3>(low >> 16, scale), pack_codes<E4m3>(high, scale),
                            pack_codes<E4m3>(high >> 16, scale));
            }
        };
        load_blocks<ROWS, THREADS_OF_BLOCK, 4>(codes, scales, output, outputs, input, inputs, store);
    }
};
