// gemm_prefill with Hopper's instructions, for weights in bfloat16: one warpgroup only fetches, by the tensor memory
// accelerator; two multiply, straight from shared memory. The order of sums is gemm_prefill's.
#include "gemm.cuh"
#include "hopper.cuh"

constexpr int ROWS = 128;     // rows of x of a block, 64 to a warpgroup
constexpr int OUTPUTS = 192;  // of a block: as many as an open split and the sum of those before have registers for
constexpr int STAGES = 4;
constexpr int WARPGROUP = 128;
constexpr int MULTIPLIERS = 2;
constexpr int HOPPER_THREADS = WARPGROUP * (1 + MULTIPLIERS);
constexpr int BAND = 16;  // tiles of rows that are worked through together

// A stage's phase is full when its bytes have landed, and empty when each multiplier has done with it.
struct Shared {
    bf16 x[STAGES][ROWS][GEMM_STEP];
    bf16 weights[STAGES][OUTPUTS][GEMM_STEP];
    Barrier full[STAGES], empty[STAGES];

    // By one thread; the others come after the next barrier.
    __device__ __forceinline__ void init_barriers() {
        for (int stage = 0; stage < STAGES; ++stage) {
            full[stage].init(1);
            empty[stage].init(MULTIPLIERS);
        }
        fence_barriers();
    }

    // sum [64][OUTPUTS] = x * weights, transposed, from row `first` on, + (add ? sum : 0); begun, not waited for.
    __device__ __forceinline__ void begin(float (&sum)[OUTPUTS / 2], int first, int stage, bool add) const {
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < GEMM_STEP; k += 16)
            wgmma_shared(sum, operand(&x[stage][first][k], 16), operand(&weights[stage][0][k], 16), add || k > 0);
        wgmma_commit();
    }
};

// The tile that a block makes. Blocks of neighbouring numbers run at the same time: down a band of rows, then on to the next
// outputs. So a wave of blocks is about as high as it is wide and reads few rows of x and few of weights; a band of x stays
// in the L2 cache while the weights pass by it once.
struct Tile {
    int row, output;  // its first

    __device__ __forceinline__ Tile(int number, int rows, int outputs) {
        const int down = (rows + ROWS - 1) / ROWS, across = (outputs + OUTPUTS - 1) / OUTPUTS;
        const int begin = number / (BAND * across) * BAND, in_band = number - begin * across;
        const int height = min(BAND, down - begin);
        row = (begin + in_band % height) * ROWS;
        output = in_band / height * OUTPUTS;
    }
};

// out: [rows][outputs]; tensor maps of x [rows][1][inputs] with boxes of 64 inputs and 128 rows, and of weights
// [outputs][1][inputs] with boxes of 64 inputs and 192 outputs; chunks are exchanged within 128 bytes.
// Grid: ceil(rows / ROWS) * ceil(outputs / OUTPUTS). Shared memory: Shared.
extern "C" __global__ void __launch_bounds__(HOPPER_THREADS, 1)
gemm_prefill_hopper(bf16* __restrict__ out, const __grid_constant__ TensorMap x, const __grid_constant__ TensorMap weights,
                    int rows, int outputs, int inputs) {
    Shared& shared = *reinterpret_cast<Shared*>(dynamic_shared);
    const Tile tile(blockIdx.x, rows, outputs);
    const int steps = (inputs + GEMM_STEP - 1) / GEMM_STEP;
    if (threadIdx.x == 0) shared.init_barriers();
    __syncthreads();

    if (threadIdx.x < WARPGROUP) {
        give_registers<24>();
        if (threadIdx.x != 0) return;
#pragma unroll 1
        for (int step = 0; step < steps; ++step) {
            const int stage = step % STAGES;
            // The first time round nobody has to leave: waiting for the phase before the first does not wait.
            shared.empty[stage].wait((step / STAGES + 1) % 2);
            shared.full[stage].expect((ROWS + OUTPUTS) * GEMM_STEP * sizeof(bf16));
            load_box(shared.x[stage], &x, &shared.full[stage], step * GEMM_STEP, 0, tile.row);
            load_box(shared.weights[stage], &weights, &shared.full[stage], step * GEMM_STEP, 0, tile.output);
        }
        return;
    }

    take_registers<240>();
    const int member = threadIdx.x / WARPGROUP - 1, lane = threadIdx.x % WARP, warp = threadIdx.x % WARPGROUP / WARP;
    const int group_row = member * 64, warp_row = group_row + warp * 16;
    const bool leads = threadIdx.x % WARPGROUP == 0;
    auto leave = [&](int step) {
        if (leads) shared.empty[step % STAGES].arrive();
    };
    float sum[OUTPUTS / 2], total[OUTPUTS / 2];
    auto begin = [&](int step, bool add) {
        shared.full[step % STAGES].wait(step / STAGES % 2);
        shared.begin(sum, group_row, step % STAGES, add);
    };
#pragma unroll
    for (int i = 0; i < OUTPUTS / 2; ++i) total[i] = 0.0f;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        const int last = min(step + GEMM_SPLIT / GEMM_STEP, steps) - 1;  // step of the split
        begin(step, false);
#pragma unroll 1
        while (step < last) {
            begin(++step, true);
            wgmma_wait<1>();  // this step's products go on while the place of those before is filled again
            leave(step - 1);
        }
        wgmma_wait<0>(sum);
        leave(last);
        // Meanwhile the tensor cores have the other warpgroup's products.
#pragma unroll
        for (int i = 0; i < OUTPUTS / 2; ++i) total[i] = __fadd_rn(total[i], sum[i]);
    }

    // Through shared memory, so that whole sectors are written: where the warpgroup's own rows of x were, when all of its
    // warps have read them. All that was fetched has landed.
    sync_named(1 + member, WARPGROUP);
    static_assert(OUTPUTS <= STAGES * GEMM_STEP, "there is room for a row's outputs");
    auto place = [&](int row, int chunk) {
        return at<GEMM_STEP>(&shared.x[chunk / (GEMM_STEP / CHUNK)][0][0], row, chunk % (GEMM_STEP / CHUNK));
    };
    for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int i = 0; i < OUTPUTS / CHUNK; ++i) {
            u32* const chunk = reinterpret_cast<u32*>(place(warp_row + 8 * half + lane / 4, i));
            chunk[lane % 4] = pack(total[4 * i + 2 * half], total[4 * i + 2 * half + 1]);
        }
    __syncwarp();
#pragma unroll 1
    for (int turn = 0; turn < 16 * OUTPUTS / CHUNK / WARP; ++turn) {
        const int i = lane + turn * WARP;
        const int row = warp_row + i / (OUTPUTS / CHUNK), chunk = i % (OUTPUTS / CHUNK);
        const int output = tile.output + chunk * CHUNK;
        if (tile.row + row >= rows || output >= outputs) continue;
        *reinterpret_cast<uint4*>(out + static_cast<size_t>(tile.row + row) * outputs + output) =
            *reinterpret_cast<uint4*>(place(row, chunk));
    }
}
