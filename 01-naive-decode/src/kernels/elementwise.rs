//! Loops over single numbers: what stands between matrices.
//!
//! Plain loops, which the compiler turns into each instruction set's own.

use super::{Isa, Kernel, Vector};
use crate::numerics::{Element, LANES, exp, gelu, rms_norm_row, silu, tanh};

/// SwiGLU's gate: `gate = silu(gate) · up`, element by element.
///
/// # Panics
/// If the two differ in length.
pub fn silu_gate(isa: Isa, gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len(), "a gate for each value");
    isa.run(SiluGate { gate, up });
}

struct SiluGate<'a> {
    gate: &'a mut [f32],
    up: &'a [f32],
}

impl Kernel for SiluGate<'_> {
    type Result = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        for (g, &u) in self.gate.iter_mut().zip(self.up) {
            *g = silu(*g) * u;
        }
    }
}

/// `e^x` of each number, as [`numerics::exp`](crate::numerics::exp) has it.
pub fn exponentials(isa: Isa, numbers: &mut [f32]) {
    isa.run(Exponentials { numbers });
}

struct Exponentials<'a> {
    numbers: &'a mut [f32],
}

impl Kernel for Exponentials<'_> {
    type Result = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        for number in self.numbers {
            *number = exp(*number);
        }
    }
}

/// The highest number, -inf if there is none; nothing if one of them is NaN or +inf.
pub fn highest(isa: Isa, numbers: &[f32]) -> Option<f32> {
    isa.run(Highest { numbers })
}

struct Highest<'a> {
    numbers: &'a [f32],
}

impl Kernel for Highest<'_> {
    type Result = Option<f32>;

    #[inline(always)]
    unsafe fn run<V: Vector>(self) -> Option<f32> {
        let (mut high, mut are_below) = ([f32::NEG_INFINITY; LANES], [u32::MAX; LANES]);
        let mut look = |numbers: &[f32]| {
            for ((high, are_below), &x) in high.iter_mut().zip(&mut are_below).zip(numbers) {
                *high = if x > *high { x } else { *high };
                *are_below &= if x < f32::INFINITY { u32::MAX } else { 0 };
            }
        };
        let (whole, rest) = self.numbers.as_chunks::<LANES>();
        whole.iter().for_each(|numbers| look(numbers));
        look(rest);
        let all = are_below.iter().all(|&are_below| are_below != 0);
        all.then(|| high.into_iter().fold(f32::NEG_INFINITY, f32::max))
    }
}

/// A row of the residual stream with what is added to it, `x += made`, and the sum RMS-normed, `made = norm(x) · weight`, or as it
/// is where there is no weight.
///
/// # Panics
/// If they differ in length.
pub fn add_norm(isa: Isa, x: &mut [f32], made: &mut [f32], weight: Option<&[f32]>, epsilon: f32) {
    let width = weight.map_or(x.len(), <[f32]>::len);
    assert!(x.len() == made.len() && x.len() == width, "a number for each weight");
    isa.run(AddNorm { x, made, weight, epsilon });
}

struct AddNorm<'a> {
    x: &'a mut [f32],
    made: &'a mut [f32],
    weight: Option<&'a [f32]>,
    epsilon: f32,
}

impl Kernel for AddNorm<'_> {
    type Result = ();

    #[inline(always)]
    // ANCHOR: add_norm
    unsafe fn run<V: Vector>(self) {
        for (x, made) in self.x.iter_mut().zip(self.made.iter_mut()) {
            *x += *made;
            *made = *x;
        }
        if let Some(weight) = self.weight {
            rms_norm_row(self.made, weight, self.epsilon);
        }
    }
    // ANCHOR_END: add_norm
}

/// RMSNorm of rows of `weight.len()` numbers, in place, as [`numerics::rms_norm`](crate::numerics::rms_norm) has it.
///
/// # Panics
/// If there are numbers beside whole rows.
pub fn norm_rows(isa: Isa, rows: &mut [f32], weight: &[f32], epsilon: f32) {
    assert!(rows.len().is_multiple_of(weight.len()), "whole rows");
    isa.run(NormRows { rows, weight, epsilon });
}

struct NormRows<'a> {
    rows: &'a mut [f32],
    weight: &'a [f32],
    epsilon: f32,
}

impl Kernel for NormRows<'_> {
    type Result = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        for row in self.rows.chunks_exact_mut(self.weight.len()) {
            rms_norm_row(row, self.weight, self.epsilon);
        }
    }
}

/// `sums + by · row`, number by number, each rounded once.
///
/// # Panics
/// If the two differ in length.
pub fn add_times(isa: Isa, sums: &mut [f32], by: f32, row: &[f32]) {
    assert_eq!(sums.len(), row.len(), "a number for each sum");
    isa.run(AddTimes { sums, by, row });
}

struct AddTimes<'a> {
    sums: &'a mut [f32],
    by: f32,
    row: &'a [f32],
}

impl Kernel for AddTimes<'_> {
    type Result = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        for (sum, &number) in self.sums.iter_mut().zip(self.row) {
            *sum = self.by.mul_add(number, *sum);
        }
    }
}

/// Rounds keys or values to the type in which they are kept; says whether all are numbers then, and none infinite.
pub fn round_to(isa: Isa, element: Element, values: &mut [f32]) -> bool {
    isa.run(RoundTo { element, values })
}

struct RoundTo<'a> {
    element: Element,
    values: &'a mut [f32],
}

impl Kernel for RoundTo<'_> {
    type Result = bool;

    #[inline(always)]
    unsafe fn run<V: Vector>(self) -> bool {
        self.element.round(self.values);
        // Of all of them, whatever the first says: then many are looked at together.
        self.values.iter().fold(true, |finite, value| finite & value.is_finite())
    }
}

/// GeGLU's gate: `gate = gelu(gate) · up`, element by element.
///
/// # Panics
/// If the two differ in length.
pub fn gelu_gate(isa: Isa, gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len(), "a gate for each value");
    isa.run(GeluGate { gate, up });
}

struct GeluGate<'a> {
    gate: &'a mut [f32],
    up: &'a [f32],
}

impl Kernel for GeluGate<'_> {
    type Result = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        for (g, &u) in self.gate.iter_mut().zip(self.up) {
            *g = gelu(*g) * u;
        }
    }
}

/// Soft-capping (Bello et al. 2016; Gemma 2): `cap · tanh(value / cap)`, in place. Small values
/// stay as they are, no value gets past the cap.
pub fn soft_cap(isa: Isa, values: &mut [f32], cap: f32) {
    isa.run(SoftCap { values, cap });
}

struct SoftCap<'a> {
    values: &'a mut [f32],
    cap: f32,
}

impl Kernel for SoftCap<'_> {
    type Result = ();

    #[inline(always)]
    unsafe fn run<V: Vector>(self) {
        for v in self.values {
            *v = self.cap * tanh(*v / self.cap);
        }
    }
}
