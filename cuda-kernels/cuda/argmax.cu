// Greedy choice: the token with the largest score, the lowest id among equals.
#include "common.cuh"

constexpr int EACH = 16;  // scores of a thread, all of which are under way together

// A number that is larger the better a token is: the score in order of size, and then the lower id. NaN and +inf are above
// everything.
__device__ __forceinline__ u64 rank(float score, u32 token) {
    if (!(score < -negative_infinity())) return ~0ull;
    return static_cast<u64>(key_of(score)) << 32 | ~token;
}

__device__ __forceinline__ u64 better(u64 a, u64 b) { return a > b ? a : b; }

// found[row] becomes the best rank in scores[row], if that is above what it was: 0, say. scores: [rows][vocabulary] in f32,
// found: [rows]. Grid: (ceil(vocabulary / (THREADS * EACH)), rows). Who comes first does not matter to a maximum.
extern "C" __global__ void __launch_bounds__(THREADS)
argmax(u64* __restrict__ found, const float* __restrict__ scores, u32 vocabulary) {
    __shared__ u64 best_of[WARPS];
    const float* const row = scores + static_cast<size_t>(blockIdx.y) * vocabulary;
    const u32 first = blockIdx.x * (THREADS * EACH) + threadIdx.x;
    float own[EACH];
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        const u32 token = first + i * THREADS;
        own[i] = token < vocabulary ? row[token] : negative_infinity();
    }
    u64 best = 0;
#pragma unroll
    for (int i = 0; i < EACH; ++i) best = better(best, rank(own[i], first + i * THREADS));
    for (int step = WARP / 2; step > 0; step /= 2) best = better(best, __shfl_xor_sync(0xffffffffu, best, step));
    if (threadIdx.x % WARP == 0) best_of[threadIdx.x / WARP] = best;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int warp = 1; warp < WARPS; ++warp) best = better(best, best_of[warp]);
    atomicMax(&found[blockIdx.y], best);
}
