// RoPE on queries and keys, and keys and values put where the paged cache wants them.
#include "codes.cuh"

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

// The same with keys and values in bytes: a head's largest element becomes the largest number of the code, and what the bytes
// are to be multiplied with is stored beside them.
template <class Code>
__device__ __forceinline__ void rope_cache_bytes(bf16* queries, typename Code::Stored* keys, typename Code::Stored* values,
                                                 float* key_scales, float* value_scales, const Head& head,
                                                 const long long* slots, int heads, int head_dim, long long block_stride,
                                                 long long head_stride, long long scale_block_stride,
                                                 long long scale_head_stride) {
    __shared__ float largest_of[2];  // of the warps; there are one or two
    if (head.kv_head < 0) return head.store(queries + (head.row * heads + head.head) * head_dim, head_dim);
    const long long slot = slots[head.row];
    if (slot < 0) return;
    float largest = fmaxf(fabsf(head.low), fabsf(head.high));
    for (int step = WARP / 2; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
    if (threadIdx.x % WARP == 0) largest_of[threadIdx.x / WARP] = largest;
    __syncthreads();
    for (int warp = 0; warp < static_cast<int>(blockDim.x) / WARP; ++warp) largest = fmaxf(largest, largest_of[warp]);
    // What is so small that its inverse is not finite counts as 0.
    const bool is_something = largest > 0x1p-100f;
    const float scale = is_something ? largest / Code::LARGEST : 0.0f;
    const float per_code = is_something ? Code::LARGEST / largest : 0.0f;
    const long long block = slot / BLOCK_TOKENS, place = slot % BLOCK_TOKENS;
    typename Code::Stored* const to = (head.is_value ? values : keys) + block * block_stride + head.kv_head * head_stride +
                                      place * head_dim;
    to[threadIdx.x] = Code::code(head.low * per_code);
    to[threadIdx.x + head_dim / 2] = Code::code(head.high * per_code);
    if (threadIdx.x == 0) {
        (head.is_value ? value_scales
                       : key_scales)[block * scale_block_stride + head.kv_head * scale_head_stride + place] = scale;
    }
}

// key_scales and value_scales point at one layer's part of block 0: [kv head][BLOCK_TOKENS].
#define ROPE_CACHE_BYTES(NAME, CODE)                                                                                      \
    extern "C" __global__ void NAME(                                                                                      \
        bf16* __restrict__ queries, CODE::Stored* __restrict__ keys, CODE::Stored* __restrict__ values,                   \
        float* __restrict__ key_scales, float* __restrict__ value_scales, const bf16* __restrict__ qkv,                   \
        const float* __restrict__ turns, const int* __restrict__ positions, const long long* __restrict__ slots,          \
        int heads, int kv_heads, int head_dim, long long block_stride, long long head_stride,                             \
        long long scale_block_stride, long long scale_head_stride) {                                                      \
        rope_cache_bytes<CODE>(queries, keys, values, key_scales, value_scales,                                           \
                               Head(qkv, turns, positions, heads, kv_heads, head_dim), slots, heads, head_dim,            \
                               block_stride, head_stride, scale_block_stride, scale_head_stride);                         \
    }
ROPE_CACHE_BYTES(rope_cache_int8, Int8)
ROPE_CACHE_BYTES(rope_cache_fp8, E4m3)
