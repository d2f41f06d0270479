// RMSNorm, alone and with the residual added first. One block per row, so a row's sum has the same order
// whatever else is in the batch.
#include "common.cuh"

// out[row][i] = x[row][i] / rms(x[row]) * weight[i]; x, out: [rows][width], weight: [width].
extern "C" __global__ void __launch_bounds__(THREADS)
rms_norm(bf16* __restrict__ out, const bf16* __restrict__ x, const bf16* __restrict__ weight, int width,
         float epsilon) {
    __shared__ float partial[WARPS];
    const size_t row = static_cast<size_t>(blockIdx.x) * width;
    float squares = 0.0f;
    for (int i = threadIdx.x; i < width; i += THREADS) {
        const float value = to_float(x[row + i]);
        squares += value * value;
    }
    const float scale = 1.0f / sqrtf(block_sum(squares, partial) / width + epsilon);
    for (int i = threadIdx.x; i < width; i += THREADS) {
        out[row + i] = to_bf16(to_float(x[row + i]) * scale * to_float(weight[i]));
    }
}

// residual[row] += x[row], rounded to bfloat16; then out[row] is the norm of what was stored. Each thread
// reads back only what it wrote itself, so nothing has to wait.
extern "C" __global__ void __launch_bounds__(THREADS)
add_rms_norm(bf16* __restrict__ out, bf16* __restrict__ residual, const bf16* __restrict__ x,
             const bf16* __restrict__ weight, int width, float epsilon) {
    __shared__ float partial[WARPS];
    const size_t row = static_cast<size_t>(blockIdx.x) * width;
    float squares = 0.0f;
    for (int i = threadIdx.x; i < width; i += THREADS) {
        const bf16 sum = to_bf16(to_float(residual[row + i]) + to_float(x[row + i]));
        residual[row + i] = sum;
        squares += to_float(sum) * to_float(sum);
    }
    const float scale = 1.0f / sqrtf(block_sum(squares, partial) / width + epsilon);
    for (int i = threadIdx.x; i < width; i += THREADS) {
        out[row + i] = to_bf16(to_float(residual[row + i]) * scale * to_float(weight[i]));
    }
}
