// The rows of the embedding table that a batch's tokens name.
#include "common.cuh"

// out[row] = table[tokens[row]]; tokens: [rows], table: [vocabulary][width], out: [rows][width]. One block
// per row. A token outside of the vocabulary gives a row of NaN, which argmax refuses: never another's memory.
extern "C" __global__ void __launch_bounds__(THREADS)
embedding(bf16* __restrict__ out, const bf16* __restrict__ table, const u32* __restrict__ tokens,
          u32 vocabulary, int width) {
    const size_t row = static_cast<size_t>(blockIdx.x) * width;
    const u32 token = tokens[blockIdx.x];
    for (int i = threadIdx.x; i < width; i += THREADS) {
        out[row + i] = token < vocabulary ? table[static_cast<size_t>(token) * width + i] : bf16(0x7fc0);
    }
}
