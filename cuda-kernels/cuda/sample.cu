// A token drawn after temperature, top-k and top-p, in the order of the CPU's sampler: the k largest scores stay; of
// these the fewest largest whose weights reach the share p; of these one is drawn by walking up the ids.
//
// Weights are whole numbers, so sums have no order and the same scores and the same random number give the same token
// wherever they are. Nothing is sorted: the last score that stays is found eight bits at a time.
#include "common.cuh"

constexpr u32 REFUSED = 0xffffffffu;
constexpr float ONE = 1099511627776.0f;  // the weight of the largest score, 2^40: 2^23 of them still fit 64 bits
constexpr int DIGIT = 8;                 // bits; as many digits as threads
static_assert(1 << DIGIT == THREADS, "each thread has a digit");

__device__ __forceinline__ float score_of(u32 key) {
    return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

// The sum of the values of the lanes before this one.
__device__ __forceinline__ u64 sum_before_in_warp(u64 value) {
    u64 sum = value;
    for (int step = 1; step < WARP; step *= 2) {
        const u64 other = __shfl_up_sync(0xffffffffu, sum, step);
        if (threadIdx.x % WARP >= step) sum += other;
    }
    return sum - value;
}

// The sum of the values of the threads before this one, and of all. `partial` is shared memory for WARPS values; it may be
// used again after the next barrier.
__device__ __forceinline__ u64 sum_before(u64 value, u64* partial, u64& all) {
    const u64 before = sum_before_in_warp(value);
    if (threadIdx.x % WARP == WARP - 1) partial[threadIdx.x / WARP] = before + value;
    __syncthreads();
    u64 of_warps = 0;
    all = 0;
    for (int warp = 0; warp < WARPS; ++warp) {
        if (warp < static_cast<int>(threadIdx.x / WARP)) of_warps += partial[warp];
        all += partial[warp];
    }
    return of_warps + before;
}

struct Scores {
    const float* row;
    u32 count;
    float highest, temperature;

    // From 0 to ONE.
    __device__ __forceinline__ u64 weight(float score) const {
        return __float2ull_rn(expf((score - highest) / temperature) * ONE);
    }
};

// Which scores stay: those above a key, and the first few of those equal to it.
struct Kept {
    u32 key;
    u64 ties;
    u64 above;  // what the scores above the key weigh, or how many they are
};

struct Shared {
    u64 histogram[THREADS];
    u64 partial[WARPS];
    u64 ties[WARPS];
    u64 above;
    u32 digit;
};

// Keeps the largest scores while those before weigh less than `goal`, which is at least 1 and at most what all scores
// not below `lowest` weigh. `weigh` says what a score weighs.
template <class Weigh>
__device__ __forceinline__ Kept keep(const Scores& scores, u32 lowest, u64 goal, Shared& shared, Weigh weigh) {
    u64 above = 0;
    u32 key = 0;
    for (int shift = 32 - DIGIT; shift >= 0; shift -= DIGIT) {
        shared.histogram[threadIdx.x] = 0;
        __syncthreads();
        for (u32 i = threadIdx.x; i < scores.count; i += THREADS) {
            const u32 other = key_of(scores.row[i]);
            const bool same = shift == 32 - DIGIT || other >> (shift + DIGIT) == key >> (shift + DIGIT);
            if (same && other >= lowest) atomicAdd(&shared.histogram[other >> shift & (THREADS - 1)], weigh(scores.row[i]));
        }
        __syncthreads();
        // The largest digit first; the goal is in the one that reaches it.
        const u32 digit = THREADS - 1 - threadIdx.x;
        const u64 own = shared.histogram[digit];
        u64 all;
        const u64 before = above + sum_before(own, shared.partial, all);
        if (before < goal && goal <= before + own) {
            shared.above = before;
            shared.digit = digit;
        }
        __syncthreads();
        above = shared.above;
        key |= shared.digit << shift;
    }
    const u64 each = weigh(score_of(key));
    return Kept{key, (goal - above + each - 1) / each, above};
}

// The sum of what scores above a key weigh.
__device__ __forceinline__ u64 weight_above(const Scores& scores, u32 key, Shared& shared) {
    u64 sum = 0, all;
    for (u32 i = threadIdx.x; i < scores.count; i += THREADS)
        if (key_of(scores.row[i]) > key) sum += scores.weight(scores.row[i]);
    sum_before(sum, shared.partial, all);
    return all;
}

// tokens[row] is drawn from scores[row]; scores: [rows][vocabulary] in f32. For each row: temperatures, 0 for the largest
// score; top_ks, 0 for all; top_ps in (0, 1]; draws, uniform below 2^64. One block per row. NaN or +inf among the scores,
// or nothing above -inf, gives REFUSED.
extern "C" __global__ void __launch_bounds__(THREADS)
sample(u32* __restrict__ tokens, const float* __restrict__ all_scores, const float* __restrict__ temperatures,
       const u32* __restrict__ top_ks, const float* __restrict__ top_ps, const u64* __restrict__ draws, u32 vocabulary) {
    __shared__ Shared shared;
    __shared__ float highest_of[WARPS];
    const float* const row = all_scores + static_cast<size_t>(blockIdx.x) * vocabulary;
    const float infinity = -negative_infinity();
    float highest = -infinity;  // infinity if a score is odd
    for (u32 i = threadIdx.x; i < vocabulary; i += THREADS) highest = fmaxf(highest, row[i] < infinity ? row[i] : infinity);
    for (int step = WARP / 2; step > 0; step /= 2) highest = fmaxf(highest, __shfl_xor_sync(0xffffffffu, highest, step));
    if (threadIdx.x % WARP == 0) highest_of[threadIdx.x / WARP] = highest;
    __syncthreads();
    for (int warp = 0; warp < WARPS; ++warp) highest = fmaxf(highest, highest_of[warp]);
    if (highest == infinity || highest == -infinity) {
        if (threadIdx.x == 0) tokens[blockIdx.x] = REFUSED;
        return;
    }

    const float temperature = temperatures[blockIdx.x];
    const Scores scores{row, vocabulary, highest, temperature > 0.0f ? temperature : 1.0f};
    const u32 top_k = temperature > 0.0f ? top_ks[blockIdx.x] : 1;
    Kept kept{0, vocabulary, 0};
    if (top_k > 0 && top_k < vocabulary) {
        kept = keep(scores, 0, top_k, shared, [](float) { return u64(1); });
    }
    auto weigh = [&](float score) { return scores.weight(score); };
    auto weight_at = [&](u32 key) {
        return key == 0 ? u64(0) : scores.weight(score_of(key));
    };
    u64 total = weight_above(scores, kept.key, shared) + kept.ties * weight_at(kept.key);
    const float top_p = top_ps[blockIdx.x];
    if (top_p < 1.0f) {
        const u64 share = __float2ull_rz(top_p * 18446744073709551616.0f);  // top_p * 2^64, exactly
        u64 goal = __umul64hi(share, total) + (share * total != 0);
        goal = goal > 0 ? goal : 1;
        kept = keep(scores, kept.key, goal, shared, weigh);
        total = kept.above + kept.ties * weight_at(kept.key);
    }
    const u64 share = __umul64hi(draws[blockIdx.x], total);

    // Each warp has a stretch of ids; whose weights pass the share walks its stretch again.
    const int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const u64 each = weight_at(kept.key);
    const u32 stretch = (vocabulary + WARPS * WARP - 1) / (WARPS * WARP) * WARP;
    const u32 begin = min(warp * stretch, vocabulary), end = min(begin + stretch, vocabulary);
    u64 above = 0, ties = 0;
    for (u32 i = begin + lane; i < end; i += WARP) {
        const u32 key = key_of(row[i]);
        above += key > kept.key ? scores.weight(row[i]) : 0;
        ties += key == kept.key;
    }
    above = sum_before_in_warp(above) + above;
    ties = sum_before_in_warp(ties) + ties;
    __syncthreads();
    if (lane == WARP - 1) shared.partial[warp] = above, shared.ties[warp] = ties;
    __syncthreads();
    u64 passed = 0, ties_passed = 0;
    for (int other = 0; other < warp; ++other) {
        passed += shared.partial[other];
        ties_passed += shared.ties[other];
    }
    const u64 passed_here = passed + min(ties_passed, kept.ties) * each;
    const u64 passed_after = passed + shared.partial[warp] + min(ties_passed + shared.ties[warp], kept.ties) * each;
    if (share < passed_here || share >= passed_after) return;
    passed = passed_here;
    for (u32 from = begin; from < end; from += WARP) {
        const u32 i = from + lane;
        const u32 key = i < end ? key_of(row[i]) : 0;
        const u64 tie = i < end && key == kept.key;
        const u64 ties_before = ties_passed + sum_before_in_warp(tie);
        const bool stays = tie ? ties_before < kept.ties : i < end && key > kept.key;
        const u64 weight = stays ? scores.weight(row[i]) : 0;
        const u64 before = passed + sum_before_in_warp(weight);
        if (before <= share && share < before + weight) tokens[blockIdx.x] = i;
        passed = __shfl_sync(0xffffffffu, before + weight, WARP - 1);
        ties_passed += __popc(__ballot_sync(0xffffffffu, tie));
        if (passed > share) return;
    }
}
