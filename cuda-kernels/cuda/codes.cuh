// Numbers that are stored in a byte or in half of one, and how they become bfloat16.
#pragma once
#include "tensor_core.cuh"

// Signed bytes.
struct Int8 {
    typedef signed char Stored;
    static constexpr float LARGEST = 127.0f;

    static __device__ __forceinline__ float number(u32 byte) { return static_cast<signed char>(byte); }
    static __device__ __forceinline__ Stored code(float x) { return static_cast<Stored>(__float2int_rn(x)); }
};

// FP8: a sign, four bits of exponent with bias 7, three of significand; 0x7f and 0xff are no numbers, and nothing is infinite
// (E4M3, arXiv 2209.05433). Devices convert it by themselves from compute capability 8.9 on; here it is done in whole
// numbers and one exact product, on all of them.
struct E4m3 {
    typedef unsigned char Stored;
    static constexpr u32 NOT_A_NUMBER = 0x7f;
    static constexpr float LARGEST = 448.0f;

    // Exponent and significand in the place of f32's are the number times 2^(7 - 127), those without a leading 1 included.
    static __device__ __forceinline__ float number(u32 byte) {
        const u32 size = byte & 0x7f;
        const float number = __fmul_rn(__uint_as_float(size << 20 | (byte & 0x80) << 24), 0x1p120f);
        return size == NOT_A_NUMBER ? __uint_as_float(0x7fffffffu) : number;
    }
    // The nearest, ties to even; the largest there is where x is larger still.
    static __device__ __forceinline__ Stored code(float x) {
        const u32 bits = __float_as_uint(x), size = bits & 0x7fffffff;
        u32 code;
        if (size > 0x7f800000) {
            code = NOT_A_NUMBER;
        } else if (size >= __float_as_uint(LARGEST)) {
            code = NOT_A_NUMBER - 1;
        } else if (size < __float_as_uint(0x1p-6f)) {
            // Steps of 2^-9; the eighth is the first number with a leading 1.
            code = __float2uint_rn(__fmul_rn(__uint_as_float(size), 0x1p9f));
        } else {
            // Of the significand's 23 bits three stay: half of the last of them is added, a little less to an even one.
            code = ((size + 0x7ffff + (size >> 20 & 1)) >> 20) - ((127 - 7) << 3);
        }
        return code | (bits >> 24 & 0x80);
    }
};

// Four bits: a whole number from -8 to 7, stored as eight more than that, in the lower half of a byte.
struct Int4 {
    // 2^23 plus the four bits is a float with the four bits at the end of its significand: no conversion is needed.
    static __device__ __forceinline__ float number(u32 byte) {
        return __fsub_rn(__uint_as_float(0x4b000000u | (byte & 15)), 8388616.0f);  // 2^23 + 8
    }
};

// A number in IEEE's half precision.
__device__ __forceinline__ float from_half(unsigned short bits) {
    float number;
    asm("cvt.f32.f16 %0, %1;" : "=f"(number) : "h"(bits));
    return number;
}

// The numbers of two bytes times a scale, rounded to bfloat16.
template <class Code>
__device__ __forceinline__ u32 pack_codes(u32 bytes, float scale) {
    return pack(Code::number(bytes & 0xff) * scale, Code::number(bytes >> 8 & 0xff) * scale);
}
