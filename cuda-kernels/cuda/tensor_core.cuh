// Tiles of bfloat16 in shared memory, the copies that fill them, and the tensor cores that multiply them.
#pragma once
#include "common.cuh"

constexpr u32 ALL_LANES = 0xffffffffu;
constexpr int CHUNK = 8;  // bf16 in 16 bytes, the most that one lane moves at a time

extern __shared__ __align__(1024) unsigned char dynamic_shared[];

// Where chunk `chunk` of row `row` lies in a tile of rows of WIDTH bf16. The eight rows that ldmatrix takes at a time
// would begin at the same bank if rows simply followed each other; exchanged like this, they touch all 32 banks once.
// ANCHOR: exchanged
template <int WIDTH>
__device__ __forceinline__ bf16* at(bf16* tile, int row, int chunk) {
    static_assert(WIDTH % 64 == 0, "a row is whole lines of all 32 banks");
    return tile + row * WIDTH + (chunk ^ (row & 7)) * CHUNK;
}
// ANCHOR_END: exchanged

__device__ __forceinline__ u32 shared_address(const void* pointer) {
    return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

// 16 bytes from global to shared memory without a register in between; zeros if not `there`. They land at the latest
// when the group that they are committed to is waited for, and other threads see them after the barrier that follows.
// ANCHOR: copy_async
__device__ __forceinline__ void copy_async(bf16* to, const void* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}
// ANCHOR_END: copy_async
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most PENDING of this thread's groups are still under way.
template <int PENDING>
__device__ __forceinline__ void wait_for_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// Four 8x8 matrices of bf16; lane l names row l % 8 of matrix l / 8 and gets elements (l / 4, 2 * (l % 4)) and the next.
__device__ __forceinline__ void load_matrices(u32 (&to)[4], u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
}
// The same with each matrix transposed.
__device__ __forceinline__ void load_transposed(u32 (&to)[4], u32 row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row)
                 : "memory");
}

// sum [16][8] += a [16][16] * b [16][8] over a warp, in f32. Lane l holds of the sum the elements (l / 4, 2 * (l % 4)),
// the one after it, and the same two eight rows below.
__device__ __forceinline__ void multiply_add(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two values rounded to bfloat16, the first in the low half.
__device__ __forceinline__ u32 pack(float low, float high) {
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}
__device__ __forceinline__ float low_half(u32 both) { return __uint_as_float(both << 16); }
__device__ __forceinline__ float high_half(u32 both) { return __uint_as_float(both & 0xffff0000u); }

// 16 bytes to shared memory at once; left to itself the compiler may store word by word, and banks conflict.
__device__ __forceinline__ void store_chunk(bf16* to, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(to)), "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}

// The shared address of a lane's row of four matrices, for ldmatrix: of rows `row`.. (16) and columns 16 * step.. of a tile,
// sixteen rows of the first eight columns, then of the next. All operands below are fetched like this, so that lanes' places
// differ by what is the same for all lanes, and one set of registers with them does for all tiles. `row` is a multiple of 8.
template <int WIDTH>
__device__ __forceinline__ u32 place_of(bf16* tile, int row, int step) {
    const int lane = threadIdx.x % WARP;
    const u32 bytes = static_cast<u32>(at<WIDTH>(tile, lane % 16, 2 * step + lane / 16) - tile) * sizeof(bf16);
    return shared_address(tile) + bytes + row * WIDTH * static_cast<u32>(sizeof(bf16));
}

// A's operand: rows `row`.. (16) and columns 16 * step.. of a tile.
template <int WIDTH>
__device__ __forceinline__ void load_rows(u32 (&to)[4], bf16* tile, int row, int step) {
    load_matrices(to, place_of<WIDTH>(tile, row, step));
}
// B's operand for two products of eight columns, where column n of B is row n of the tile: rows `row`.. (16), columns
// 16 * step... The first product takes to[0] and to[1].
template <int WIDTH>
__device__ __forceinline__ void load_columns(u32 (&to)[4], bf16* tile, int row, int step) {
    u32 matrices[4];
    load_matrices(matrices, place_of<WIDTH>(tile, row, step));
    to[0] = matrices[0], to[1] = matrices[2], to[2] = matrices[1], to[3] = matrices[3];
}
// B's operand for two products of eight columns, where row k of B is row k of the tile: rows `row`.. (16), columns
// `column`.. (16).
template <int WIDTH>
__device__ __forceinline__ void load_columns_transposed(u32 (&to)[4], bf16* tile, int row, int column) {
    load_transposed(to, place_of<WIDTH>(tile, row, column / 16));
}
