// RoPE on queries and keys, and keys and values put where the paged cache wants them.
#include "common.cuh"

constexpr int BLOCK_TOKENS = 16;

// qkv: [rows][heads + 2 * kv_heads][head_dim], a row's queries, keys, values. queries: [rows][heads][head_dim].
// turns: [positions][head_dim / 2] pairs (cosine, sine); element i is turned with element i + head_dim / 2.
// keys and values point at one layer's part of block 0: [kv head][BLOCK_TOKENS][head_dim], the next kv head
// head_stride elements on, the next block block_stride elements on. slots: [rows], block * BLOCK_TOKENS + place
// in the block; a row with a negative slot is padding and writes no key or value.
// Grid: (heads + 2 * kv_heads, rows); threads: head_dim / 2.
extern "C" __global__ void rope_cache(bf16* __restrict__ queries, bf16* __restrict__ keys,
                                      bf16* __restrict__ values, const bf16* __restrict__ qkv,
                                      const float* __restrict__ turns, const int* __restrict__ positions,
                                      const long long* __restrict__ slots, int heads, int kv_heads,
                                      int head_dim, long long block_stride, long long head_stride) {
    const int head = blockIdx.x;
    const size_t row = blockIdx.y;
    const int half = head_dim / 2;
    const int i = threadIdx.x;
    const bf16* from = qkv + (row * (heads + 2 * kv_heads) + head) * head_dim;
    bf16 low = from[i];
    bf16 high = from[i + half];
    const bool is_value = head >= heads + kv_heads;
    if (!is_value) {
        const float* turn = turns + (static_cast<size_t>(positions[row]) * half + i) * 2;
        const float a = to_float(low), b = to_float(high), cosine = turn[0], sine = turn[1];
        low = to_bf16(a * cosine - b * sine);
        high = to_bf16(b * cosine + a * sine);
    }
    bf16* to;
    if (head < heads) {
        to = queries + (row * heads + head) * head_dim;
    } else {
        const long long slot = slots[row];
        if (slot < 0) return;
        const int kv_head = head - heads - (is_value ? kv_heads : 0);
        to = (is_value ? values : keys) + slot / BLOCK_TOKENS * block_stride + kv_head * head_stride +
             slot % BLOCK_TOKENS * head_dim;
    }
    to[i] = low;
    to[i + half] = high;
}
