// RoPE on queries and keys, and keys and values put where the paged cache wants them.
#include "common.cuh"

constexpr int BLOCK_TOKENS = 16;

// One head of one row: two elements for each thread, i and i + head_dim / 2, which RoPE turns with each other.
struct Head {
    int head, kv_head;  // kv_head is negative for a query
    bool is_value;
    size_t row;
    float low, high;

    __device__ __forceinline__ Head(const bf16* qkv, const float* turns, const int* positions, int heads, int kv_heads,
                                    int head_dim) {
        const int half = head_dim / 2, i = threadIdx.x;
        head = blockIdx.x;
        row = blockIdx.y;
        is_value = head >= heads + kv_heads;
        kv_head = head - heads - (is_value ? kv_heads : 0);
        const bf16* from = qkv + (row * (heads + 2 * kv_heads) + head) * head_dim;
        low = to_float(from[i]);
        high = to_float(from[i + half]);
        if (is_value) return;
        const float* turn = turns + (static_cast<size_t>(positions[row]) * half + i) * 2;
        const float a = low, b = high, cosine = turn[0], sine = turn[1];
        low = a * cosine - b * sine;
        high = b * cosine + a * sine;
    }
    __device__ __forceinline__ void store(bf16* to, int head_dim) const {
        to[threadIdx.x] = to_bf16(low);
        to[threadIdx.x + head_dim / 2] = to_bf16(high);
    }
};

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
    const Head head(qkv, turns, positions, heads, kv_heads, head_dim);
    if (head.kv_head < 0) return head.store(queries + (head.row * heads + head.head) * head_dim, head_dim);
    const long long slot = slots[head.row];
    if (slot < 0) return;
    head.store((head.is_value ? values : keys) + slot / BLOCK_TOKENS * block_stride + head.kv_head * head_stride +
                   slot % BLOCK_TOKENS * head_dim,
               head_dim);
}

// The same with keys and values in signed bytes: a head's largest element becomes 127 or -127, and what the bytes are to be
// multiplied with is stored beside them. key_scales and value_scales point at one layer's part of block 0:
// [kv head][BLOCK_TOKENS].
extern "C" __global__ void rope_cache_int8(bf16* __restrict__ queries, signed char* __restrict__ keys,
                                           signed char* __restrict__ values, float* __restrict__ key_scales,
                                           float* __restrict__ value_scales, const bf16* __restrict__ qkv,
                                           const float* __restrict__ turns, const int* __restrict__ positions,
                                           const long long* __restrict__ slots, int heads, int kv_heads, int head_dim,
                                           long long block_stride, long long head_stride, long long scale_block_stride,
                                           long long scale_head_stride) {
    __shared__ float largest_of[2];  // of the warps; there are one or two
    const Head head(qkv, turns, positions, heads, kv_heads, head_dim);
    if (head.kv_head < 0) return head.store(queries + (head.row * heads + head.head) * head_dim, head_dim);
    const long long slot = slots[head.row];
    if (slot < 0) return;
    float largest = fmaxf(fabsf(head.low), fabsf(head.high));
    for (int step = WARP / 2; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
    if (threadIdx.x % WARP == 0) largest_of[threadIdx.x / WARP] = largest;
    __syncthreads();
    for (int warp = 0; warp < static_cast<int>(blockDim.x) / WARP; ++warp) largest = fmaxf(largest, largest_of[warp]);
    const float scale = largest / 127.0f, per_code = largest > 0.0f ? 127.0f / largest : 0.0f;
    const long long block = slot / BLOCK_TOKENS, place = slot % BLOCK_TOKENS;
    signed char* const to = (head.is_value ? values : keys) + block * block_stride + head.kv_head * head_stride +
                            place * head_dim;
    to[threadIdx.x] = static_cast<signed char>(__float2int_rn(head.low * per_code));
    to[threadIdx.x + head_dim / 2] = static_cast<signed char>(__float2int_rn(head.high * per_code));
    if (threadIdx.x == 0) {
        (head.is_value ? value_scales
                       : key_scales)[block * scale_block_stride + head.kv_head * scale_head_stride + place] = scale;
    }
}
