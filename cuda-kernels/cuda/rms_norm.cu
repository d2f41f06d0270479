// RMSNorm, alone and with the residual added first. One block per row, so a row's sum has the same order
// whatever else is in the batch.
#include "splits.cuh"
#include "tensor_core.cuh"

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

// The same of a product whose splits are still apart, parts: [splits][rows][width]; x is their sum, rounded to bfloat16. One block
// reads all of a row's parts, so it has more threads, each with 16 bytes of every split: four neighbours, which are other
// elements than it norms. What the norm needs goes through shared memory, [2][width] in bf16: sums, and weights, which
// are under way meanwhile. `width` is a multiple of 4. That a multiprocessor need have no second block is said: without it the
// compiler leaves too few registers for a turn's loads.
constexpr int ADDING_THREADS = 1024;

extern "C" __global__ void __launch_bounds__(ADDING_THREADS, 1)
add_rms_norm_parts(bf16* __restrict__ out, bf16* __restrict__ residual, const float* __restrict__ parts,
                   const bf16* __restrict__ weight, int splits, int width, float epsilon) {
    const size_t row = static_cast<size_t>(blockIdx.x) * width, count = static_cast<size_t>(gridDim.x) * width;
    bf16* const sums = reinterpret_cast<bf16*>(dynamic_shared);
    bf16* const weights = sums + width;
    for (int i = 4 * threadIdx.x; i < width; i += 4 * ADDING_THREADS) {
        uint2* const place = reinterpret_cast<uint2*>(residual + row + i);
        const uint2 before = *place, fetched = *reinterpret_cast<const uint2*>(weight + i);
        const Floats<4> x = sum_of_splits<8, 4>(splits, [&](int split) {
            const float4 four = *reinterpret_cast<const float4*>(parts + split * count + row + i);
            return Floats<4>{four.x, four.y, four.z, four.w};
        });
        // Two elements in 32 bits: x is rounded before it is added, and the sum again.
        auto add = [&](u32 two, int e) {
            const float low = to_float(static_cast<bf16>(two)), high = to_float(static_cast<bf16>(two >> 16));
            return pack(low + to_float(to_bf16(x.of[e])), high + to_float(to_bf16(x.of[e + 1])));
        };
        const uint2 after = make_uint2(add(before.x, 0), add(before.y, 2));
        *place = after;
        *reinterpret_cast<uint2*>(sums + i) = after;
        *reinterpret_cast<uint2*>(weights + i) = fetched;
    }
    __syncthreads();
    // The norm is THREADS threads' work, as everywhere; barriers wait for no thread that has ended.
    if (threadIdx.x >= THREADS) return;
    auto value = [&](int i) { return to_float(sums[i]); };
    normalise(out + row, weights, width, epsilon, value, [](int, float) {}, value);
}
