//! Packed matrices: a row by itself and in company, and what comes after one in memory.

use super::*;
use crate::kernels::LINE;
use crate::kernels::Simd;
use crate::packed::Memory;
use crate::threads::Pool;
use ndarray::Axis;

#[test]
fn a_thread_that_has_read_its_part_of_a_matrix_asks_for_that_of_the_next() {
    let (simd, pool, memory) = (Simd::available()[0], Pool::new(1), Memory::new(1));
    let pack = |format| {
        let weights = [0.5; 20 * 36];
        PackedLinear::from_floats(format, &weights, 20, 36, simd, &pool, &memory).unwrap()
    };
    let matrices = [Format::Q8_0, Format::F32, Format::Int8].map(pack);
    for (matrix, after) in matrices.iter().zip(&matrices[1..]) {
        matrix.apply(Array2::ones((1, 36)).view());
        let (at, _) = ahead::next();
        let to_next = after.shares[0].bytes().as_ptr().addr() - at.addr();
        assert!(to_next < LINE, "{to_next} bytes");
    }
}

#[test]
fn a_row_has_the_same_bits_in_any_block_wherever_panels_come_from() {
    // Seven panels, of which a call takes four, two and one.
    let (outputs, inputs, pool, memory) = (7 * LANES - 3, 70, Pool::new(1), Memory::new(1));
    let number = |i: usize| ((i * 7919 + 13) % 1009) as f32 / 257.0 - 2.0;
    let weights: Vec<f32> = (0..outputs * inputs).map(number).collect();
    for (simd, format) in Simd::available()
        .into_iter()
        .flat_map(|simd| Format::ALL.into_iter().map(move |format| (simd, format)))
    {
        let matrix =
            PackedLinear::from_floats(format, &weights, outputs, inputs, simd, &pool, &memory)
                .unwrap();
        let x = Array2::from_shape_fn((44, inputs), |(row, i)| number(row * 31 + i * 3));
        let alone: Vec<f32> =
            x.rows().into_iter().flat_map(|row| matrix.apply(row.insert_axis(Axis(0)))).collect();
        for rows in (1..=15).chain([20, 31, 32, x.nrows()]) {
            let (x, alone) = (&x.as_slice().unwrap()[..rows * inputs], &alone[..rows * outputs]);
            for near in [false, true] {
                let mut out = vec![MaybeUninit::new(f32::NAN); alone.len()];
                by_family!(format, K => {
                    let x = Arranged::new::<K>(matrix.alone(near), x);
                    matrix.multiply_share(0, &x, &Disjoint::new(&mut out));
                });
                // SAFETY: numbers, all of them.
                let out = unsafe { written(&mut out) };
                let bits = bytemuck::cast_slice::<f32, u32>;
                let same = bits(out) == bits(alone);
                assert!(same, "{format:?} with {simd:?}: {rows} rows, near: {near}");
            }
        }
    }
}
