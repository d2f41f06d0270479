//! ggml's IQ4: a code of four bits is a place in a list of sixteen numbers, which lie closer about zero.

use super::dequantise::{half_at, nibbles};

/// The list.
const LISTED: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// What the list has for the 32 codes in 16 bytes.
#[inline(always)]
pub(super) fn listed(codes: &[u8]) -> [i8; 32] {
    nibbles(codes).map(|code| LISTED[code as usize & 0xf])
}

/// scale, 16 bytes of halves
pub(super) fn iq4_nl(block: &[u8; 18], numbers: &mut [f32; 32]) {
    let scale = half_at(block, 0);
    *numbers = listed(&block[2..]).map(|number| scale * number as f32);
}

/// Scale of scales, upper pairs of bits of eight scales, their lower halves in four bytes, 128 bytes of halves: 32 numbers to
/// every 16 of those.
pub(super) fn iq4_xs(block: &[u8; 136], numbers: &mut [f32; 256]) {
    for (group, numbers) in numbers.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let scale = scale(block, group);
        *numbers = listed(&block[8 + 16 * group..]).map(|number| scale * number as f32);
    }
}

/// The scale of 32 numbers of an IQ4_XS block: a product that f32 has exactly.
pub(super) fn scale(block: &[u8; 136], group: usize) -> f32 {
    let high = u16::from_le_bytes([block[2], block[3]]) >> (2 * group) & 3;
    let low = block[4 + group / 2] >> (4 * (group % 2)) & 0xf;
    half_at(block, 0) * ((low as u16 | high << 4) as f32 - 32.0)
}

#[cfg(test)]
mod tests {
    use crate::blocks::{BlockType, dequantise};

    fn bytes(hexadecimal: &str) -> Vec<u8> {
        let digits = hexadecimal.as_bytes().as_chunks::<2>().0.iter();
        digits.map(|two| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap()).collect()
    }

    /// Blocks of SmolLM2 as llama.cpp quantised it, and their numbers as gguf 0.19.0, a package of Python's, reads them.
    #[test]
    fn numbers_are_those_that_another_reader_finds() {
        let block = "f921a7ca85769879a98b8ce9899088699799";
        let expected = [
            -15290, 38225, -53515, -33638, 1529, 19877, 19877, 58102, 81037, 19877, 19877, -194183,
            1529, 19877, -15290, 19877, 38225, 81037, 1529, -15290, 19877, -15290, 38225, 1529,
            1529, 136081, 1529, 19877, 1529, -33638, 19877, 19877,
        ];
        let numbers = dequantise(BlockType::Iq4Nl, &bytes(block));
        assert_eq!(numbers, expected.map(|it| it as f32 * 2f32.powi(-17)));

        let block = "898937330460f901862d6b9695a4d85844508ea88a58a8c30a473c08a7c304afed78be78b42bb2ef\
            8fdf52aedac3cb5d180acf84add2315d69ea6c67576e5952697566aa76666b07076ddb6766d66587\
            98095bc778c838c9e9dd82a61c59660e8895628ce311bb3aab597d77fda965e2b5962a09cc317c17\
            0864c966485966be8965cab89984995d";
        // The first, the sixteenth, the seventeenth and the last of each 32.
        let expected = [
            623480, 1842100, -28340, -1502020, 566800, 2561936, -2879344, 2017808, -2561936,
            -1564368, -22672, 793520, 478946, -368420, -810524, -4678934, 354250, -460525, 4498975,
            -1877525, 313157, 602225, 2143921, -1565785, -915382, 240890, -602225, 2505256, 45344,
            3128736, -5758688, -1587040,
        ];
        let numbers = dequantise(BlockType::Iq4Xs, &bytes(block));
        let found = numbers.chunks(32).flat_map(|group| [0, 15, 16, 31].map(|i| group[i]));
        assert_eq!(found.collect::<Vec<_>>(), expected.map(|it| it as f32 * 2f32.powi(-23)));
    }
}
