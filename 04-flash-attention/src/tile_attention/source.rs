//! Where tiles lie.

use super::element::TileElement;
use super::run::Run;
use naive_decode::KvSize;
use naive_decode::numerics::LANES;
use std::ops::Range;

// ANCHOR: source
/// Keys and values of one layer's sequences, somewhere in memory.
pub trait TileSource: Sync {
    /// What they are kept as.
    type Element: TileElement;

    /// Heads and widths.
    fn size(&self) -> KvSize;

    /// Whether the sixteen slots of a tile lie together. If not, whoever reads copies slot by slot.
    fn has_whole_tiles(&self) -> bool;

    /// What lies together in memory around `slot`, from the beginning of a tile on. Asked for only where
    /// tiles are whole, and for slots that hold something.
    fn run(&self, sequence: usize, kv_head: usize, slot: usize) -> Run<'_, Self::Element>;

    /// Copies one slot's key and value; leaves the copy as it is where the slot holds nothing any more.
    fn gather(
        &self,
        sequence: usize,
        kv_head: usize,
        slot: usize,
        copy: Gathered<'_, Self::Element>,
    );

    /// Says what lies where some slots' keys and values of the next layer are, all heads'. It is only asked for, never read, and
    /// not all of it has to be said.
    fn next_layer(&self, _sequence: usize, _slots: Range<usize>, _say: impl FnMut(&[u8])) {}
}
// ANCHOR_END: source

/// Room for one slot's key and value among others.
pub struct Gathered<'a, E> {
    /// `[D][16]`: the tile that the key is a lane of.
    pub(super) keys: &'a mut [[E; LANES]],
    /// Which lane.
    pub(super) lane: usize,
    /// `[16][width]`: the tile of the value; none if a value is the beginning of its key.
    pub(super) values: &'a mut [E],
    /// Scales of key and value, where numbers are codes.
    pub(super) scales: Option<(&'a mut f32, &'a mut f32)>,
}

impl<E: TileElement> Gathered<'_, E> {
    /// Copies a key `[D]`, a value `[width]`, and their scales if numbers are codes.
    pub fn fill(
        self,
        key: impl Fn(usize) -> E,
        value: impl Fn(usize) -> E,
        scales: impl FnOnce() -> (f32, f32),
    ) {
        let width = self.values.len() / LANES;
        for d in 0..self.keys.len() {
            self.keys.as_flattened_mut()[E::key_at(LANES, self.lane, d)] = key(d);
        }
        for column in 0..width {
            self.values[E::value_at(LANES, width, self.lane, column)] = value(column);
        }
        if let Some((of_key, of_value)) = self.scales {
            (*of_key, *of_value) = scales();
        }
    }
}
