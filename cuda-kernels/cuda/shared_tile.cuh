// A tile of keys whose work several warps share, where rows are few or values are wide.
//
// Each sixteen rows of queries have four warps: in the scores each of them has sixteen keys, in the output a quarter of the
// columns. They tell each other their highest scores and their weights through shared memory. The sums are those that one
// warp would give: scores of a key, and columns of the output, do not depend on each other.
#pragma once
#include "attention.cuh"

template <int ROWS>
struct SharedTile {
    static constexpr int WARPS = TILE / 16;  // for sixteen rows
    static constexpr int BYTES = ROWS * TILE * sizeof(bf16) + WARPS * ROWS * sizeof(float);

    bf16* weight_tile;    // [ROWS][TILE]
    float* tile_highest;  // [WARPS][ROWS]

    // `memory`: BYTES of shared memory.
    __device__ __forceinline__ explicit SharedTile(bf16* memory)
        : weight_tile(memory), tile_highest(reinterpret_cast<float*>(memory + ROWS * TILE)) {}

    // Adds a tile whose first key is `key` to the sums of rows `row`.. (16), which this is warp `warp` of. keys(i) and
    // values(i) say where the tile's keys and values 16 * i.. are, in rows of KEY_ROW and VALUE_ROW elements. All threads of
    // the block come here together.
    template <int KEY_ROW, int VALUE_ROW, int COLUMNS, class Keys, class Values>
    __device__ __forceinline__ void add(Part<COLUMNS>& part, bf16* query_tile, int row, int key, const Visible (&visible)[2],
                                        float scale, int warp, Keys keys, Values values) const {
        const int lane = threadIdx.x % WARP;
        float scores[2][4];
        const Rows own = keys(warp);
        scores_of<KEY_ROW, 1>(scores, query_tile, row, own.tile, own.row);
        mask(scores, visible[0].of_tile(key) >> (warp * 16), visible[1].of_tile(key) >> (warp * 16));
        float highest[2];
        for (int r = 0; r < 2; ++r) {
            highest[r] = negative_infinity();
            for (int i = 0; i < 2; ++i) highest[r] = fmaxf(highest[r], fmaxf(scores[i][2 * r], scores[i][2 * r + 1]));
            for (int step = 1; step < 4; step *= 2)
                highest[r] = fmaxf(highest[r], __shfl_xor_sync(ALL_LANES, highest[r], step));
            if (lane % 4 == 0) tile_highest[warp * ROWS + row + lane / 4 + 8 * r] = highest[r];
        }
        __syncthreads();
        float rescale[2];
        for (int r = 0; r < 2; ++r) {
            highest[r] = part.softmax.highest[r];
            for (int other = 0; other < WARPS; ++other)
                highest[r] = fmaxf(highest[r], tile_highest[other * ROWS + row + lane / 4 + 8 * r]);
        }
        part.softmax.raise(highest, scale, rescale);
        for (int r = 0; r < 2; ++r) {
            const float base = base_of(highest[r], scale);
            for (int i = 0; i < 2; ++i) {
                bf16* const chunk = at<TILE>(weight_tile, row + lane / 4 + 8 * r, warp * 2 + i);
                reinterpret_cast<u32*>(chunk)[lane % 4] =
                    pack(weight_of(scores[i][2 * r], scale, base), weight_of(scores[i][2 * r + 1], scale, base));
            }
        }
        __syncthreads();
        u32 weights[TILE / 16][4];
        for (int step = 0; step < TILE / 16; ++step) load_rows<TILE>(weights[step], weight_tile, row, step);
        part.template add<VALUE_ROW>(weights, rescale, values, warp * COLUMNS);
    }
};
