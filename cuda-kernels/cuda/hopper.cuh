// What Hopper (compute capability 9.0) has beside: copies by the tensor memory accelerator, barriers in shared memory that
// count bytes, and products of four warps at a time straight from shared memory.
#pragma once
#include "tensor_core.cuh"

// A tensor map, as the host encodes it.
struct __align__(64) TensorMap {
    u64 opaque[16];
};

// A barrier in shared memory. Its phase ends when `count` arrivals have come and all bytes that they expect.
struct Barrier {
    u64 state;

    __device__ __forceinline__ void init(u32 count) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(this)), "r"(count) : "memory");
    }
    __device__ __forceinline__ void arrive() {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(this)) : "memory");
    }
    // Arrives, and expects so many bytes.
    __device__ __forceinline__ void expect(u32 bytes) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(this)), "r"(bytes)
                     : "memory");
    }
    // Waits for the end of the phase of this parity: the first phase's is 0.
    __device__ __forceinline__ void wait(u32 parity) {
        asm volatile(
            "{\n.reg .pred done;\nWAIT_%=:\n"
            "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
            "@!done bra WAIT_%=;\n}" ::"r"(shared_address(this)),
            "r"(parity)
            : "memory");
    }
};

// Makes initialised barriers visible to the accelerator.
__device__ __forceinline__ void fence_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// Makes what this thread has stored in shared memory visible to wgmma, which reads by another way than threads do.
__device__ __forceinline__ void fence_stores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// A box of a tensor [tokens][heads][width] into shared memory, from (token, head, column) on; zeros outside. The barrier
// is told of the bytes when they have landed.
__device__ __forceinline__ void load_box(void* to, const TensorMap* map, Barrier* barrier, int column, int head, int token) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(
            shared_address(to)),
        "l"(map), "r"(shared_address(barrier)), "r"(column), "r"(head), "r"(token)
        : "memory");
}

// Where an operand of wgmma lies: rows of 128 bytes with their chunks exchanged as the accelerator does, eight rows to a
// group and the next group 1024 bytes on. For an operand whose rows are k, `next` is how many bytes on its next 64 columns
// are.
__device__ __forceinline__ u64 operand(const void* start, u32 next) {
    const u64 address = (shared_address(start) & 0x3ffff) >> 4;
    return address | static_cast<u64>(next >> 4) << 16 | static_cast<u64>(1024 >> 4) << 32 | 1ull << 62;
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most PENDING groups are under way.
template <int PENDING>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
// The same, and says that these sums are whole.
template <int PENDING, int COUNT>
__device__ __forceinline__ void wgmma_wait(float (&sum)[COUNT]) {
    wgmma_wait<PENDING>();
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(sum[i])::"memory");
}

// More registers for warps that need them, from warps that do not.
template <int COUNT>
__device__ __forceinline__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT>
__device__ __forceinline__ void give_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

// Barriers by number, for `threads` threads of the block; arriving does not wait.
__device__ __forceinline__ void sync_named(int number, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}
__device__ __forceinline__ void arrive_named(int number, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// 32 sums as operands of an instruction, from `first` on, and how its text names the first, second and third 32 of them.
#define SUMS_8(first)                                                                                                    \
    "+f"(sum[first]), "+f"(sum[first + 1]), "+f"(sum[first + 2]), "+f"(sum[first + 3]), "+f"(sum[first + 4]),            \
        "+f"(sum[first + 5]), "+f"(sum[first + 6]), "+f"(sum[first + 7])
#define SUMS_32(first) SUMS_8(first), SUMS_8(first + 8), SUMS_8(first + 16), SUMS_8(first + 24)
#define NAMES_0 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_32 \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_64 \
    "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"

// sum [64][64] = a [64][16] * b [16][64] + (add ? sum : 0), both operands in shared memory, b a column to a row.
__device__ __forceinline__ void wgmma_shared(float (&sum)[32], u64 a, u64 b, bool add) {
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, %34, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
        NAMES_0
        "}, %32, %33, add, 1, 1, 0, 0;\n}"
        : SUMS_32(0)
        : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

// sum [64][128] = a [64][16] * b [16][128] + (add ? sum : 0), both operands in shared memory, b a column to a row.
__device__ __forceinline__ void wgmma_shared(float (&sum)[64], u64 a, u64 b, bool add) {
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
        NAMES_0 ", " NAMES_32
        "}, %64, %65, add, 1, 1, 0, 0;\n}"
        : SUMS_32(0), SUMS_32(32)
        : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

// sum [64][192] = a [64][16] * b [16][192] + (add ? sum : 0), both operands in shared memory, b a column to a row.
__device__ __forceinline__ void wgmma_shared(float (&sum)[96], u64 a, u64 b, bool add) {
    asm volatile(
        "{\n.reg .pred add;\nsetp.ne.b32 add, %98, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {"
        NAMES_0 ", " NAMES_32 ", " NAMES_64
        "}, %96, %97, add, 1, 1, 0, 0;\n}"
        : SUMS_32(0), SUMS_32(32), SUMS_32(64)
        : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

// sum [64][64] += a [64][16] * b [16][64], a in registers, b in shared memory, a row to a row.
__device__ __forceinline__ void wgmma_registers(float (&sum)[32], const u32 (&a)[4], u64 b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
        NAMES_0
        "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
        : SUMS_32(0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// sum [64][128] += a [64][16] * b [16][128], a in registers, b in shared memory, a row to a row.
__device__ __forceinline__ void wgmma_registers(float (&sum)[64], const u32 (&a)[4], u64 b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
        NAMES_0 ", " NAMES_32
        "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
        : SUMS_32(0), SUMS_32(32)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
