// Step 4: two tiles in shared memory. While one is worked with, the next is on its way (cp.async), and one barrier a tile
// is enough.
#include "steps.cuh"

extern "C" __global__ void __launch_bounds__(STEP_THREADS)
attention_04_pipelined(bf16* __restrict__ out, const bf16* __restrict__ queries, const bf16* __restrict__ keys,
                       const bf16* __restrict__ values, int tokens, int heads, int kv_heads, float scale) {
    __shared__ __align__(128) bf16 query_tile[QUERIES * HEAD], key_tiles[2][KEYS * HEAD], value_tiles[2][KEYS * HEAD];
    const int first = blockIdx.x * QUERIES, kv_head = blockIdx.y / (heads / kv_heads);
    const int warp_first = threadIdx.x / WARP * WARP_QUERIES;
    auto load = [&](int key) {
        copy_rows_async<KEYS>(key_tiles[key / KEYS % 2], keys, key, tokens, kv_head, kv_heads);
        copy_rows_async<KEYS>(value_tiles[key / KEYS % 2], values, key, tokens, kv_head, kv_heads);
        commit_copies();
    };
    load(0);
    copy_rows<QUERIES>(query_tile, queries, first, tokens, blockIdx.y, heads, row_after_row);
    WarpRows rows;
    const int end = min(first + QUERIES, tokens);
    // ANCHOR: pipelined
    for (int key = 0; key < end; key += KEYS) {
        wait_for_copies<0>();
        __syncthreads();  // this tile is there, and nobody reads the one before it any more
        if (key + KEYS < end) load(key + KEYS);
        const int stage = key / KEYS % 2;
        rows.add(query_tile + warp_first * HEAD, key_tiles[stage], value_tiles[stage], first + warp_first, key, scale,
                 at<HEAD>);
    }
    // ANCHOR_END: pipelined
    rows.store(out, first + warp_first, tokens, heads);
}
