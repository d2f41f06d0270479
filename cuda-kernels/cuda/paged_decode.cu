// Attention over the paged cache for few queries of a request, as decoding and the checking of guesses have them: its keys
// in splits of SPLIT, shared out among blocks of threads, and a second kernel that joins them (Flash-Decoding).
#include "shared_tile.cuh"

constexpr int ROWS = 16;  // queries times heads of a group
// Blocks of threads on a multiprocessor, as many as shared memory has room for. Left to itself, the compiler puts registers
// into memory for more blocks than there can be.
constexpr int BLOCKS = 2;

// Warps share a tile's work. Where VALUES_IN_KEYS, a value is the first VALUE_WIDTH elements of its key, and `values` is not looked at.
template <int KEY_WIDTH, int VALUE_WIDTH, int STAGES, bool VALUES_IN_KEYS, class Cache>
__device__ __forceinline__ void paged_decode(float* parts, float2* states, const bf16* queries, const Cache& keys,
                                             const Cache& values, const Batch& batch, int splits, int heads,
                                             int kv_heads, float scale) {
    constexpr int COLUMNS = VALUE_WIDTH / ATTENTION_WARPS;
    constexpr int VALUE_ROW = VALUES_IN_KEYS ? KEY_WIDTH : VALUE_WIDTH;
    constexpr int STAGE = TILE * (VALUES_IN_KEYS ? KEY_WIDTH : KEY_WIDTH + VALUE_WIDTH);
    static_assert(ATTENTION_WARPS == SharedTile<ROWS>::WARPS, "each warp has sixteen keys of a tile");
    bf16* const query_tile = reinterpret_cast<bf16*>(dynamic_shared);
    bf16* const tiles = query_tile + ROWS * KEY_WIDTH;  // [STAGES][keys, values]
    const SharedTile<ROWS> shared_tile(tiles + STAGES * STAGE);

    // ANCHOR: splits
    // A block has every gridDim.x-th split from its own number on: one alone, unless there are very many.
    const int group = heads / kv_heads, request = blockIdx.z;
    const int kv_head = blockIdx.y % kv_heads, first = blockIdx.y / kv_heads * ROWS;
    const int start = batch.query_starts[request];
    const int packed = (batch.query_starts[request + 1] - start) * group;
    const int length = batch.lengths[request];
    if (first >= packed || blockIdx.x * SPLIT >= length) return;
    // ANCHOR_END: splits
    const int* const table = batch.tables + static_cast<size_t>(request) * batch.table_width;
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    auto visible_to = [&](int row) { return Visible(batch, request, min(first + row, packed - 1) / group); };
    const Visible visible[2] = {visible_to(lane / 4), visible_to(lane / 4 + 8)};

    constexpr int SPLIT_TILES = SPLIT / TILE;
    static_assert(SPLIT_TILES % STAGES == 0, "a split's first tile takes the stage after another's last");
    const int first_tile = blockIdx.x * SPLIT_TILES, end_tile = (length + TILE - 1) / TILE;
    auto stage_of = [&](int tile) { return tiles + tile % STAGES * STAGE; };
    auto value_tile_of = [&](int tile) { return VALUES_IN_KEYS ? stage_of(tile) : stage_of(tile) + TILE * KEY_WIDTH; };
    typename Cache::template Fetched<KEY_WIDTH> fetched_keys;
    typename Cache::template Fetched<VALUE_WIDTH> fetched_values;
    auto fetch = [&](int tile) {
        keys.template fetch<KEY_WIDTH>(fetched_keys, stage_of(tile), table, tile * TILE, length, kv_head);
        if constexpr (!VALUES_IN_KEYS)
            values.template fetch<VALUE_WIDTH>(fetched_values, value_tile_of(tile), table, tile * TILE, length, kv_head);
        commit_copies();
    };
    auto put = [&](int tile) {
        keys.template put<KEY_WIDTH>(stage_of(tile), fetched_keys);
        if constexpr (!VALUES_IN_KEYS) values.template put<VALUE_WIDTH>(value_tile_of(tile), fetched_values);
    };
    load_queries<KEY_WIDTH, ROWS>(query_tile, queries, start, first, packed, group, heads, kv_head);
    fetch(first_tile);
    put(first_tile);

    Part<COLUMNS> part;
    part.clear();
    for (int tile = first_tile, next; tile < end_tile; tile = next) {
        wait_for_copies<0>();
        __syncthreads();  // this tile is there, and nobody reads the one before it any more
        const int split = tile / SPLIT_TILES;
        const bool ends_split = tile % SPLIT_TILES == SPLIT_TILES - 1 || tile + 1 == end_tile;
        next = ends_split ? (split + gridDim.x) * SPLIT_TILES : tile + 1;
        const bool is_last = next >= end_tile;
        if (STAGES > 1 && !is_last) fetch(next);
        shared_tile.template add<KEY_WIDTH, VALUE_ROW>(
            part, query_tile, 0, tile * TILE, visible, scale, warp, [&](int i) { return Rows{stage_of(tile), 16 * i}; },
            [&](int i) { return Rows{value_tile_of(tile), 16 * i}; });
        if (STAGES == 1 && !is_last) {
            __syncthreads();
            fetch(next);
        }
        if (!is_last) put(next);
        if (!ends_split) continue;

        part.softmax.close();
        for (int row = 0; row < 2; ++row) {
            const int m = first + lane / 4 + 8 * row;
            if (m >= packed) continue;
            const size_t query = start + m / group;
            const size_t place = (query * heads + kv_head * group + m % group) * splits + split;
            float* const to = parts + place * VALUE_WIDTH + warp * COLUMNS + lane % 4 * 2;
            for (int i = 0; i < COLUMNS / 8; ++i)
                *reinterpret_cast<float2*>(to + i * 8) = make_float2(part.out[i][2 * row], part.out[i][2 * row + 1]);
            if (threadIdx.x % 4 == 0 && warp == 0)
                states[place] = make_float2(part.softmax.highest[row], part.softmax.sum[row]);
        }
        part.clear();
    }
}

// parts: [rows][heads][splits][head_dim] and states: [rows][heads][splits] pairs (highest score, sum of weights), for
// join_splits, with splits enough for the longest request. The rest as paged_prefill. Grid: (up to splits, kv_heads *
// ceil(most rows of a request * heads / kv_heads / ROWS), requests); how many share the splits changes nothing.
// Shared memory: (ROWS + 4 * TILE) * head_dim + ROWS * TILE bf16, and 4 * ROWS f32.
#define PAGED_DECODE(NAME, WIDTH)                                                                                         \
    extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, BLOCKS)                                               \
    NAME(float* __restrict__ parts, float2* __restrict__ states, const bf16* __restrict__ queries,                        \
         const bf16* __restrict__ keys, const bf16* __restrict__ values, const int* __restrict__ tables,                  \
         const int* __restrict__ lengths, const int* __restrict__ query_starts, const u64* __restrict__ ancestors,        \
         int table_width, int splits, int heads, int kv_heads, long long block_stride, long long head_stride,             \
         float scale) {                                                                                                   \
        paged_decode<WIDTH, WIDTH, 2, false>(parts, states, queries, Bf16Cache{keys, block_stride, head_stride},          \
                                             Bf16Cache{values, block_stride, head_stride},                                \
                                             Batch{tables, lengths, query_starts, ancestors, table_width}, splits,        \
                                             heads, kv_heads, scale);                                                     \
    }
PAGED_DECODE(paged_decode_64, 64)
PAGED_DECODE(paged_decode_128, 128)

// The same with keys and values in bytes; scales as in attention.cuh.
#define PAGED_DECODE_BYTES(NAME, WIDTH, CODE)                                                                             \
    extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, BLOCKS)                                               \
    NAME(float* __restrict__ parts, float2* __restrict__ states, const bf16* __restrict__ queries,                        \
         const CODE::Stored* __restrict__ keys, const CODE::Stored* __restrict__ values,                                  \
         const float* __restrict__ key_scales, const float* __restrict__ value_scales, const int* __restrict__ tables,    \
         const int* __restrict__ lengths, const int* __restrict__ query_starts, const u64* __restrict__ ancestors,        \
         int table_width, int splits, int heads, int kv_heads, long long block_stride, long long head_stride,             \
         long long scale_block_stride, long long scale_head_stride, float scale) {                                        \
        const ByteCache<CODE> key_cache{keys,        key_scales,         block_stride,                                    \
                                        head_stride, scale_block_stride, scale_head_stride};                              \
        const ByteCache<CODE> value_cache{values,      value_scales,       block_stride,                                  \
                                          head_stride, scale_block_stride, scale_head_stride};                            \
        paged_decode<WIDTH, WIDTH, 2, false>(parts, states, queries, key_cache, value_cache,                              \
                                             Batch{tables, lengths, query_starts, ancestors, table_width}, splits,        \
                                             heads, kv_heads, scale);                                                     \
    }
PAGED_DECODE_BYTES(paged_decode_int8_64, 64, Int8)
PAGED_DECODE_BYTES(paged_decode_int8_128, 128, Int8)
PAGED_DECODE_BYTES(paged_decode_fp8_64, 64, E4m3)
PAGED_DECODE_BYTES(paged_decode_fp8_128, 128, E4m3)

// Multi-head latent attention in its absorbed form: one head of keys for all queries, the latent's 512 elements and 64
// with RoPE, and a value is the latent. latents: one layer's part of block 0, [BLOCK_TOKENS][576]; queries:
// [rows][heads][576]; parts: [rows][heads][splits][512]. Grid as paged_decode's with one kv head.
// Shared memory: (ROWS + TILE) * 576 + ROWS * TILE bf16, and 4 * ROWS f32: two blocks fit on a multiprocessor of an H100.
extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, BLOCKS)
mla_decode(float* __restrict__ parts, float2* __restrict__ states, const bf16* __restrict__ queries,
           const bf16* __restrict__ latents, const int* __restrict__ tables, const int* __restrict__ lengths,
           const int* __restrict__ query_starts, const u64* __restrict__ ancestors, int table_width, int splits, int heads,
           long long block_stride, float scale) {
    const Bf16Cache cache{latents, block_stride, 0};
    paged_decode<576, 512, 1, true>(parts, states, queries, cache, cache,
                                    Batch{tables, lengths, query_starts, ancestors, table_width}, splits, heads, 1, scale);
}

// out: [rows][heads][width] from the splits of paged_decode or mla_decode; splits: how many each row has room for.
// Splits are joined from the first on. Grid: (heads * ceil(width / ATTENTION_THREADS), most rows of a request, requests).
extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS)
join_splits(bf16* __restrict__ out, const float* __restrict__ parts, const float2* __restrict__ states,
            const int* __restrict__ lengths, const int* __restrict__ query_starts, int splits, int width, float scale) {
    constexpr int AT_ONCE = ATTENTION_THREADS;  // splits whose joins are worked out together, one by each thread
    constexpr int AHEAD = 16;                   // parts that are under way together
    __shared__ float2 states_here[AT_ONCE];
    __shared__ struct __align__(16) {
        Join join;
        float sum;
        int split;
    } joined[AT_ONCE];
    const int request = blockIdx.z, start = query_starts[request];
    if (start + static_cast<int>(blockIdx.y) >= query_starts[request + 1]) return;
    const int across = (width + ATTENTION_THREADS - 1) / ATTENTION_THREADS;
    const int heads = gridDim.x / across, head = blockIdx.x / across;
    const int own_column = blockIdx.x % across * ATTENTION_THREADS + threadIdx.x;
    const int column = min(own_column, width - 1);  // threads behind the last do what it does
    const size_t row = static_cast<size_t>(start + blockIdx.y) * heads + head;
    const int count = (lengths[request] + SPLIT - 1) / SPLIT;
    float highest = negative_infinity(), sum = 0.0f, value = 0.0f;
    for (int first = 0; first < count; first += AT_ONCE) {
        const int here = min(count - first, AT_ONCE), own = threadIdx.x;
        if (own < here) states_here[own] = states[row * splits + first + own];
        __syncthreads();  // these are there, and nobody joins those before any more
        // ANCHOR: join_splits
        // How a split is joined depends on the highest score before it, and on nothing else before it. So each thread works
        // out one. A split of which nothing is seen changes nothing, and is left out.
        float before = negative_infinity();
        int seen = 0, place = 0;
        for (int split = 0; split < here; ++split) {
            if (split == own) before = highest, place = seen;
            if (states_here[split].y == 0.0f) continue;
            highest = fmaxf(highest, states_here[split].x);
            ++seen;
        }
        if (own < here && states_here[own].y != 0.0f) {
            const float2 state = states_here[own];
            joined[place] = {Join(before, state.x, scale), state.y, first + own};
        }
        __syncthreads();
        // From the first on. What they are multiplied with is known, so some parts are fetched before one is joined.
        auto part_of = [&](int i) { return parts[(row * splits + joined[i].split) * width + column]; };
        auto join = [&](int i, float part) {
            sum = joined[i].join(sum, joined[i].sum);
            value = joined[i].join(value, part);
        };
        for (int i = 0; i < seen; i += AHEAD) {
            float ahead[AHEAD];
#pragma unroll
            for (int j = 0; j < AHEAD; ++j) ahead[j] = i + j < seen ? part_of(i + j) : 0.0f;
#pragma unroll
            for (int j = 0; j < AHEAD; ++j)
                if (i + j < seen) join(i + j, ahead[j]);
        }
        // ANCHOR_END: join_splits
    }
    if (own_column < width) out[row * width + column] = to_bf16(value * inverse(sum));
}
