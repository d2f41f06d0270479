// Step 3: the 16-byte chunks of a row change places, by the row's number, so that lanes that read the same chunk of
// different rows read from different banks.
#include "steps.cuh"

extern "C" __global__ void __launch_bounds__(STEP_THREADS)
attention_03_swizzled(bf16* __restrict__ out, const bf16* __restrict__ queries, const bf16* __restrict__ keys,
                      const bf16* __restrict__ values, int tokens, int heads, int kv_heads, float scale) {
    __shared__ __align__(128) bf16 query_tile[QUERIES * HEAD], key_tile[KEYS * HEAD], value_tile[KEYS * HEAD];
    const int first = blockIdx.x * QUERIES, kv_head = blockIdx.y / (heads / kv_heads);
    const int warp_first = threadIdx.x / WARP * WARP_QUERIES;
    copy_rows<QUERIES>(query_tile, queries, first, tokens, blockIdx.y, heads, row_after_row);
    WarpRows rows;
    const int end = min(first + QUERIES, tokens);
    for (int key = 0; key < end; key += KEYS) {
        copy_rows<KEYS>(key_tile, keys, key, tokens, kv_head, kv_heads, at<HEAD>);
        copy_rows<KEYS>(value_tile, values, key, tokens, kv_head, kv_heads, at<HEAD>);
        __syncthreads();  // the tile is there
        rows.add(query_tile + warp_first * HEAD, key_tile, value_tile, first + warp_first, key, scale, at<HEAD>);
        __syncthreads();  // nobody reads it any more
    }
    rows.store(out, first + warp_first, tokens, heads);
}
