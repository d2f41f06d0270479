// Step 5: tensor cores. A warp multiplies 16 queries with 64 keys, and the weights go from the scores' registers straight
// into the second product (FlashAttention-2, arXiv 2307.08691). paged_prefill.cu is this through a block table.
#include "steps.cuh"

constexpr int ROWS = 64;  // queries of a block, sixteen to a warp
constexpr int TILE = 64;  // keys of a tile

extern "C" __global__ void __launch_bounds__(STEP_THREADS, 2)
attention_05_tensor_cores(bf16* __restrict__ out, const bf16* __restrict__ queries, const bf16* __restrict__ keys,
                          const bf16* __restrict__ values, int tokens, int heads, int kv_heads, float scale) {
    __shared__ __align__(128) bf16 query_tile[ROWS * HEAD], key_tiles[2][TILE * HEAD], value_tiles[2][TILE * HEAD];
    const int first = blockIdx.x * ROWS, kv_head = blockIdx.y / (heads / kv_heads);
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    auto load = [&](int key) {
        copy_rows_async<TILE>(key_tiles[key / TILE % 2], keys, key, tokens, kv_head, kv_heads);
        copy_rows_async<TILE>(value_tiles[key / TILE % 2], values, key, tokens, kv_head, kv_heads);
        commit_copies();
    };
    copy_rows_async<ROWS>(query_tile, queries, first, tokens, blockIdx.y, heads);
    load(0);
    // Of each product's sum a lane has rows lane / 4 and lane / 4 + 8.
    float highest[2] = {negative_infinity(), negative_infinity()}, sum[2] = {}, total[HEAD / 8][4] = {};
    const int end = min(first + ROWS, tokens);
    for (int key = 0; key < end; key += TILE) {
        wait_for_copies<0>();
        __syncthreads();  // this tile is there, and nobody reads the one before it any more
        if (key + TILE < end) load(key + TILE);
        bf16* const key_tile = key_tiles[key / TILE % 2];
        bf16* const value_tile = value_tiles[key / TILE % 2];
        float scores[TILE / 8][4] = {};
#pragma unroll
        // ANCHOR: scores
        for (int step = 0; step < HEAD / 16; ++step) {
            u32 a[4];
            load_rows<HEAD>(a, query_tile, warp * 16, step);
            for (int i = 0; i < TILE / 16; ++i) {
                u32 b[4];
                load_columns<HEAD>(b, key_tile, 16 * i, step);
                multiply_add(scores[2 * i], a, b[0], b[1]);
                multiply_add(scores[2 * i + 1], a, b[2], b[3]);
            }
        }
        // ANCHOR_END: scores
        u32 weights[TILE / 16][4];
        for (int row = 0; row < 2; ++row) {
            const int query = first + warp * 16 + lane / 4 + 8 * row;
            float high = highest[row];
            for (int i = 0; i < TILE / 8; ++i)
                for (int e = 0; e < 2; ++e) {
                    float& score = scores[i][2 * row + e];
                    score = key + i * 8 + lane % 4 * 2 + e <= query ? score * scale : negative_infinity();
                    high = fmaxf(high, score);
                }
            for (int step = 1; step < 4; step *= 2) high = fmaxf(high, __shfl_xor_sync(ALL_LANES, high, step));
            const float base = high == negative_infinity() ? 0.0f : high;
            const float rescale = power_of_two(highest[row] - base);
            highest[row] = high;
            sum[row] *= rescale;
            for (int i = 0; i < HEAD / 8; ++i) total[i][2 * row] *= rescale, total[i][2 * row + 1] *= rescale;
            for (int i = 0; i < TILE / 8; ++i) {
                const float low = power_of_two(scores[i][2 * row] - base);
                const float next = power_of_two(scores[i][2 * row + 1] - base);
                sum[row] += low + next;
                weights[i / 2][row + 2 * (i % 2)] = pack(low, next);
            }
        }
#pragma unroll
        // ANCHOR: output
        for (int step = 0; step < TILE / 16; ++step)
            for (int i = 0; i < HEAD / 16; ++i) {
                u32 b[4];
                load_columns_transposed<HEAD>(b, value_tile, 16 * step, 16 * i);
                multiply_add(total[2 * i], weights[step], b[0], b[1]);
                multiply_add(total[2 * i + 1], weights[step], b[2], b[3]);
            }
        // ANCHOR_END: output
    }
    for (int row = 0; row < 2; ++row) {
        for (int step = 1; step < 4; step *= 2) sum[row] += __shfl_xor_sync(ALL_LANES, sum[row], step);
        const int query = first + warp * 16 + lane / 4 + 8 * row;
        if (query >= tokens) continue;
        u32* const to = reinterpret_cast<u32*>(out + (static_cast<size_t>(query) * heads + blockIdx.y) * HEAD);
        for (int i = 0; i < HEAD / 8; ++i)
            to[i * 4 + lane % 4] = pack(total[i][2 * row] / sum[row], total[i][2 * row + 1] / sum[row]);
    }
}
