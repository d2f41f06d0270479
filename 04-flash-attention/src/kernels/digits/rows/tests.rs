//! Products of rows in digits against whole numbers.

use super::*;

/// Numbers of many sizes, and as many codes, the smallest and the largest among them.
fn rows_and_codes(rows: usize, width: usize, codes: usize) -> (Vec<Vec<f32>>, Vec<Code>) {
    let number = |i: usize| ((i * 37 % 301) as f32 - 150.0) * 0.01 * 3f32.powi((i % 5) as i32);
    let row = |r: usize| (0..width).map(|i| number(r * 1000 + i)).collect();
    let codes = (0..codes).map(|i| Code::new((i * 89 % 255) as u8 as i8 ^ -128)).collect();
    ((0..rows).map(row).collect(), codes)
}

/// A row's steps, and the scale of one.
fn steps(row: &[f32]) -> (Vec<i64>, f32) {
    let largest = row.iter().fold(0f32, |most, x| most.max(x.abs()));
    let step = |x: &f32| (x * (MOST / largest)).round_ties_even() as i64;
    (row.iter().map(step).collect(), largest * (1.0 / MOST))
}

fn sum(steps: &[i64], code: impl Fn(usize) -> Code) -> f32 {
    let products = steps.iter().enumerate().map(|(i, step)| step * i64::from(code(i).value()));
    products.sum::<i64>() as f32
}

fn meets<const R: usize>(simd: Simd, width: usize, tiles: usize) {
    const BY: f32 = 0.3;
    let (rows, codes) = rows_and_codes(R + 1, width, tiles * width * OUTPUTS);
    let mut digits = DigitRows::default();
    digits.push(simd, [&rows[R][..]]); // another handful comes before
    digits.push::<R>(simd, std::array::from_fn(|r| &rows[r][..]));
    let lists: Vec<_> = codes.chunks(width * OUTPUTS).map(|tile| tile.as_chunks().0).collect();
    for after in [None, Some(&[&codes[..1]][..]), Some(&[])] {
        let mut found = vec![[0.0; OUTPUTS]; R * tiles];
        digits.meet::<R>(simd, 1, (&lists, after), BY, &mut found);
        for (i, found) in found.as_flattened().iter().enumerate() {
            let (r, tile, output) = (i / OUTPUTS / tiles, i / OUTPUTS % tiles, i % OUTPUTS);
            let (steps, scale) = steps(&rows[r]);
            let code = |k: usize| lists[tile].as_flattened()[k / 4 * 64 + output * 4 + k % 4];
            let expected = sum(&steps, code) * (scale * BY);
            let what = format!("{simd:?}: row {r} of {R}, tile {tile} of {tiles}, {output}");
            assert_eq!(found.to_bits(), expected.to_bits(), "{what}");
        }
    }
}

fn adds<const R: usize>(simd: Simd, columns: usize, tiles: usize) {
    let (places, tile) = (tiles * OUTPUTS, columns * OUTPUTS);
    let (rows, codes) = rows_and_codes(R, places, tiles * tile);
    let mut digits = DigitRows::default();
    digits.push::<R>(simd, std::array::from_fn(|r| &rows[r][..]));
    let lists: Vec<&[Code]> = codes.chunks(tile).collect();
    for asks in [false, true] {
        let mut found = vec![0.0; R * columns];
        digits.add::<R>(simd, 0, &lists, (columns, asks), &mut found);
        for (i, found) in found.iter().enumerate() {
            let (r, column) = (i / columns, i % columns);
            let (steps, scale) = steps(&rows[r]);
            let code = |place: usize| {
                lists[place / 16][(place % 16 / 4 * columns + column) * 4 + place % 4]
            };
            let expected = sum(&steps, code) * scale;
            let what = format!("{simd:?}: row {r} of {R}, column {column} of {columns}");
            assert_eq!(found.to_bits(), expected.to_bits(), "{what}, {tiles} tiles");
        }
    }
}

#[test]
fn every_instruction_set_finds_the_same_sums() {
    for simd in Simd::available() {
        for width in [4, 20, 64] {
            for tiles in [1, 2, 3, 4, 7] {
                meets::<1>(simd, width, tiles);
                meets::<2>(simd, width, tiles);
                meets::<3>(simd, width, tiles);
                meets::<4>(simd, width, tiles);
            }
        }
        for columns in [16, 32, 48, 112] {
            for tiles in [1, 2, 5] {
                adds::<1>(simd, columns, tiles);
                adds::<2>(simd, columns, tiles);
                adds::<3>(simd, columns, tiles);
                adds::<4>(simd, columns, tiles);
            }
        }
    }
}

#[test]
fn the_largest_sums_are_whole() {
    let width = MOST_SUMMED / STEP * STEP;
    for simd in Simd::available() {
        for (x, code) in [(1.0, 127), (1.0, -127), (-1.0, 127), (-1.0, -127)] {
            let mut digits = DigitRows::default();
            digits.push(simd, [&vec![x; width][..]]);
            let mut found = [[0.0; OUTPUTS]];
            let tile = vec![[Code::new(code); OUTPUTS]; width];
            digits.meet::<1>(simd, 0, (&[&tile[..]], None), 1.0, &mut found);
            let sum = width as i64 * 16_319 * x as i64 * i64::from(code);
            assert_eq!(found[0], [sum as f32 * (1.0 / MOST); OUTPUTS], "{simd:?}: {x}, {code}");
        }
    }
}

#[test]
fn rows_that_are_no_numbers_or_next_to_nothing_say_so() {
    for simd in Simd::available() {
        for (x, zero) in [(f32::NAN, false), (f32::INFINITY, false), (1e-31, true)] {
            let mut digits = DigitRows::default();
            digits.push(simd, [&[1.0; 4][..], &[0.0, x, 0.0, 0.0]]);
            let mut found = [[0.0; OUTPUTS]; 2];
            let tile = [[Code::new(1); OUTPUTS]; 4];
            digits.meet::<2>(simd, 0, (&[&tile[..]], None), 1.0, &mut found);
            let one = (4 * 16_319) as f32 * (1.0 * (1.0 / MOST));
            assert_eq!(found[0], [one; OUTPUTS], "{simd:?}");
            assert_eq!(found[1][0].is_nan(), !zero, "{simd:?}: {x}");
            assert!(!zero || found[1] == [0.0; OUTPUTS], "{simd:?}: {x}");
        }
    }
}

/// Digits of what is no number are anything, and their sums more than 32 bits hold.
#[test]
fn long_rows_that_are_no_numbers_say_so() {
    const WIDTH: usize = 600;
    for simd in Simd::available() {
        for x in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut digits = DigitRows::default();
            digits.push(simd, [&[1.0; WIDTH][..], &[x; WIDTH]]);
            let mut found = [[0.0; OUTPUTS]; 2];
            let tile = [[Code::new(1); OUTPUTS]; WIDTH];
            digits.meet::<2>(simd, 0, (&[&tile[..]], None), 1.0, &mut found);
            let one = (WIDTH * 16_319) as f32 * (1.0 * (1.0 / MOST));
            assert_eq!(found[0], [one; OUTPUTS], "{simd:?}");
            assert!(found[1].iter().all(|found| found.is_nan()), "{simd:?}: {x}");
        }
    }
}

#[test]
#[should_panic = "rows of one width"]
fn rows_of_several_widths_are_refused() {
    DigitRows::default().push(Simd::available()[0], [&[0.0; 8][..], &[0.0; 4]]);
}

#[test]
#[should_panic = "a width of a row in digits"]
fn rows_whose_sums_32_bits_do_not_hold_are_refused() {
    DigitRows::default().push(Simd::available()[0], [&[0.0; MOST_SUMMED / STEP * STEP + STEP]]);
}

#[test]
fn a_tile_is_turned_as_far_as_there_are_columns() {
    for simd in Simd::available() {
        for (inputs, width) in [(4, 16), (20, 16), (64, 32), (32, 32)] {
            let (_, codes) = rows_and_codes(0, 0, inputs * OUTPUTS);
            let mut found = vec![Code::default(); OUTPUTS * width];
            turn(simd, codes.as_chunks().0, width, &mut found);
            for (i, &found) in found.iter().enumerate() {
                let (place, column) = (i / 4 / width * 4 + i % 4, i / 4 % width);
                let lies = column / 4 * 64 + place * 4 + column % 4;
                let expected = if column < inputs { codes[lies] } else { Code::default() };
                assert_eq!(found, expected, "{simd:?}: {inputs} inputs, {place}, {column}");
            }
        }
    }
}

#[test]
#[should_panic]
fn a_tile_is_as_long_as_a_row() {
    let (simd, codes) = (Simd::available()[0], [Code::new(1); 32 * OUTPUTS]);
    let mut digits = DigitRows::default();
    digits.push(simd, [&[1.0; 64][..]]);
    digits.meet::<1>(simd, 0, (&[codes.as_chunks().0], None), 1.0, &mut [[0.0; OUTPUTS]]);
}

#[test]
#[should_panic(expected = "blocks of a row")]
fn there_are_as_many_tiles_as_a_row_has_numbers() {
    let (simd, codes) = (Simd::available()[0], [Code::new(1); OUTPUTS * OUTPUTS]);
    let mut digits = DigitRows::default();
    digits.push(simd, [&[1.0; 128][..]]);
    digits.add::<1>(simd, 0, &[&codes[..]], (OUTPUTS, false), &mut [0.0; OUTPUTS]);
}
