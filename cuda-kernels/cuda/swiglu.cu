// SwiGLU's gate: silu(gate) times up.
#include "common.cuh"

// out[row][i] = silu(gate[row][i]) * up[row][i], where x: [rows][2 * width] holds a row's gate and then its
// up, and out: [rows][width]. Grid: (ceil(width / THREADS), rows).
extern "C" __global__ void __launch_bounds__(THREADS)
swiglu(bf16* __restrict__ out, const bf16* __restrict__ x, int width) {
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= width) return;
    const size_t row = blockIdx.y;
    const float gate = to_float(x[row * 2 * width + i]);
    const float up = to_float(x[row * 2 * width + width + i]);
    out[row * width + i] = to_bf16(silu_times(gate, up));
}
