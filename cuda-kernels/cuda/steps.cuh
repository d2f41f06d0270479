// What the numbered steps share: causal attention of one sequence, head size 64, each file with one idea more than the
// one before.
//
// out, queries: [tokens][heads][64]; keys, values: [tokens][kv_heads][64]; scale: what a score is multiplied with, times
// log2(e). Grid: (ceil(tokens / queries of a block), heads).
#pragma once
#include "tensor_core.cuh"

constexpr int HEAD = 64;

// Steps 2 to 4: four warps of eight queries each; a lane has one key of a tile in the scores, two columns in the output.
constexpr int STEP_THREADS = 128;
constexpr int QUERIES = 32;      // of a block
constexpr int WARP_QUERIES = 8;  // of a warp
constexpr int KEYS = 32;         // of a tile

// Elements 2 * i and 2 * i + 1 of 16 bytes.
__device__ __forceinline__ u32 pair_of(const uint4& chunk, int i) { return i == 0 ? chunk.x : i == 1 ? chunk.y : i == 2 ? chunk.z : chunk.w; }

// Eight queries' softmax over the keys so far.
struct WarpRows {
    float highest[WARP_QUERIES], sum[WARP_QUERIES], out[WARP_QUERIES][2];

    __device__ __forceinline__ WarpRows() {
        for (int q = 0; q < WARP_QUERIES; ++q) highest[q] = negative_infinity(), sum[q] = out[q][0] = out[q][1] = 0.0f;
    }

    // Adds a tile of keys and values; place(tile, row, chunk) says where a chunk lies. The warp's first query is number
    // `query`, and the tile's first key number `key`.
    template <class Place>
    __device__ __forceinline__ void add(const bf16* query_rows, bf16* keys, bf16* values, int query, int key, float scale,
                                        Place place) {
        const int lane = threadIdx.x % WARP;
        float scores[WARP_QUERIES] = {};
        for (int chunk = 0; chunk < HEAD / CHUNK; ++chunk) {
            // ANCHOR: key_chunk
            const uint4 k = *reinterpret_cast<const uint4*>(place(keys, lane, chunk));
            // ANCHOR_END: key_chunk
#pragma unroll
            for (int q = 0; q < WARP_QUERIES; ++q) {
                const uint4 x = *reinterpret_cast<const uint4*>(query_rows + q * HEAD + chunk * CHUNK);
#pragma unroll
                for (int i = 0; i < CHUNK / 2; ++i) {
                    scores[q] += low_half(pair_of(x, i)) * low_half(pair_of(k, i));
                    scores[q] += high_half(pair_of(x, i)) * high_half(pair_of(k, i));
                }
            }
        }
        float weights[WARP_QUERIES];
#pragma unroll
        for (int q = 0; q < WARP_QUERIES; ++q) {
            const float score = key + lane <= query + q ? scores[q] * scale : negative_infinity();
            float high = fmaxf(highest[q], score);
            for (int step = WARP / 2; step > 0; step /= 2) high = fmaxf(high, __shfl_xor_sync(ALL_LANES, high, step));
            // A query before all of the tile's keys keeps what it has.
            const float base = high == negative_infinity() ? 0.0f : high;
            const float rescale = power_of_two(highest[q] - base);
            weights[q] = power_of_two(score - base);
            float added = weights[q];
            for (int step = WARP / 2; step > 0; step /= 2) added += __shfl_xor_sync(ALL_LANES, added, step);
            highest[q] = high;
            sum[q] = sum[q] * rescale + added;
            out[q][0] *= rescale;
            out[q][1] *= rescale;
        }
        for (int row = 0; row < KEYS; ++row) {
            const u32 v = reinterpret_cast<const u32*>(place(values, row, lane / 4))[lane % 4];
#pragma unroll
            for (int q = 0; q < WARP_QUERIES; ++q) {
                const float weight = __shfl_sync(ALL_LANES, weights[q], row);
                out[q][0] += weight * low_half(v);
                out[q][1] += weight * high_half(v);
            }
        }
    }

    __device__ __forceinline__ void store(bf16* to, int query, int tokens, int heads) const {
        for (int q = 0; q < WARP_QUERIES && query + q < tokens; ++q) {
            u32* const row = reinterpret_cast<u32*>(to + (static_cast<size_t>(query + q) * heads + blockIdx.y) * HEAD);
            row[threadIdx.x % WARP] = pack(out[q][0] / sum[q], out[q][1] / sum[q]);
        }
    }
};

// Rows `token`.. of [tokens][heads][64] into a tile by way of registers; zeros behind the last.
template <int ROWS, class Place>
__device__ __forceinline__ void copy_rows(bf16* tile, const bf16* from, int token, int tokens, int head, int heads,
                                          Place place) {
#pragma unroll
    for (int turn = 0; turn < ROWS * HEAD / CHUNK / STEP_THREADS; ++turn) {
        const int i = threadIdx.x + turn * STEP_THREADS;
        const int row = i / (HEAD / CHUNK), chunk = i % (HEAD / CHUNK);
        uint4 value = make_uint4(0, 0, 0, 0);
        if (token + row < tokens) {
            const bf16* const source = from + (static_cast<size_t>(token + row) * heads + head) * HEAD;
            value = *reinterpret_cast<const uint4*>(source + chunk * CHUNK);
        }
        *reinterpret_cast<uint4*>(place(tile, row, chunk)) = value;
    }
}

// The same without registers in between, and without waiting.
template <int ROWS>
__device__ __forceinline__ void copy_rows_async(bf16* tile, const bf16* from, int token, int tokens, int head, int heads) {
#pragma unroll
    for (int turn = 0; turn < ROWS * HEAD / CHUNK / STEP_THREADS; ++turn) {
        const int i = threadIdx.x + turn * STEP_THREADS;
        const int row = i / (HEAD / CHUNK), chunk = i % (HEAD / CHUNK);
        const bool there = token + row < tokens;
        const bf16* const source = from + (static_cast<size_t>(there ? token + row : 0) * heads + head) * HEAD;
        copy_async(at<HEAD>(tile, row, chunk), source + chunk * CHUNK, there);
    }
}

// A row after the other.
__device__ __forceinline__ bf16* row_after_row(bf16* tile, int row, int chunk) { return tile + row * HEAD + chunk * CHUNK; }
