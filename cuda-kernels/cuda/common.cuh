// What every kernel shares. No CUDA header is included: what is not built into the compiler is written here.
#pragma once

typedef unsigned short bf16;  // the 16 bits of a bfloat16
typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int WARP = 32;
constexpr int THREADS = 256;  // threads of a block; the launch must agree
constexpr int WARPS = THREADS / WARP;

__device__ __forceinline__ float to_float(bf16 bits) {
    return __uint_as_float(static_cast<u32>(bits) << 16);
}

// Rounds to nearest, ties to even.
__device__ __forceinline__ bf16 to_bf16(float value) {
    bf16 bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

__device__ __forceinline__ float negative_infinity() { return __uint_as_float(0xff800000u); }

// A number that is larger the larger the score is.
__device__ __forceinline__ u32 key_of(float score) {
    const u32 bits = __float_as_uint(score + 0.0f);  // -0 is 0
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// 2 to the x, as the device's own unit gives it.
__device__ __forceinline__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// silu(gate) times up. For a gate far below zero the exponential is infinite and the quotient is zero, as it should be.
__device__ __forceinline__ float silu_times(float gate, float up) { return gate / (1.0f + expf(-gate)) * up; }

// What is before this reads nothing that an earlier kernel may have written: weights, say. On GPUs that let a kernel begin
// before the one before it has ended (compute capability 9.0 and newer), whoever loads the PTX puts the instruction here that
// waits for it; a kernel that does not say where waits first of all. Elsewhere it is a comment.
__device__ __forceinline__ void after_earlier_kernels() { asm volatile("// after earlier kernels" ::: "memory"); }

// Sum over the block, the same bits in every thread. The order is fixed: a butterfly inside each warp, then
// the warps one after another. `partial` is shared memory for WARPS values; it may be used again after the
// next barrier.
__device__ __forceinline__ float block_sum(float value, float* partial) {
    for (int step = WARP / 2; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    if (threadIdx.x % WARP == 0) partial[threadIdx.x / WARP] = value;
    __syncthreads();
    float sum = 0.0f;
    for (int warp = 0; warp < WARPS; ++warp) sum += partial[warp];
    return sum;
}
