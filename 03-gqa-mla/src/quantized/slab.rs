//! The bytes of all tokens, heads, layers and sequences.

use super::codec::Codec;

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
    pub(super) fn new(
        codec: &dyn Codec,
        (layers, kv_heads): (usize, usize),
        capacity: usize,
        sequences: usize,
    ) -> Self {
        let (tiles, tile_bytes) = (capacity / codec.tokens(), codec.bytes());
        let bytes = vec![0; sequences * layers * kv_heads * tiles * tile_bytes];
        Slab { bytes, tile_bytes, tiles, kv_heads, layers }
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
