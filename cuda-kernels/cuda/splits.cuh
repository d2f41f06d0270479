// A product of few rows whose splits are still apart: gemm_decode leaves [splits][rows][outputs] in f32. Every kernel that adds
// them does it with the function here, so that the bits do not depend on which one it is.
#pragma once
#include "common.cuh"

template <int N>
struct Floats {
    float of[N];
};

// Adds COUNT splits, from `first` on: all are asked for before the first is waited for.
template <int COUNT, int N, class Fetch>
__device__ __forceinline__ void add_together(Floats<N>& sum, int first, Fetch fetch) {
    Floats<N> fetched[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) fetched[i] = fetch(first + i);
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
#pragma unroll
        for (int e = 0; e < N; ++e) sum.of[e] = __fadd_rn(sum.of[e], fetched[i].of[e]);
}

// What is left of a turn, by powers of two: COUNT of them if there are so many, then half as many, and so on.
template <int COUNT, int N, class Fetch>
__device__ __forceinline__ void add_rest(Floats<N>& sum, int split, int splits, Fetch fetch) {
    if constexpr (COUNT > 0) {
        if (splits & COUNT) add_together<COUNT>(sum, split, fetch), split += COUNT;
        add_rest<COUNT / 2>(sum, split, splits, fetch);
    }
}

// 0 + fetch(0) + ... + fetch(splits - 1), from the first on; fetch gives Floats<N>. A thread has AT_ONCE of them under way
// together, a power of two.
template <int AT_ONCE, int N, class Fetch>
__device__ __forceinline__ Floats<N> sum_of_splits(int splits, Fetch fetch) {
    Floats<N> sum = {};
    int split = 0;
#pragma unroll 1
    for (; split + AT_ONCE <= splits; split += AT_ONCE) add_together<AT_ONCE>(sum, split, fetch);
    add_rest<AT_ONCE / 2>(sum, split, splits, fetch);
    return sum;
}
