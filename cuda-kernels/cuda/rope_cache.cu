// RoPE on queries and keys, and keys and values put where the paged cache wants them.
#include "codes.cuh"
#include "splits.cuh"

constexpr int BLOCK_TOKENS = 16;

// Queries, keys and values of all rows, [rows][heads + 2 * kv_heads][head_dim], in bf16. pair() gives element i and the one
// `half` on.
struct Bf16Source {
    const bf16* __restrict__ qkv;

    __device__ __forceinline__ Floats<2> pair(size_t i, int half) const {
        return {to_float(qkv[i]), to_float(qkv[i + half])};
    }
};

// The same as their product left them, in f32: splits are added, and the sum is rounded, as add_splits does it.
struct PartsSource {
    const float* __restrict__ parts;  // [splits][count]
    int splits;
    size_t count;

    __device__ __forceinline__ Floats<2> pair(size_t i, int half) const {
        const Floats<2> sum = sum_of_splits<8, 2>(splits, [&](int split) {
            const float* const from = parts + split * count + i;
            return Floats<2>{from[0], from[half]};
        });
        return {to_float(to_bf16(sum.of[0])), to_float(to_bf16(sum.of[1]))};
    }
};

// One head of one row: two elements for each thread, i and i + head_dim / 2, which RoPE turns with each other.
struct Head {
    int head, kv_head;  // kv_head is negative for a query
    bool is_value;
    size_t row;
    long long slot;
    float low, high;

    template <class Source>
    __device__ __forceinline__ Head(const Source& source, const float* turns, const int* positions,
                                    const long long* slots, int heads, int kv_heads, int head_dim) {
        const int half = head_dim / 2, i = threadIdx.x;
        head = blockIdx.x;
        row = blockIdx.y;
        is_value = head >= heads + kv_heads;
        kv_head = head - heads - (is_value ? kv_heads : 0);
        // Asked for first, to be under way while the source is.
        slot = slots[row];
        const float* turn = turns + (is_value ? 0 : (static_cast<size_t>(positions[row]) * half + i) * 2);
        const float cosine = turn[0], sine = turn[1];
        const Floats<2> pair = source.pair((row * (heads + 2 * kv_heads) + head) * head_dim + i, half);
        low = pair.of[0];
        high = pair.of[1];
        if (is_value) return;
        const float a = low, b = high;
        // Each product is rounded by itself, as on a processor. Left to the compiler, one of the two may be fused with the sum, and
        // not the same one in every kernel: a row's bits would depend on how many there are.
        low = __fsub_rn(__fmul_rn(a, cosine), __fmul_rn(b, sine));
        high = __fadd_rn(__fmul_rn(b, cosine), __fmul_rn(a, sine));
    }
    __device__ __forceinline__ void store(bf16* to, int head_dim) const {
        to[threadIdx.x] = to_bf16(low);
        to[threadIdx.x + head_dim / 2] = to_bf16(high);
    }
};

__device__ __forceinline__ void rope_cache(bf16* queries, bf16* keys, bf16* values, const Head& head, int heads,
                                           int head_dim, long long block_stride, long long head_stride) {
    if (head.kv_head < 0) return head.store(queries + (head.row * heads + head.head) * head_dim, head_dim);
    if (head.slot < 0) return;
    head.store((head.is_value ? values : keys) + head.slot / BLOCK_TOKENS * block_stride + head.kv_head * head_stride +
                   head.slot % BLOCK_TOKENS * head_dim,
               head_dim);
}

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
    rope_cache(queries, keys, values, Head(Bf16Source{qkv}, turns, positions, slots, heads, kv_heads, head_dim), heads,
               head_dim, block_stride, head_stride);
}

// The same of a product whose splits are still apart: parts: [splits][rows][heads + 2 * kv_heads][head_dim].
extern "C" __global__ void rope_cache_parts(bf16* __restrict__ queries, bf16* __restrict__ keys,
                                            bf16* __restrict__ values, const float* __restrict__ parts,
                                            const float* __restrict__ turns, const int* __restrict__ positions,
                                            const long long* __restrict__ slots, int splits, int heads, int kv_heads,
                                            int head_dim, long long block_stride, long long head_stride) {
    const size_t count = static_cast<size_t>(gridDim.y) * gridDim.x * head_dim;
    rope_cache(queries, keys, values,
               Head(PartsSource{parts, splits, count}, turns, positions, slots, heads, kv_heads, head_dim), heads, head_dim,
               block_stride, head_stride);
}

// Whether a code can say that a number is none.
template <class Code>
constexpr bool HAS_NAN = false;
template <>
constexpr bool HAS_NAN<E4m3> = true;

// Bits of a number's size, in the order of sizes. Those of NaN come last: where no code says that a number is none, the scale does.
template <class Code>
__device__ __forceinline__ u32 size_of(float x) {
    const u32 bits = __float_as_uint(fabsf(x));
    return HAS_NAN<Code> && bits > 0x7f800000u ? 0 : bits;
}

// The same with keys and values in bytes: a head's largest element becomes the largest number of the code, and what the bytes
// are to be multiplied with is stored beside them.
template <class Code>
__device__ __forceinline__ void rope_cache_bytes(bf16* queries, typename Code::Stored* keys, typename Code::Stored* values,
                                                 float* key_scales, float* value_scales, const Head& head,
                                                 int heads, int head_dim, long long block_stride, long long head_stride,
                                                 long long scale_block_stride, long long scale_head_stride) {
    __shared__ u32 largest_of[2];  // of the warps; there are one or two
    if (head.kv_head < 0) return head.store(queries + (head.row * heads + head.head) * head_dim, head_dim);
    if (head.slot < 0) return;
    u32 bits = max(size_of<Code>(head.low), size_of<Code>(head.high));
    for (int step = WARP / 2; step > 0; step /= 2) bits = max(bits, __shfl_xor_sync(0xffffffffu, bits, step));
    if (threadIdx.x % WARP == 0) largest_of[threadIdx.x / WARP] = bits;
    __syncthreads();
    for (int warp = 0; warp < static_cast<int>(blockDim.x) / WARP; ++warp) bits = max(bits, largest_of[warp]);
    const float largest = __uint_as_float(bits);
    // What is so small that its inverse is not finite counts as 0.
    const bool is_something = !(largest <= 0x1p-100f);
    const float scale = is_something ? largest / Code::LARGEST : 0.0f;
    const float per_code = is_something ? Code::LARGEST / largest : 0.0f;
    const long long block = head.slot / BLOCK_TOKENS, place = head.slot % BLOCK_TOKENS;
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
                               Head(Bf16Source{qkv}, turns, positions, slots, heads, kv_heads, head_dim), heads,          \
                               head_dim, block_stride, head_stride, scale_block_stride, scale_head_stride);               \
    }
ROPE_CACHE_BYTES(rope_cache_int8, Int8)
ROPE_CACHE_BYTES(rope_cache_fp8, E4m3)
