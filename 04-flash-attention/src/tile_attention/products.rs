//! The innermost step: a block of queries, or of their weights, meets some numbers that are loaded once for all of it.

use super::element::Widened;
use naive_decode::kernels::Vector;

/// Adds `factors[r] · numbers[t][h]` to each of the sums, of which there are `R · T · H` registers. `numbers` are `T` stretches
/// of `H` registers.
///
/// # Safety
/// The instruction set of `V` must be present, and every stretch as long as that.
#[inline(always)]
pub(super) unsafe fn add_products<
    E: Widened,
    V: Vector,
    const R: usize,
    const T: usize,
    const H: usize,
>(
    sums: &mut [[[V; H]; T]; R],
    factors: [f32; R],
    numbers: [&[E]; T],
) {
    // SAFETY: passed on.
    unsafe {
        // ANCHOR: products
        // What is fewer stays in registers while the other passes by. Twelve sums leave four of AVX2's sixteen: three factors
        // and one register of numbers, but not four of those and a factor.
        if const { R <= T * H } {
            let mut all = [V::splat(0.0); R];
            for r in 0..R {
                all[r] = V::splat(factors[r]);
            }
            for t in 0..T {
                for h in 0..H {
                    let number = E::load::<V>(&numbers[t][h * V::WIDTH..]);
                    for r in 0..R {
                        sums[r][t][h] = sums[r][t][h].add_product(all[r], number);
                    }
                }
            }
        } else {
            let mut all = [[V::splat(0.0); H]; T];
            for t in 0..T {
                for h in 0..H {
                    all[t][h] = E::load::<V>(&numbers[t][h * V::WIDTH..]);
                }
            }
            for r in 0..R {
                let factor = V::splat(factors[r]);
                for t in 0..T {
                    for h in 0..H {
                        sums[r][t][h] = sums[r][t][h].add_product(factor, all[t][h]);
                    }
                }
            }
        }
        // ANCHOR_END: products
    }
}
