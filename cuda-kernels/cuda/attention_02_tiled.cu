// Step 2: a tile of keys and values is read once for 32 queries, and kept in shared memory.
//
// Global memory is read in whole sectors now. Shared memory is not yet: a row of 64 bf16 is one line of all 32 banks,
// so the eight lanes that get their 16 bytes together, each from its own key, all want the same four banks.
#include "steps.cuh"

extern "C" __global__ void __launch_bounds__(STEP_THREADS)
attention_02_tiled(bf16* __restrict__ out, const bf16* __restrict__ queries, const bf16* __restrict__ keys,
                   const bf16* __restrict__ values, int tokens, int heads, int kv_heads, float scale) {
    __shared__ __align__(128) bf16 query_tile[QUERIES * HEAD], key_tile[KEYS * HEAD], value_tile[KEYS * HEAD];
    const int first = blockIdx.x * QUERIES, kv_head = blockIdx.y / (heads / kv_heads);
    const int warp_first = threadIdx.x / WARP * WARP_QUERIES;
    copy_rows<QUERIES>(query_tile, queries, first, tokens, blockIdx.y, heads, row_after_row);
    WarpRows rows;
    const int end = min(first + QUERIES, tokens);
    // ANCHOR: tiled
    for (int key = 0; key < end; key += KEYS) {
        copy_rows<KEYS>(key_tile, keys, key, tokens, kv_head, kv_heads, row_after_row);
        copy_rows<KEYS>(value_tile, values, key, tokens, kv_head, kv_heads, row_after_row);
        __syncthreads();  // the tile is there
        rows.add(query_tile + warp_first * HEAD, key_tile, value_tile, first + warp_first, key, scale, row_after_row);
        __syncthreads();  // nobody reads it any more
    }
    // ANCHOR_END: tiled
    rows.store(out, first + warp_first, tokens, heads);
}
