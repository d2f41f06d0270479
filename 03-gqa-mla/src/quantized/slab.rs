//! The bytes of all tokens, heads, layers and sequences.

use super::codec::Codec;
use bytemuck::allocation::try_zeroed_vec;
use naive_decode::{Error, Result};

/// Tiles of codes in one allocation: `[sequences][layers][kv_heads][tiles][bytes]`.
pub(super) struct Slab {
    bytes: Vec<u8>,
    tile_bytes: usize,
    tiles: usize,
    kv_heads: usize,
    layers: usize,
}

impl Slab {
    /// Room for as many whole tiles as `capacity` tokens fill.
    ///
    /// # Errors
    /// If the system does not give that much.
    pub(super) fn new(
        codec: &dyn Codec,
        (layers, kv_heads): (usize, usize),
        capacity: usize,
        sequences: usize,
    ) -> Result<Self> {
        let (tiles, tile_bytes) = (capacity / codec.tokens(), codec.bytes());
        // More than can be counted is more than there is.
        let count = [sequences, layers, kv_heads, tiles]
            .into_iter()
            .fold(tile_bytes, usize::saturating_mul);
        // Where memory is refused, `vec!` would end the program.
        let bytes = try_zeroed_vec(count).map_err(|()| {
            Error::invalid("bytes of the codes", count, "no more than the system has to give")
        })?;
        Ok(Slab { bytes, tile_bytes, tiles, kv_heads, layers })
    }

    fn first(&self, (sequence, layer, kv_head): (usize, usize, usize), tile: usize) -> usize {
        // A tile past the end of one head would be the first of the next: never let it pass.
        assert!(
            layer < self.layers && kv_head < self.kv_heads && tile < self.tiles,
            "tile {tile} of head {kv_head} in layer {layer} is outside the cache"
        );
        let head = (sequence * self.layers + layer) * self.kv_heads + kv_head;
        (head * self.tiles + tile) * self.tile_bytes
    }

    pub(super) fn tile(&self, head: (usize, usize, usize), tile: usize) -> &[u8] {
        &self.bytes[self.first(head, tile)..][..self.tile_bytes]
    }

    pub(super) fn tile_mut(&mut self, head: (usize, usize, usize), tile: usize) -> &mut [u8] {
        let first = self.first(head, tile);
        &mut self.bytes[first..][..self.tile_bytes]
    }

    pub(super) fn allocated_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}
