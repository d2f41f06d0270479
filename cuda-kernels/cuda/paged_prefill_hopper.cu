// paged_prefill with Hopper's instructions: one warpgroup only fetches the blocks of the cache, by the tensor memory
// accelerator; two multiply, and take turns as in step 6. The order of sums is paged_prefill's.
#include "attention.cuh"
#include "hopper_attention.cuh"

constexpr int STAGES = 4;

// Where the fetching warp finds a request's keys and values.
struct Pages {
    // Tensors [heads of all blocks][BLOCK_TOKENS][width], `per_block` heads from a block to the next, in boxes of a block's
    // tokens. What is asked for outside of them is zeros.
    const TensorMap* keys;
    const TensorMap* values;
    const bf16* first_value;  // where the values' tensor begins
    long long head_stride;    // elements from a head to the next
    const int* table;
    int length, kv_head, per_block;

    static constexpr int BLOCKS = TILE / BLOCK_TOKENS;  // of a tile: as many lanes have one each

    // The head that has the lane's block of a tile; one outside of the tensor if the lane has none, or it holds no token.
    __device__ __forceinline__ int head_of(int tile, int lane) const {
        const int token = tile * TILE + lane * BLOCK_TOKENS;
        return lane < BLOCKS && token < length ? table[static_cast<u32>(token) / BLOCK_TOKENS] * per_block + kv_head : -1;
    }
    // Fetches a tile of keys, by a warp, of which `head` is what head_of gave. What lies behind the last is masked, whatever
    // it is.
    template <int WIDTH>
    __device__ __forceinline__ void load_keys(bf16 (&to)[WIDTH / BOX][TILE][BOX], Barrier& full, int head) const {
        const int lane = threadIdx.x % WARP;
        if (lane == 0) full.expect(TILE * WIDTH * sizeof(bf16));
        __syncwarp();
        if (lane >= BLOCKS) return;
        for (int box = 0; box < WIDTH / BOX; ++box) load_box(to[box][lane * BLOCK_TOKENS], keys, &full, box * BOX, 0, head);
    }

    // The same for values. Those behind the last have to be zeros, for nothing times what is no number is no number: a block
    // that is not full the lanes copy themselves.
    template <int WIDTH>
    __device__ __forceinline__ void load_values(bf16 (&to)[WIDTH / BOX][TILE][BOX], Barrier& full, int tile, int head) const {
        const int lane = threadIdx.x % WARP, end = length - tile * TILE;  // the token of the tile that is the first not there
        const bool is_cut = end < TILE && end % BLOCK_TOKENS != 0;
        if (is_cut) {
            const int first = end / BLOCK_TOKENS * BLOCK_TOKENS;
            const bf16* const from = first_value + __shfl_sync(ALL_LANES, head, end / BLOCK_TOKENS) * head_stride;
#pragma unroll 1
            for (int i = lane; i < BLOCK_TOKENS * WIDTH / CHUNK; i += WARP) {
                const int row = i / (WIDTH / CHUNK), chunk = i % (WIDTH / CHUNK);
                uint4 value = make_uint4(0, 0, 0, 0);
                if (first + row < end) value = *reinterpret_cast<const uint4*>(from + row * WIDTH + chunk * CHUNK);
                store_chunk(at<BOX>(&to[chunk / (BOX / CHUNK)][0][0], first + row, chunk % (BOX / CHUNK)), value.x, value.y,
                            value.z, value.w);
            }
            fence_stores();
            __syncwarp();
        }
        if (lane == 0) full.expect((TILE - (is_cut ? BLOCK_TOKENS : 0)) * WIDTH * sizeof(bf16));
        __syncwarp();
        if (lane >= BLOCKS || (is_cut && lane == end / BLOCK_TOKENS)) return;
        for (int box = 0; box < WIDTH / BOX; ++box) load_box(to[box][lane * BLOCK_TOKENS], values, &full, box * BOX, 0, head);
    }
};

template <int WIDTH>
__device__ __forceinline__ void attend(bf16* out, const TensorMap* queries, const TensorMap* keys, const TensorMap* values,
                                       const bf16* first_value, long long head_stride, int per_block, const Batch& batch,
                                       int heads, int kv_heads, float scale) {
    using Tiles = Shared<WIDTH, TILE, STAGES>;
    Tiles& shared = *reinterpret_cast<Tiles*>(dynamic_shared);
    // The last queries see most keys: they are begun first, and blocks with less to do fill the end.
    const int head = blockIdx.y, request = blockIdx.z, first = (gridDim.x - 1 - blockIdx.x) * ROWS;
    const int start = batch.query_starts[request], rows = batch.query_starts[request + 1] - start;
    if (first >= rows) return;
    auto visible_to = [&](int row) { return Visible(batch, request, min(first + row, rows - 1)); };
    const Visible last = visible_to(ROWS - 1);
    const int length = batch.lengths[request];
    const int end = last.marks ? length : last.prefix;  // of what any row of the block sees
    const int count = (end + TILE - 1) / TILE;
    if (threadIdx.x == 0) shared.init_barriers();
    __syncthreads();

    if (threadIdx.x < GROUP) {
        give_registers<24>();
        if (threadIdx.x >= WARP) return;
        const int* const table = batch.tables + static_cast<size_t>(request) * batch.table_width;
        const int kv_head = head / (heads / kv_heads);
        const Pages pages{keys, values, first_value, head_stride, table, length, kv_head, per_block};
        const bool leads = threadIdx.x == 0;
        if (leads) {
            shared.queries_full.expect(ROWS * WIDTH * sizeof(bf16));
            for (int box = 0; box < WIDTH / BOX; ++box)
                load_box(shared.queries[box], queries, &shared.queries_full, box * BOX, head, start + first);
        }
        int head_of_tile = pages.head_of(0, threadIdx.x);
#pragma unroll 1
        for (int tile = 0; tile < count; ++tile) {
            const int next = pages.head_of(tile + 1, threadIdx.x);  // under way while this tile's place is waited for
            // All lanes wait by parity, and one alone brings the phases on: a lane that lagged behind it would wait for a
            // parity that has come and gone.
            __syncwarp();
            const int stage = tile % STAGES;
            // The first time round nobody has to leave: waiting for the phase before the first does not wait.
            const u32 parity = (tile / STAGES + 1) % 2;
            shared.keys_empty[stage].wait(parity);
            pages.load_keys<WIDTH>(shared.keys[stage], shared.keys_full[stage], head_of_tile);
            shared.values_empty[stage].wait(parity);
            pages.load_values<WIDTH>(shared.values[stage], shared.values_full[stage], tile, head_of_tile);
            head_of_tile = next;
        }
        return;
    }

    take_registers<240>();
    const int member = threadIdx.x / GROUP - 1, lane = threadIdx.x % WARP, warp = threadIdx.x % GROUP / WARP;
    const int group_row = member * 64, row = group_row + warp * 16;
    const bool leads = threadIdx.x % GROUP == 0;
    const int all_see = visible_to(row).prefix;  // no row of this warp sees less
    auto wait_turn = [&] { sync_named(1 + member, MULTIPLIERS * GROUP); };
    auto end_turn = [&] { arrive_named(2 - member, MULTIPLIERS * GROUP); };

    Part<WIDTH> part, total;
    part.clear();
    total.clear();
    float(&part_out)[WIDTH / 2] = reinterpret_cast<float(&)[WIDTH / 2]>(part.out);
    float scores[TILE / 8][4], rescale[2];
    float(&score_sums)[TILE / 2] = reinterpret_cast<float(&)[TILE / 2]>(scores);
    u32 weights[TILE / 16][4];
    auto weigh = [&](int tile) {
        if ((tile + 1) * TILE > all_see) {
            auto seen_by = [&](int row) { return visible_to(row).of_tile(tile * TILE); };
            mask(scores, seen_by(row + lane / 4), seen_by(row + lane / 4 + 8));
        }
        part.softmax.weigh(scores, scale, rescale);
    };

    if (member == 1) end_turn();  // the first turn is the other's
    shared.queries_full.wait(0);
    shared.keys_full[0].wait(0);
    wait_turn();
    shared.begin_scores(score_sums, group_row, 0);
    end_turn();
    wgmma_wait<0>(score_sums);
    if (leads) shared.keys_empty[0].arrive();
    weigh(0);
    pack_weights(weights, scores);
#pragma unroll 1
    for (int tile = 1; tile < count; ++tile) {
        const int stage = tile % STAGES, before = (tile - 1) % STAGES;
        shared.keys_full[stage].wait(tile / STAGES % 2);
        wait_turn();
        shared.begin_scores(score_sums, group_row, stage);
        shared.values_full[before].wait((tile - 1) / STAGES % 2);
        shared.begin_output(part_out, weights, before);
        end_turn();
        part.softmax.add(weights, rescale);  // while the tensor cores have them, too
        wgmma_wait<1>(score_sums);  // the output of the tile before goes on while this one's scores are weighed
        if (leads) shared.keys_empty[stage].arrive();
        const bool opens = tile % (SPLIT / TILE) == 0;  // a split
        Softmax closed = part.softmax;
        if (opens) part.softmax.clear();
        weigh(tile);
        wgmma_wait<0>(part_out);
        if (leads) shared.values_empty[before].arrive();
        if (opens) {
            closed.close();
            total.join(closed, part.out, scale);
#pragma unroll
            for (int i = 0; i < WIDTH / 2; ++i) part_out[i] = 0.0f;
        } else {
            part.rescale_out(rescale);
        }
        pack_weights(weights, scores);
    }
    const int stage = (count - 1) % STAGES;
    shared.values_full[stage].wait((count - 1) / STAGES % 2);
    wait_turn();
    shared.begin_output(part_out, weights, stage);
    if (member == 0) end_turn();  // nobody waits for the turn after the last
    part.softmax.add(weights, rescale);
    wgmma_wait<0>(part_out);
    part.softmax.close();
    total.join(part.softmax, part.out, scale);

    // Through the warpgroup's own queries, when all of its warps have read them, so that whole sectors are written.
    sync_named(3 + member, GROUP);
    for (int r = 0; r < 2; ++r) {
        const float factor = inverse(total.softmax.sum[r]);
#pragma unroll
        for (int i = 0; i < WIDTH / 8; ++i) {
            bf16* const tile = &shared.queries[i / (BOX / CHUNK)][0][0];
            bf16* const chunk = at<BOX>(tile, row + lane / 4 + 8 * r, i % (BOX / CHUNK));
            reinterpret_cast<u32*>(chunk)[lane % 4] = pack(total.out[i][2 * r] * factor, total.out[i][2 * r + 1] * factor);
        }
    }
    __syncwarp();
#pragma unroll 1
    for (int turn = 0; turn < 16 * WIDTH / CHUNK / WARP; ++turn) {
        const int i = lane + turn * WARP;
        const int m = row + i / (WIDTH / CHUNK), chunk = i % (WIDTH / CHUNK);
        if (first + m >= rows) continue;
        const size_t query = start + first + m;
        *reinterpret_cast<uint4*>(out + (query * heads + head) * WIDTH + chunk * CHUNK) =
            *reinterpret_cast<uint4*>(at<BOX>(&shared.queries[chunk / (BOX / CHUNK)][0][0], m, chunk % (BOX / CHUNK)));
    }
}

// out: [rows][heads][width]; tensor maps of queries [rows][heads][width] with boxes of 64 columns, one head and 128 rows, and
// of keys and values as Pages has them with boxes of 64 columns, 16 tokens and one head; chunks are exchanged within 128
// bytes. The batch as in attention.cuh; scale: what a score is multiplied with, times log2(e).
// Grid: (ceil(most rows of a request / ROWS), heads, requests). Shared memory: Shared.
#define PAGED_PREFILL_HOPPER(NAME, WIDTH)                                                                                 \
    extern "C" __global__ void __launch_bounds__(HOPPER_THREADS, 1)                                                       \
    NAME(bf16* __restrict__ out, const __grid_constant__ TensorMap queries, const __grid_constant__ TensorMap keys,       \
         const __grid_constant__ TensorMap values, const bf16* __restrict__ first_value, const int* __restrict__ tables,  \
         const int* __restrict__ lengths, const int* __restrict__ query_starts, const u64* __restrict__ ancestors,        \
         int table_width, int heads, int kv_heads, int per_block, long long head_stride, float scale) {                   \
        attend<WIDTH>(out, &queries, &keys, &values, first_value, head_stride, per_block,                                 \
                      Batch{tables, lengths, query_starts, ancestors, table_width}, heads, kv_heads, scale);              \
    }
PAGED_PREFILL_HOPPER(paged_prefill_hopper_64, 64)
PAGED_PREFILL_HOPPER(paged_prefill_hopper_128, 128)
