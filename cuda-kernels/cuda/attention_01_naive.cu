// Step 1: a thread for each query, and everything straight from global memory.
//
// All lanes of a warp read the same key at the same time, two bytes of it, so each request of memory brings 32 bytes
// for the 2 that are used; and every warp reads all keys and values again.
#include "steps.cuh"

// Threads: 64, a query each.
extern "C" __global__ void __launch_bounds__(64)
attention_01_naive(bf16* __restrict__ out, const bf16* __restrict__ queries, const bf16* __restrict__ keys,
                   const bf16* __restrict__ values, int tokens, int heads, int kv_heads, float scale) {
    const int query = blockIdx.x * 64 + threadIdx.x, head = blockIdx.y, kv_head = head / (heads / kv_heads);
    if (query >= tokens) return;
    const size_t row = (static_cast<size_t>(query) * heads + head) * HEAD;
    float highest = negative_infinity(), sum = 0.0f, total[HEAD] = {};
    // ANCHOR: naive
    for (int key = 0; key <= query; ++key) {
        const size_t place = (static_cast<size_t>(key) * kv_heads + kv_head) * HEAD;
        float score = 0.0f;
        for (int i = 0; i < HEAD; ++i) score += to_float(queries[row + i]) * to_float(keys[place + i]);
        score *= scale;
        const float high = fmaxf(highest, score);
        const float rescale = power_of_two(highest - high), weight = power_of_two(score - high);
        highest = high;
        sum = sum * rescale + weight;
        for (int i = 0; i < HEAD; ++i) total[i] = total[i] * rescale + weight * to_float(values[place + i]);
    }
    // ANCHOR_END: naive
    for (int i = 0; i < HEAD; ++i) out[row + i] = to_bf16(total[i] / sum);
}
