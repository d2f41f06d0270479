// What attention on Hopper shares, whatever keys it is given: one warpgroup fetches tiles into shared memory, two multiply
// them with queries of their own.
#pragma once
#include "hopper.cuh"

constexpr int ROWS = 128;     // queries of a block, 64 to a warpgroup, all of one head
constexpr int GROUP = 128;    // threads of a warpgroup
constexpr int MULTIPLIERS = 2;
constexpr int HOPPER_THREADS = GROUP * (1 + MULTIPLIERS);
constexpr int BOX = 64;       // columns of a box: 128 bytes, all that the accelerator's exchange of chunks allows

// A block's shared memory: its queries, STAGES tiles of KEYS keys and values, and who waits for what. A tile's phase is full
// when its bytes have landed, and empty when each multiplier has done with it.
template <int WIDTH, int KEYS, int STAGES>
struct Shared {
    bf16 queries[WIDTH / BOX][ROWS][BOX];
    bf16 keys[STAGES][WIDTH / BOX][KEYS][BOX];
    bf16 values[STAGES][WIDTH / BOX][KEYS][BOX];
    Barrier queries_full, keys_full[STAGES], keys_empty[STAGES], values_full[STAGES], values_empty[STAGES];

    // By one thread; the others come after the next barrier.
    __device__ __forceinline__ void init_barriers() {
        queries_full.init(1);
        for (int stage = 0; stage < STAGES; ++stage) {
            keys_full[stage].init(1);
            values_full[stage].init(1);
            keys_empty[stage].init(MULTIPLIERS);
            values_empty[stage].init(MULTIPLIERS);
        }
        fence_barriers();
    }

    // scores [64][KEYS] = queries * keys, transposed, from query `first` on; begun, not waited for.
    __device__ __forceinline__ void begin_scores(float (&scores)[KEYS / 2], int first, int stage) const {
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < WIDTH / 16; ++step) {
            const int box = step / (BOX / 16), column = step % (BOX / 16) * 16;
            wgmma_shared(scores, operand(&queries[box][first][column], 16), operand(&keys[stage][box][0][column], 16), step > 0);
        }
        wgmma_commit();
    }

    // out [64][WIDTH] += weights * values; begun, not waited for.
    __device__ __forceinline__ void begin_output(float (&out)[WIDTH / 2], const u32 (&weights)[KEYS / 16][4], int stage) const {
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < KEYS / 16; ++step)
            wgmma_registers(out, weights[step], operand(&values[stage][0][16 * step][0], KEYS * BOX * sizeof(bf16)));
        wgmma_commit();
    }
};
