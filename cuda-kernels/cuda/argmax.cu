// Greedy choice: the token with the largest score, the lowest id among equals.
#include "common.cuh"

constexpr u32 REFUSED = 0xffffffffu;

// tokens[row] = argmax of scores[row]; scores: [rows][vocabulary] in f32, tokens: [rows]. One block per row.
// A NaN or +inf among the scores, or nothing above -inf, gives REFUSED, as the CPU's argmax gives an error.
extern "C" __global__ void __launch_bounds__(THREADS)
argmax(u32* __restrict__ tokens, const float* __restrict__ scores, u32 vocabulary) {
    __shared__ float best_of[WARPS];
    __shared__ u32 token_of[WARPS];
    __shared__ u32 odd_of[WARPS];
    const float infinity = __uint_as_float(0x7f800000u);
    const float* row = scores + static_cast<size_t>(blockIdx.x) * vocabulary;
    float best = -infinity;
    u32 token = REFUSED;
    u32 odd = 0;
    for (u32 i = threadIdx.x; i < vocabulary; i += THREADS) {
        const float score = row[i];
        odd |= !(score < infinity);
        if (score > best) {
            best = score;
            token = i;
        }
    }
    // Larger score first, then lower id: an order without ties, so who is compared with whom does not matter.
    for (int step = WARP / 2; step > 0; step /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, best, step);
        const u32 other_token = __shfl_xor_sync(0xffffffffu, token, step);
        odd |= __shfl_xor_sync(0xffffffffu, odd, step);
        if (other > best || (other == best && other_token < token)) {
            best = other;
            token = other_token;
        }
    }
    if (threadIdx.x % WARP == 0) {
        best_of[threadIdx.x / WARP] = best;
        token_of[threadIdx.x / WARP] = token;
        odd_of[threadIdx.x / WARP] = odd;
    }
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int warp = 1; warp < WARPS; ++warp) {
        odd |= odd_of[warp];
        if (best_of[warp] > best || (best_of[warp] == best && token_of[warp] < token)) {
            best = best_of[warp];
            token = token_of[warp];
        }
    }
    tokens[blockIdx.x] = odd ? REFUSED : token;
}
