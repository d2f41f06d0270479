//! Codes of a few bits, packed without gaps: the first code in the lowest bits of the first byte.

/// Writes a code of `width` bits (at most 8) at bit `at`. The bits there must be zero.
///
/// # Panics
/// If the code does not fit `width` bits, or its place does not lie in `bytes`.
#[inline]
pub fn put(bytes: &mut [u8], at: usize, width: usize, code: u8) {
    assert!(width <= 8 && u16::from(code) < 1 << width, "a code of {width} bits, not {code}");
    let shifted = u16::from(code) << (at % 8);
    bytes[at / 8] |= shifted as u8;
    if at % 8 + width > 8 {
        bytes[at / 8 + 1] |= (shifted >> 8) as u8;
    }
}

/// Reads the code of `width` bits (at most 8) at bit `at`.
///
/// # Panics
/// If its place does not lie in `bytes`.
#[inline]
pub fn get(bytes: &[u8], at: usize, width: usize) -> u8 {
    let mut both = u16::from(bytes[at / 8]);
    if at % 8 + width > 8 {
        both |= u16::from(bytes[at / 8 + 1]) << 8;
    }
    (both >> (at % 8)) as u8 & ((1u16 << width) - 1) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_any_widths_come_back_and_fill_every_bit() {
        let widths = [3, 3, 2, 7, 1, 8, 5, 4, 6, 1];
        let codes: Vec<u8> = widths.iter().map(|&w| ((1u16 << w) - 1) as u8).collect();
        let mut bytes = [0; 5];
        let mut at = 0;
        for (&width, &code) in widths.iter().zip(&codes) {
            put(&mut bytes, at, width, code);
            at += width;
        }
        assert_eq!((at, bytes), (40, [255; 5]));
        let mut bytes = [0; 5];
        at = 0;
        for (i, &width) in widths.iter().enumerate() {
            put(&mut bytes, at, width, codes[i] & 0b0101_0101);
            at += width;
        }
        at = 0;
        for (i, &width) in widths.iter().enumerate() {
            assert_eq!(get(&bytes, at, width), codes[i] & 0b0101_0101, "code {i}");
            at += width;
        }
    }
}
