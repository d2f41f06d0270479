// RMSNorm, alone and with the residual added first. One block per row, so a row's sum has the same order
// whatever else is in the batch.
#include "common.cuh"

constexpr int KEPT = 8;  // elements that a thread keeps

// out[i] = value(i) / rms(value) * weight[i]. What a thread keeps is fetched at once, weights included: they are under way
// while the block adds up. Each value is handed to store(i, value); of rows that are wider, the rest is asked for again by
// again(i), in the thread that stored it.
template <class Value, class Store, class Again>
__device__ __forceinline__ void normalise(bf16* out, const bf16* weight, int width, float epsilon, Value value, Store store,
                                          Again again) {
    __shared__ float partial[WARPS];
    const int first = threadIdx.x, rest = first + KEPT * THREADS;
    float kept[KEPT] = {}, weights[KEPT];
#pragma unroll
    for (int turn = 0; turn < KEPT; ++turn) {
        const int i = first + turn * THREADS;
        if (i < width) kept[turn] = value(i), weights[turn] = to_float(weight[i]);
    }
    float squares = 0.0f;
#pragma unroll
    for (int turn = 0; turn < KEPT; ++turn) {
        const int i = first + turn * THREADS;
        if (i < width) store(i, kept[turn]);
        squares += kept[turn] * kept[turn];
    }
    for (int i = rest; i < width; i += THREADS) {
        const float other = value(i);
        store(i, other);
        squares += other * other;
    }
    const float scale = 1.0f / sqrtf(block_sum(squares, partial) / width + epsilon);
#pragma unroll
    for (int turn = 0; turn < KEPT; ++turn) {
        const int i = first + turn * THREADS;
        if (i < width) out[i] = to_bf16(kept[turn] * scale * weights[turn]);
    }
    for (int i = rest; i < width; i += THREADS) out[i] = to_bf16(again(i) * scale * to_float(weight[i]));
}

// out[row][i] = x[row][i] / rms(x[row]) * weight[i]; x, out: [rows][width], weight: [width].
extern "C" __global__ void __launch_bounds__(THREADS)
rms_norm(bf16* __restrict__ out, const bf16* __restrict__ x, const bf16* __restrict__ weight, int width,
         float epsilon) {
    const size_t row = static_cast<size_t>(blockIdx.x) * width;
    auto value = [&](int i) { return to_float(x[row + i]); };
    normalise(out + row, weight, width, epsilon, value, [](int, float) {}, value);
}

// residual[row] += x[row], rounded to bfloat16; then out[row] is the norm of what was stored. Each thread
// reads back only what it wrote itself, so nothing has to wait.
extern "C" __global__ void __launch_bounds__(THREADS)
add_rms_norm(bf16* __restrict__ out, bf16* __restrict__ residual, const bf16* __restrict__ x,
             const bf16* __restrict__ weight, int width, float epsilon) {
    const size_t row = static_cast<size_t>(blockIdx.x) * width;
    // Rounded here, so that it is stored as it is.
    auto sum = [&](int i) { return to_float(to_bf16(to_float(residual[row + i]) + to_float(x[row + i]))); };
    auto store = [&](int i, float value) { residual[row + i] = to_bf16(value); };
    normalise(out + row, weight, width, epsilon, sum, store, [&](int i) { return to_float(residual[row + i]); });
}
