// Multi-head latent attention over the paged cache for many queries of a request, in its absorbed form, as mla_decode has it.
//
// Keys and values of every head could be made from the latents instead: for a long prompt that takes about a third of the
// multiplications. But they would be rounded before they are summed, a prompt's bits would be others than a guess's or a
// later piece's, and the keys and values of all heads of all that was cached before would have to be made again.
#include "shared_tile.cuh"

constexpr int ROWS = 32;  // queries times heads
constexpr int MLA_KEY = 576, MLA_VALUE = 512;
constexpr int MLA_THREADS = 256;
constexpr int COLUMNS = MLA_VALUE / SharedTile<ROWS>::WARPS;
static_assert(MLA_THREADS / WARP == ROWS / 16 * SharedTile<ROWS>::WARPS, "four warps for each sixteen rows");
// Two tiles would not fit. So a tile comes in two halves, and there is room for one half more: the first half of the next
// tile comes while this one is worked with.
constexpr int HALF = TILE / 2;
constexpr int SLOTS = 3;

// out: [rows][heads][512], queries: [rows][heads][576]; the rest as mla_decode. Grid: (ceil(most rows of a request * heads /
// ROWS), 1, requests). Shared memory: (ROWS + SLOTS * HALF) * 576 bf16, and SharedTile's.
extern "C" __global__ void __launch_bounds__(MLA_THREADS)
mla_prefill(bf16* __restrict__ out, const bf16* __restrict__ queries, const bf16* __restrict__ latents,
            const int* __restrict__ tables, const int* __restrict__ lengths, const int* __restrict__ query_starts,
            const u64* __restrict__ ancestors, int table_width, int heads, long long block_stride, float scale) {
    bf16* const query_tile = reinterpret_cast<bf16*>(dynamic_shared);
    bf16* const slots = query_tile + ROWS * MLA_KEY;
    const SharedTile<ROWS> shared_tile(slots + SLOTS * HALF * MLA_KEY);
    const Batch batch{tables, lengths, query_starts, ancestors, table_width};
    const Bf16Cache cache{latents, block_stride, 0};

    const int request = blockIdx.z, first = blockIdx.x * ROWS;
    const int start = query_starts[request], packed = (query_starts[request + 1] - start) * heads;
    if (first >= packed) return;
    const int length = lengths[request];
    const int* const table = tables + static_cast<size_t>(request) * table_width;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP % SharedTile<ROWS>::WARPS;
    const int row = threadIdx.x / WARP / SharedTile<ROWS>::WARPS * 16;
    auto visible_to = [&](int row) { return Visible(batch, request, min(first + row, packed - 1) / heads); };
    const Visible visible[2] = {visible_to(row + lane / 4), visible_to(row + lane / 4 + 8)};
    const Visible last = visible_to(ROWS - 1);
    const int end = last.marks ? length : last.prefix;  // of what any row of the block sees
    const int count = (end + TILE - 1) / TILE;

    auto slot_of = [&](int half) { return slots + half % SLOTS * HALF * MLA_KEY; };
    auto load = [&](int half) {
        cache.load_wide<MLA_KEY, HALF, MLA_THREADS / WARP>(slot_of(half), table, half * HALF, length, 0);
        commit_copies();
    };
    load_queries<MLA_KEY, ROWS, MLA_THREADS>(query_tile, queries, start, first, packed, heads, heads, 0);
    load(0);
    load(1);

    Part<COLUMNS> part, total;
    part.clear();
    total.clear();
    for (int tile = 0; tile < count; ++tile) {
        wait_for_copies<0>();
        __syncthreads();  // both halves are there
        const bool is_last = tile + 1 == count;
        if (!is_last) load(2 * tile + 2);
        bf16* const half = slot_of(2 * tile);
        bf16* const other = slot_of(2 * tile + 1);
        auto latents_of = [&](int i) { return Rows{i < 2 ? half : other, i % 2 * 16}; };
        shared_tile.add<MLA_KEY, MLA_KEY>(part, query_tile, row, tile * TILE, visible, scale, warp, latents_of, latents_of);
        if (tile % (SPLIT / TILE) == SPLIT / TILE - 1 || is_last) {
            part.softmax.close();
            total.join(part.softmax, part.out, scale);
            part.clear();
        }
        __syncthreads();  // nobody reads the tile any more
        if (!is_last) load(2 * tile + 3);
    }

    // Through the query tile, so that whole sectors are written; each warp through its own rows and columns.
    for (int r = 0; r < 2; ++r) {
        const float factor = inverse(total.softmax.sum[r]);
        for (int i = 0; i < COLUMNS / 8; ++i) {
            bf16* const chunk = at<MLA_KEY>(query_tile, row + lane / 4 + 8 * r, warp * (COLUMNS / CHUNK) + i);
            reinterpret_cast<u32*>(chunk)[lane % 4] = pack(total.out[i][2 * r] * factor, total.out[i][2 * r + 1] * factor);
        }
    }
    __syncwarp();
#pragma unroll 1
    for (int turn = 0; turn < 16 * COLUMNS / CHUNK / WARP; ++turn) {
        const int i = lane + turn * WARP;
        const int r = row + i / (COLUMNS / CHUNK), chunk = warp * (COLUMNS / CHUNK) + i % (COLUMNS / CHUNK), m = first + r;
        if (m >= packed) continue;
        const size_t query = start + m / heads;
        *reinterpret_cast<uint4*>(out + (query * heads + m % heads) * MLA_VALUE + chunk * CHUNK) =
            *reinterpret_cast<uint4*>(at<MLA_KEY>(query_tile, r, chunk));
    }
}
