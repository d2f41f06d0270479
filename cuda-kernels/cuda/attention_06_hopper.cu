// Step 6: Hopper. One warpgroup only fetches, by the tensor memory accelerator; two multiply, straight from shared memory,
// and take turns: while one is at its softmax, the other has the tensor cores (FlashAttention-3, arXiv 2407.08608).
#include "hopper_attention.cuh"

constexpr int TILE = 128;  // keys of a tile
constexpr int STAGES = 2;

// A lane's two rows of scores to weights. Sums and maxima are four at a time: each operation waits for the one before it.
struct Softmax {
    float highest[2], sum[2], rescale[2];

    __device__ __forceinline__ void weigh(float (&scores)[TILE / 2], float scale) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            float highs[4] = {highest[r], negative_infinity(), negative_infinity(), negative_infinity()};
#pragma unroll
            for (int i = 0; i < TILE / 4; ++i) highs[i % 4] = fmaxf(highs[i % 4], scores[i / 2 * 4 + 2 * r + i % 2]);
            float high = fmaxf(fmaxf(highs[0], highs[1]), fmaxf(highs[2], highs[3]));
            for (int step = 1; step < 4; step *= 2) high = fmaxf(high, __shfl_xor_sync(ALL_LANES, high, step));
            const float base = high == negative_infinity() ? 0.0f : high * scale;
            rescale[r] = power_of_two(highest[r] * scale - base);
            highest[r] = high;
            float added[4] = {};
#pragma unroll
            for (int i = 0; i < TILE / 4; ++i) {
                float& score = scores[i / 2 * 4 + 2 * r + i % 2];
                score = power_of_two(score * scale - base);
                added[i % 4] += score;
            }
            sum[r] = sum[r] * rescale[r] + (added[0] + added[1] + (added[2] + added[3]));
        }
    }
};

// Masks a lane's two rows of scores: row `row` sees `seen` of the tile's keys, and row + 8 sees `below` of them.
__device__ __forceinline__ void mask(float (&scores)[TILE / 2], int seen, int below) {
    const int first = threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < TILE / 2; ++i)
        if (i / 4 * 8 + first + i % 2 >= (i / 2 % 2 ? below : seen)) scores[i] = negative_infinity();
}

__device__ __forceinline__ void pack_weights(u32 (&weights)[TILE / 16][4], const float (&scores)[TILE / 2]) {
#pragma unroll
    for (int i = 0; i < TILE / 4; ++i) weights[i / 4][i % 4] = pack(scores[2 * i], scores[2 * i + 1]);
}

template <int WIDTH>
__device__ __forceinline__ void attend(bf16* out, const TensorMap* queries, const TensorMap* keys, const TensorMap* values,
                                       int tokens, int heads, int kv_heads, int causal, float scale) {
    using Tiles = Shared<WIDTH, TILE, STAGES>;
    Tiles& shared = *reinterpret_cast<Tiles*>(dynamic_shared);
    const int group = threadIdx.x / GROUP, head = blockIdx.y, kv_head = head / (heads / kv_heads);
    // Of a causal sequence the last queries have most to do: they are begun first, and the short ones fill the end.
    const int first = (gridDim.x - 1 - blockIdx.x) * ROWS;
    const int end = causal ? min(first + ROWS, tokens) : tokens;
    const int count = (end + TILE - 1) / TILE;
    if (threadIdx.x == 0) shared.init_barriers();
    __syncthreads();

    if (group == 0) {
        give_registers<24>();
        if (threadIdx.x != 0) return;
        constexpr u32 BYTES = TILE * WIDTH * sizeof(bf16);
        shared.queries_full.expect(ROWS * WIDTH * sizeof(bf16));
        for (int box = 0; box < WIDTH / BOX; ++box)
            load_box(shared.queries[box], queries, &shared.queries_full, box * BOX, head, first);
#pragma unroll 1
        // ANCHOR: fetch
        for (int tile = 0; tile < count; ++tile) {
            const int stage = tile % STAGES;
            // The first time round nobody has to leave: waiting for the phase before the first does not wait.
            const u32 parity = (tile / STAGES + 1) % 2;
            shared.keys_empty[stage].wait(parity);
            shared.keys_full[stage].expect(BYTES);
            for (int box = 0; box < WIDTH / BOX; ++box)
                load_box(shared.keys[stage][box], keys, &shared.keys_full[stage], box * BOX, kv_head, tile * TILE);
            shared.values_empty[stage].wait(parity);
            shared.values_full[stage].expect(BYTES);
            for (int box = 0; box < WIDTH / BOX; ++box)
                load_box(shared.values[stage][box], values, &shared.values_full[stage], box * BOX, kv_head, tile * TILE);
        }
        // ANCHOR_END: fetch
        return;
    }

    take_registers<240>();
    const int member = group - 1, lane = threadIdx.x % WARP, warp = threadIdx.x % GROUP / WARP;
    const int rows = member * 64, row = first + rows + warp * 16 + lane / 4;
    const bool leads = threadIdx.x % GROUP == 0;
    auto wait_turn = [&] { sync_named(1 + member, MULTIPLIERS * GROUP); };
    auto end_turn = [&] { arrive_named(2 - member, MULTIPLIERS * GROUP); };

    float total[WIDTH / 2], scores[TILE / 2];
#pragma unroll
    for (int i = 0; i < WIDTH / 2; ++i) total[i] = 0.0f;
    u32 weights[TILE / 16][4];
    Softmax softmax = {{negative_infinity(), negative_infinity()}, {0.0f, 0.0f}, {0.0f, 0.0f}};
    const int all_see = causal ? min(first + rows + 1, tokens) : tokens;  // no row of this warpgroup sees less
    auto weigh = [&](int tile) {
        const int key = tile * TILE;
        if (key + TILE > all_see) {
            auto seen = [&](int row) { return (causal ? min(row + 1, tokens) : tokens) - key; };
            mask(scores, seen(row), seen(row + 8));
        }
        softmax.weigh(scores, scale);
    };

    if (member == 1) end_turn();  // the first turn is the other's
    shared.queries_full.wait(0);
    shared.keys_full[0].wait(0);
    wait_turn();
    shared.begin_scores(scores, rows, 0);
    end_turn();
    wgmma_wait<0>(scores);
    if (leads) shared.keys_empty[0].arrive();
    weigh(0);
    pack_weights(weights, scores);
#pragma unroll 1
    // ANCHOR: turns
    for (int tile = 1; tile < count; ++tile) {
        const int stage = tile % STAGES, before = (tile - 1) % STAGES;
        shared.keys_full[stage].wait(tile / STAGES % 2);
        wait_turn();
        shared.begin_scores(scores, rows, stage);
        shared.values_full[before].wait((tile - 1) / STAGES % 2);
        shared.begin_output(total, weights, before);
        end_turn();
        wgmma_wait<1>(scores);  // the output of the tile before goes on while this one's scores are weighed
        if (leads) shared.keys_empty[stage].arrive();
        weigh(tile);
        wgmma_wait<0>(total);
        if (leads) shared.values_empty[before].arrive();
#pragma unroll
        for (int i = 0; i < WIDTH / 2; ++i) total[i] *= softmax.rescale[i / 2 % 2];
        pack_weights(weights, scores);
    }
    // ANCHOR_END: turns
    const int last = (count - 1) % STAGES;
    shared.values_full[last].wait((count - 1) / STAGES % 2);
    wait_turn();
    shared.begin_output(total, weights, last);
    if (member == 0) end_turn();  // nobody waits for the turn after the last
    wgmma_wait<0>(total);

#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float sum = softmax.sum[r];
        for (int step = 1; step < 4; step *= 2) sum += __shfl_xor_sync(ALL_LANES, sum, step);
        if (row + 8 * r >= tokens) continue;
        const float factor = __frcp_rn(sum);
        u32* const to = reinterpret_cast<u32*>(out + (static_cast<size_t>(row + 8 * r) * heads + head) * WIDTH);
#pragma unroll
        for (int i = 0; i < WIDTH / 8; ++i)
            to[i * 4 + lane % 4] = pack(total[4 * i + 2 * r] * factor, total[4 * i + 2 * r + 1] * factor);
    }
}

// out: [tokens][heads][width]; tensor maps of queries [tokens][heads][width], keys and values [tokens][kv_heads][width],
// with boxes of 64 columns, one head and 128 tokens whose chunks are exchanged within 128 bytes; causal: 0 or 1; scale:
// what a score is multiplied with, times log2(e). Grid: (ceil(tokens / ROWS), heads). Shared memory: Shared.
#define ATTENTION_06_HOPPER(NAME, WIDTH)                                                                                  \
    extern "C" __global__ void __launch_bounds__(HOPPER_THREADS, 1)                                                       \
    NAME(bf16* __restrict__ out, const __grid_constant__ TensorMap queries, const __grid_constant__ TensorMap keys,       \
         const __grid_constant__ TensorMap values, int tokens, int heads, int kv_heads, int causal, float scale) {        \
        attend<WIDTH>(out, &queries, &keys, &values, tokens, heads, kv_heads, causal, scale);                             \
    }
ATTENTION_06_HOPPER(attention_06_hopper_64, 64)
ATTENTION_06_HOPPER(attention_06_hopper_128, 128)
