// What all attention over the paged cache shares: where keys lie, which of them a query sees, and the order of sums.
//
// The order is fixed: keys in splits of SPLIT from the first key on, a split in tiles of TILE, and splits joined one
// after the other. Neither depends on how many queries or requests there are, nor on which kernel runs: a query's output
// has the same bits from paged_prefill and from paged_decode with join_splits, alone and among others.
#pragma once
#include "codes.cuh"

constexpr int BLOCK_TOKENS = 16;  // tokens of a block of the cache
constexpr int TILE = 64;          // keys that meet the tensor cores at a time
constexpr int SPLIT = 256;        // keys after which a sum is closed
constexpr int ATTENTION_THREADS = 128;
constexpr int ATTENTION_WARPS = ATTENTION_THREADS / WARP;

// 2^(score * scale - base); base_of(highest) makes it at most 1. A masked score is -inf and weighs 0, also where
// everything so far is masked.
__device__ __forceinline__ float base_of(float highest, float scale) {
    return highest == negative_infinity() ? 0.0f : __fmul_rn(highest, scale);
}
__device__ __forceinline__ float weight_of(float score, float scale, float base) {
    return power_of_two(__fmaf_rn(score, scale, -base));
}
// ANCHOR: rescale
// What sums relative to `highest` are multiplied with to be relative to `base`: exactly 1 if that has not changed, so that a
// tile of which nothing is seen changes nothing. (weight_of would give the product's rounding error, and not always 1.)
__device__ __forceinline__ float rescale_of(float highest, float scale, float base) {
    return power_of_two(__fmul_rn(highest, scale) - base);
}
// ANCHOR_END: rescale

// A batch, as every kernel over the paged cache is given it.
struct Batch {
    const int* __restrict__ tables;        // [requests][table_width] blocks of the cache
    const int* __restrict__ lengths;       // [requests] keys of a request, those of its queries included
    const int* __restrict__ query_starts;  // [requests + 1] a request's first row among the queries
    const u64* __restrict__ ancestors;     // [rows] or null: a tree's rows, below
    int table_width;
};

// ANCHOR: visible
// Which keys a query sees: those before `prefix`, and of the 64 after it those that are marked.
//
// Causal: query i of n sees the keys up to its own, which is key length - n + i. Tree: the n queries are the nodes of a
// tree behind the first length - n keys; bit j of a row's `ancestors` says that it sees node j, itself included. 0 says
// that the request is causal.
struct Visible {
    int prefix;
    u64 marks;

    __device__ __forceinline__ Visible(const Batch& batch, int request, int query) {
        const int start = batch.query_starts[request];
        const int before = batch.lengths[request] - (batch.query_starts[request + 1] - start);
        marks = batch.ancestors ? batch.ancestors[start + query] : 0;
        prefix = marks ? before : before + query + 1;
    }
    // Of the TILE keys from `key` on, those that are seen, a bit for each.
    __device__ __forceinline__ u64 of_tile(int key) const {
        static_assert(TILE == 64, "a bit for each key");
        const int before = prefix - key;
        const u64 first = before >= TILE ? ~0ull : before > 0 ? (1ull << before) - 1 : 0;
        const u64 nodes = before >= TILE || before <= -64 ? 0 : before >= 0 ? marks << before : marks >> -before;
        return first | nodes;
    }
};
// ANCHOR_END: visible

// Keys or values in bfloat16: `first` is one layer's part of block 0, [kv head][BLOCK_TOKENS][width].
struct Bf16Cache {
    const bf16* __restrict__ first;
    long long block_stride;  // elements from a block to the next
    long long head_stride;   // elements from a kv head to the next

    // Begins to fill a tile [TILE][WIDTH] with the keys from `key` on, the first of a block; zeros from `length` on. Threads
    // have the same place in each block, so that a block costs one look into the table and one address. AT_ONCE blocks are
    // looked up together: more hide more latency and take more registers.
    template <int WIDTH, int AT_ONCE>
    __device__ __forceinline__ void load(bf16* tile, const int* table, int key, int length, int kv_head) const {
        constexpr int LANES = WIDTH / CHUNK, ROWS = ATTENTION_THREADS / LANES;  // threads of a row, rows at a time
        static_assert(BLOCK_TOKENS % ROWS == 0 && ROWS % 8 == 0, "a block is whole turns, whose chunks are exchanged alike");
        const int row = threadIdx.x / LANES, chunk = threadIdx.x % LANES;
        const bf16* const own = first + (kv_head * head_stride + row * WIDTH + chunk * CHUNK);
        bf16* const to = at<WIDTH>(tile, row, chunk);
#pragma unroll 1
        for (int begun = 0; begun < TILE; begun += AT_ONCE * BLOCK_TOKENS) {
            // ANCHOR: through_the_table
            int blocks[AT_ONCE];
            #pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                // Behind the last key there is no block: nothing is copied from the one named instead.
                const int token = key + begun + i * BLOCK_TOKENS;
                blocks[i] = token < length ? table[static_cast<u32>(token) / BLOCK_TOKENS] : 0;
            }
            #pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                const bf16* const from = own + blocks[i] * block_stride;
                #pragma unroll
                for (int token = 0; token < BLOCK_TOKENS; token += ROWS) {
                    const int place = begun + i * BLOCK_TOKENS + token;
                    copy_async(to + place * WIDTH, from + token * WIDTH, key + place + row < length);
                }
            }
            // ANCHOR_END: through_the_table
        }
    }

    // The same with KEYS keys, for rows that threads do not share out evenly: a warp has whole rows, all of one block.
    template <int WIDTH, int KEYS, int WARPS_OF_BLOCK>
    __device__ __forceinline__ void load_wide(bf16* tile, const int* table, int key, int length, int kv_head) const {
        constexpr int OWN = KEYS / WARPS_OF_BLOCK;
        static_assert(BLOCK_TOKENS % OWN == 0, "a warp looks one block up");
        const int lane = threadIdx.x % WARP, row = threadIdx.x / WARP * OWN, left = length - key - row;
        const int block = left > 0 ? table[static_cast<u32>(key + row) / BLOCK_TOKENS] : 0;
        const bf16* from =
            first + (block * block_stride + kv_head * head_stride + row % BLOCK_TOKENS * WIDTH + lane * CHUNK);
#pragma unroll 4
        for (int i = 0; i < OWN; ++i) {
#pragma unroll
            for (int chunk = 0; chunk < WIDTH / CHUNK; chunk += WARP)
                if (chunk + lane < WIDTH / CHUNK)
                    copy_async(at<WIDTH>(tile, row + i, chunk + lane), from + chunk * CHUNK, i < left);
            from += WIDTH;
        }
    }

    // As ByteCache's: here nothing goes through registers.
    template <int WIDTH>
    struct Fetched {};
    template <int WIDTH>
    __device__ __forceinline__ void fetch(Fetched<WIDTH>&, bf16* tile, const int* table, int key, int length,
                                          int kv_head) const {
        if constexpr (ATTENTION_THREADS % (WIDTH / CHUNK) == 0)
            load<WIDTH, TILE / BLOCK_TOKENS>(tile, table, key, length, kv_head);
        else
            load_wide<WIDTH, TILE, ATTENTION_WARPS>(tile, table, key, length, kv_head);
    }
    template <int WIDTH>
    __device__ __forceinline__ void put(bf16*, const Fetched<WIDTH>&) const {}
};

// Keys or values in bytes with a scale for each token and kv head. They become bfloat16 on the way into the tile.
template <class Code>
struct ByteCache {
    const typename Code::Stored* __restrict__ first;  // as Bf16Cache's
    const float* __restrict__ scales;                 // one layer's part of block 0, [kv head][BLOCK_TOKENS]
    long long block_stride, head_stride;
    long long scale_block_stride, scale_head_stride;

    static constexpr int CODES = 16;  // in 16 bytes

    // What a thread has of a tile [TILE][WIDTH]: so many times 16 codes and their scale.
    template <int WIDTH>
    struct Fetched {
        static constexpr int COUNT = TILE * WIDTH / CODES / ATTENTION_THREADS;
        uint4 codes[COUNT];
        float scales[COUNT];
    };

    // Fetches what a thread has of the keys from `key` on; zeros from `length` on. put() unpacks it. In between, the tile
    // before may be worked with.
    template <int WIDTH>
    __device__ __forceinline__ void fetch(Fetched<WIDTH>& fetched, bf16*, const int* table, int key, int length,
                                          int kv_head) const {
#pragma unroll
        for (int turn = 0; turn < fetched.COUNT; ++turn)
            fetch_turn<WIDTH>(turn, table, key, length, kv_head, fetched.codes[turn], fetched.scales[turn]);
    }
    template <int WIDTH>
    __device__ __forceinline__ void put(bf16* tile, const Fetched<WIDTH>& fetched) const {
#pragma unroll
        for (int turn = 0; turn < fetched.COUNT; ++turn) put_turn<WIDTH>(tile, turn, fetched.codes[turn], fetched.scales[turn]);
    }

    // Both, AT_ONCE turns at a time, where there are no registers for more.
    template <int WIDTH, int AT_ONCE>
    __device__ __forceinline__ void load(bf16* tile, const int* table, int key, int length, int kv_head) const {
#pragma unroll AT_ONCE
        for (int turn = 0; turn < Fetched<WIDTH>::COUNT; ++turn) {
            uint4 codes;
            float scale;
            fetch_turn<WIDTH>(turn, table, key, length, kv_head, codes, scale);
            put_turn<WIDTH>(tile, turn, codes, scale);
        }
    }

    template <int WIDTH>
    __device__ __forceinline__ void fetch_turn(int turn, const int* table, int key, int length, int kv_head, uint4& codes,
                                               float& scale) const {
        const int i = threadIdx.x + turn * ATTENTION_THREADS;
        const int part = i % (WIDTH / CODES), token = key + i / (WIDTH / CODES);
        codes = make_uint4(0, 0, 0, 0);
        scale = 0.0f;
        if (token < length) {
            const long long block = table[token / BLOCK_TOKENS];
            const int place = token % BLOCK_TOKENS;
            codes = *reinterpret_cast<const uint4*>(first + block * block_stride + kv_head * head_stride + place * WIDTH +
                                                    part * CODES);
            scale = scales[block * scale_block_stride + kv_head * scale_head_stride + place];
        }
    }
    template <int WIDTH>
    __device__ __forceinline__ void put_turn(bf16* tile, int turn, const uint4& codes, float scale) const {
        const int i = threadIdx.x + turn * ATTENTION_THREADS;
        const int row = i / (WIDTH / CODES), part = i % (WIDTH / CODES);
        // ANCHOR: widened
        // Eight lanes store together. Where they have one row of 16 chunks, half of them begin with their second chunk, or
        // they would use every second line of banks twice.
        for (int which = 0; which < 2; ++which) {
            const int half = which ^ part / 4 % 2;
            const u32 low = half ? codes.z : codes.x, high = half ? codes.w : codes.y;
            store_chunk(at<WIDTH>(tile, row, 2 * part + half), pack_codes<Code>(low, scale), pack_codes<Code>(low >> 16, scale),
                        pack_codes<Code>(high, scale), pack_codes<Code>(high >> 16, scale));
        }
        // ANCHOR_END: widened
    }
};

// Two rows' softmax over the keys of a split so far, as one lane of a warp holds it: rows l / 4 and l / 4 + 8 of sixteen.
struct Softmax {
    float highest[2];
    float sum[2];  // the lane's share until close()

    __device__ __forceinline__ void clear() {
        for (int row = 0; row < 2; ++row) highest[row] = negative_infinity(), sum[row] = 0.0f;
    }

    // Raises `highest`, and gives what all sums so far are to be multiplied with.
    __device__ __forceinline__ void raise(const float (&to)[2], float scale, float (&rescale)[2]) {
        for (int row = 0; row < 2; ++row) {
            rescale[row] = rescale_of(highest[row], scale, base_of(to[row], scale));
            highest[row] = to[row];
        }
    }

    // Turns a tile's scores [16][TILE] into weights, and raises `highest` by them.
    __device__ __forceinline__ void weigh(float (&scores)[TILE / 8][4], float scale, float (&rescale)[2]) {
        float to[2] = {highest[0], highest[1]};
        for (int row = 0; row < 2; ++row) {
            for (int i = 0; i < TILE / 8; ++i) to[row] = fmaxf(to[row], fmaxf(scores[i][2 * row], scores[i][2 * row + 1]));
            for (int step = 1; step < 4; step *= 2) to[row] = fmaxf(to[row], __shfl_xor_sync(ALL_LANES, to[row], step));
        }
        raise(to, scale, rescale);
        const float base[2] = {base_of(to[0], scale), base_of(to[1], scale)};
        for (int i = 0; i < TILE / 8; ++i)
            for (int e = 0; e < 4; ++e) scores[i][e] = weight_of(scores[i][e], scale, base[e / 2]);
    }

    // Adds a tile's weights [16][TILE], as A's operands. The weights that are summed are the rounded ones, those that the
    // values are multiplied with.
    __device__ __forceinline__ void add(const u32 (&weights)[TILE / 16][4], const float (&rescale)[2]) {
        for (int row = 0; row < 2; ++row) {
            sum[row] = __fmul_rn(sum[row], rescale[row]);
            for (int step = 0; step < TILE / 16; ++step)
                for (int half = 0; half < 2; ++half) {
                    const u32 both = weights[step][row + 2 * half];
                    sum[row] = __fadd_rn(__fadd_rn(sum[row], low_half(both)), high_half(both));
                }
        }
    }

    // After a split's last tile: the four lanes of a row add up.
    __device__ __forceinline__ void close() {
        for (int row = 0; row < 2; ++row)
            for (int step = 1; step < 4; step *= 2) {
                sum[row] = __fadd_rn(sum[row], __shfl_xor_sync(ALL_LANES, sum[row], step));
            }
    }
};

// A tile's weights [16][TILE] rounded, as A's operands.
__device__ __forceinline__ void pack_weights(u32 (&to)[TILE / 16][4], const float (&weights)[TILE / 8][4]) {
    for (int i = 0; i < TILE / 8; ++i)
        for (int row = 0; row < 2; ++row) to[i / 2][row + 2 * (i % 2)] = pack(weights[i][2 * row], weights[i][2 * row + 1]);
}

// ANCHOR: join
// Joins a split with those before it: what they and it are multiplied with.
struct Join {
    float before, split;

    Join() = default;
    __device__ __forceinline__ Join(float highest_before, float highest_split, float scale) {
        const float base = base_of(fmaxf(highest_before, highest_split), scale);
        before = rescale_of(highest_before, scale, base);
        split = rescale_of(highest_split, scale, base);
    }
    __device__ __forceinline__ float operator()(float value_before, float value_split) const {
        return __fmaf_rn(value_split, split, __fmul_rn(value_before, before));
    }
};
// ANCHOR_END: join

// Sixteen rows of a tile, from `row` on.
struct Rows {
    bf16* tile;
    int row;
};

// What attention sums over the keys of a split so far: the softmax, and of COLUMNS columns of the output the lane's share.
template <int COLUMNS>
struct Part {
    Softmax softmax;
    float out[COLUMNS / 8][4];

    __device__ __forceinline__ void clear() {
        softmax.clear();
        for (int i = 0; i < COLUMNS / 8; ++i)
            for (int e = 0; e < 4; ++e) out[i][e] = 0.0f;
    }
    __device__ __forceinline__ void rescale_out(const float (&rescale)[2]) {
        for (int i = 0; i < COLUMNS / 8; ++i)
            for (int e = 0; e < 4; ++e) out[i][e] = __fmul_rn(out[i][e], rescale[e / 2]);
    }

    // Adds a tile: weights [16][TILE] as A's operands; sixteen(i), where values 16 * i.. are, in rows of WIDTH elements, of
    // which those from `column` on are taken.
    template <int WIDTH, class Sixteen>
    __device__ __forceinline__ void add(const u32 (&weights)[TILE / 16][4], const float (&rescale)[2], Sixteen sixteen,
                                        int column) {
        softmax.add(weights, rescale);
        rescale_out(rescale);
#pragma unroll
        for (int step = 0; step < TILE / 16; ++step) {
            const Rows values = sixteen(step);
#pragma unroll
            for (int i = 0; i < COLUMNS / 16; ++i) {
                u32 b[4];
                load_columns_transposed<WIDTH>(b, values.tile, values.row, column + 16 * i);
                multiply_add(out[2 * i], weights[step], b[0], b[1]);
                multiply_add(out[2 * i + 1], weights[step], b[2], b[3]);
            }
        }
    }

    // Joins a split that was closed with those before it, which this is. A split of which nothing is seen changes nothing.
    __device__ __forceinline__ void join(const Softmax& split, const float (&split_out)[COLUMNS / 8][4], float scale) {
        for (int row = 0; row < 2; ++row) {
            if (split.sum[row] == 0.0f) continue;
            const Join join(softmax.highest[row], split.highest[row], scale);
            softmax.highest[row] = fmaxf(softmax.highest[row], split.highest[row]);
            softmax.sum[row] = join(softmax.sum[row], split.sum[row]);
            for (int i = 0; i < COLUMNS / 8; ++i)
                for (int e = 2 * row; e < 2 * row + 2; ++e) out[i][e] = join(out[i][e], split_out[i][e]);
        }
    }
};

__device__ __forceinline__ float inverse(float sum) { return sum > 0.0f ? __frcp_rn(sum) : 0.0f; }

// Masks scores [16][8 * COUNT], of which the lane has rows l / 4 and l / 4 + 8: `seen` are the bits of these rows' keys.
template <int COUNT>
__device__ __forceinline__ void mask(float (&scores)[COUNT][4], u64 seen, u64 seen_below) {
    const int first = threadIdx.x % 4 * 2;
    const u64 of_row[2] = {seen >> first, seen_below >> first};
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
        for (int e = 0; e < 4; ++e)
            if (!(of_row[e / 2] >> (8 * i + e % 2) & 1)) scores[i][e] = negative_infinity();
}

// Scores of 16 queries against 16 * COUNT keys, rows `query`.. and `key`.. of the tiles.
template <int WIDTH, int COUNT>
__device__ __forceinline__ void scores_of(float (&scores)[2 * COUNT][4], bf16* queries, int query, bf16* keys, int key) {
    for (int i = 0; i < 2 * COUNT; ++i)
        for (int e = 0; e < 4; ++e) scores[i][e] = 0.0f;
#pragma unroll
    for (int step = 0; step < WIDTH / 16; ++step) {
        u32 a[4];
        load_rows<WIDTH>(a, queries, query, step);
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            u32 b[4];
            load_columns<WIDTH>(b, keys, key + 16 * i, step);
            multiply_add(scores[2 * i], a, b[0], b[1]);
            multiply_add(scores[2 * i + 1], a, b[2], b[3]);
        }
    }
}

// Queries [rows][heads][WIDTH] into a tile of COUNT rows: row m is query m / group, head m % group of the kv head, so
// that all heads that read the same keys meet them together. Zeros behind the last.
template <int WIDTH, int COUNT, int THREADS_OF_BLOCK = ATTENTION_THREADS>
__device__ __forceinline__ void load_queries(bf16* tile, const bf16* queries, int start, int first, int packed, int group,
                                             int heads, int kv_head) {
#pragma unroll 1
    for (int turn = 0; turn < COUNT * WIDTH / CHUNK / THREADS_OF_BLOCK; ++turn) {
        const int i = threadIdx.x + turn * THREADS_OF_BLOCK;
        const int row = i / (WIDTH / CHUNK), chunk = i % (WIDTH / CHUNK), m = first + row;
        const bool there = m < packed;
        const bf16* from = queries;
        if (there) {
            const size_t query = start + m / group;
            from += (query * heads + kv_head * group + m % group) * WIDTH + chunk * CHUNK;
        }
        copy_async(at<WIDTH>(tile, row, chunk), from, there);
    }
}
