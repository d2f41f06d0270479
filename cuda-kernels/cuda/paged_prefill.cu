// Attention over the paged cache for many queries of a request: a block of threads walks all keys that its queries see
// (FlashAttention-2, arXiv 2307.08691).
#include "attention.cuh"

constexpr int ROWS = 64;  // queries times heads of a group, sixteen to a warp

template <int WIDTH, class Cache>
__device__ __forceinline__ void paged_prefill(bf16* out, const bf16* queries, const Cache& keys, const Cache& values,
                                              const Batch& batch, int heads, float scale) {
    bf16* const query_tile = reinterpret_cast<bf16*>(dynamic_shared);
    bf16* const tiles = query_tile + ROWS * WIDTH;  // [2][keys, values][TILE][WIDTH]
    const int kv_head = blockIdx.y, group = heads / gridDim.y, request = blockIdx.z;
    const int start = batch.query_starts[request];
    const int packed = (batch.query_starts[request + 1] - start) * group;
    const int first = blockIdx.x * ROWS;
    if (first >= packed) return;
    const int length = batch.lengths[request];
    const int* const table = batch.tables + static_cast<size_t>(request) * batch.table_width;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;

    auto visible_to = [&](int row) { return Visible(batch, request, min(first + row, packed - 1) / group); };
    const int all_see = visible_to(warp * 16).prefix;  // no row of this warp sees less
    const Visible last = visible_to(ROWS - 1);
    const int end = last.marks ? length : last.prefix;  // of what any row of the block sees

    auto load = [&](int tile) {
        bf16* const stage = tiles + tile % 2 * 2 * TILE * WIDTH;
        keys.template load<WIDTH, 1>(stage, table, tile * TILE, length, kv_head);
        values.template load<WIDTH, 1>(stage + TILE * WIDTH, table, tile * TILE, length, kv_head);
    };
    load_queries<WIDTH, ROWS>(query_tile, queries, start, first, packed, group, heads, kv_head);
    load(0);
    commit_copies();

    Part<WIDTH> part, total;
    part.clear();
    total.clear();
    const int count = (end + TILE - 1) / TILE;
    for (int tile = 0; tile < count; ++tile) {
        wait_for_copies<0>();
        __syncthreads();  // this tile is there, and nobody reads the one before it any more
        if (tile + 1 < count) {
            load(tile + 1);
            commit_copies();
        }
        bf16* const stage = tiles + tile % 2 * 2 * TILE * WIDTH;
        float scores[TILE / 8][4];
        scores_of<WIDTH, TILE / 16>(scores, query_tile, warp * 16, stage, 0);
        if ((tile + 1) * TILE > all_see) {
            auto seen_by = [&](int row) { return visible_to(row).of_tile(tile * TILE); };
            mask(scores, seen_by(warp * 16 + lane / 4), seen_by(warp * 16 + lane / 4 + 8));
        }
        float rescale[2];
        part.softmax.weigh(scores, scale, rescale);
        u32 weights[TILE / 16][4];
        pack_weights(weights, scores);
        part.template add<WIDTH>(weights, rescale, [&](int i) { return Rows{stage + TILE * WIDTH, 16 * i}; }, 0);
        if (tile % (SPLIT / TILE) == SPLIT / TILE - 1 || tile + 1 == count) {
            part.softmax.close();
            total.join(part.softmax, part.out, scale);
            part.clear();
        }
    }

    // Through the warp's own rows of the query tile, so that whole sectors are written.
    for (int row = 0; row < 2; ++row) {
        const float factor = inverse(total.softmax.sum[row]);
        for (int i = 0; i < WIDTH / 8; ++i) {
            bf16* const chunk = at<WIDTH>(query_tile, warp * 16 + lane / 4 + 8 * row, i);
            reinterpret_cast<u32*>(chunk)[lane % 4] =
                pack(total.out[i][2 * row] * factor, total.out[i][2 * row + 1] * factor);
        }
    }
    __syncwarp();
#pragma unroll 1
    for (int turn = 0; turn < 16 * WIDTH / CHUNK / WARP; ++turn) {
        const int i = lane + turn * WARP;
        const int row = warp * 16 + i / (WIDTH / CHUNK), chunk = i % (WIDTH / CHUNK), m = first + row;
        if (m >= packed) continue;
        const size_t query = start + m / group;
        *reinterpret_cast<uint4*>(out + (query * heads + kv_head * group + m % group) * WIDTH + chunk * CHUNK) =
            *reinterpret_cast<uint4*>(at<WIDTH>(query_tile, row, chunk));
    }
}

// out, queries: [rows][heads][head_dim]; keys, values and the batch as in attention.cuh; scale: what a score is
// multiplied with, times log2(e). Grid: (ceil(most rows of a request * heads / kv_heads / ROWS), kv_heads, requests).
// Shared memory: (ROWS + 4 * TILE) * head_dim bf16.
#define PAGED_PREFILL(NAME, WIDTH)                                                                                        \
    extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 2)                                                     \
    NAME(bf16* __restrict__ out, const bf16* __restrict__ queries, const bf16* __restrict__ keys,                         \
         const bf16* __restrict__ values, const int* __restrict__ tables, const int* __restrict__ lengths,                \
         const int* __restrict__ query_starts, const u64* __restrict__ ancestors, int table_width, int heads,             \
         long long block_stride, long long head_stride, float scale) {                                                    \
        paged_prefill<WIDTH>(out, queries, Bf16Cache{keys, block_stride, head_stride},                                    \
                             Bf16Cache{values, block_stride, head_stride},                                                \
                             Batch{tables, lengths, query_starts, ancestors, table_width}, heads, scale);                 \
    }
PAGED_PREFILL(paged_prefill_64, 64)
PAGED_PREFILL(paged_prefill_128, 128)

// The same with keys and values in bytes; scales as in attention.cuh.
#define PAGED_PREFILL_BYTES(NAME, WIDTH, CODE)                                                                            \
    extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 2)                                                    \
    NAME(bf16* __restrict__ out, const bf16* __restrict__ queries, const CODE::Stored* __restrict__ keys,                 \
         const CODE::Stored* __restrict__ values, const float* __restrict__ key_scales,                                   \
         const float* __restrict__ value_scales, const int* __restrict__ tables, const int* __restrict__ lengths,         \
         const int* __restrict__ query_starts, const u64* __restrict__ ancestors, int table_width, int heads,             \
         long long block_stride, long long head_stride, long long scale_block_stride, long long scale_head_stride,        \
         float scale) {                                                                                                   \
        const ByteCache<CODE> key_cache{keys,        key_scales,         block_stride,                                    \
                                        head_stride, scale_block_stride, scale_head_stride};                              \
        const ByteCache<CODE> value_cache{values,      value_scales,       block_stride,                                  \
                                          head_stride, scale_block_stride, scale_head_stride};                            \
        paged_prefill<WIDTH>(out, queries, key_cache, value_cache,                                                        \
                             Batch{tables, lengths, query_starts, ancestors, table_width}, heads, scale);                 \
    }
PAGED_PREFILL_BYTES(paged_prefill_int8_64, 64, Int8)
PAGED_PREFILL_BYTES(paged_prefill_int8_128, 128, Int8)
PAGED_PREFILL_BYTES(paged_prefill_fp8_64, 64, E4m3)
PAGED_PREFILL_BYTES(paged_prefill_fp8_128, 128, E4m3)
