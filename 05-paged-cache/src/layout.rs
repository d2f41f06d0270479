//! What a block contains: which layers' keys and values, and where in it.

use flash_attention::tile_attention::KvType;
use gqa_mla::{Maker, makers};
use naive_decode::numerics::LANES;
use naive_decode::{Error, KvSize, Model, Result};

/// Layers whose keys and values of the same tokens share a block, and a table.
///
/// In most models that is all of them. Layers with a window let go of blocks that the others still need, so
/// they are a group of their own; and since all blocks of a pool are of one size, groups have as many layers
/// each, as far as that comes out (vLLM's hybrid cache manager does the same).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// How many tokens back the furthest-seeing layer looks; everything if not said.
    pub window: Option<usize>,
    /// The layers, ascending.
    pub layers: Vec<usize>,
}

/// Where in its group's blocks a layer's keys and values are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LayerPlace {
    pub(crate) group: usize,
    pub(crate) size: KvSize,
    /// Numbers of a value, filled up to whole registers; 0 if a value is the beginning of its key.
    pub(crate) width: usize,
    /// First number of the keys, `[kv_heads][tokens / lanes][D][lanes]`.
    pub(crate) keys: usize,
    /// First number of the values, `[kv_heads][tokens][width]`.
    pub(crate) values: usize,
    /// First scale of the keys, `[kv_heads][tokens]`; meaningless unless numbers are codes.
    pub(crate) key_scales: usize,
    /// First scale of the values.
    pub(crate) value_scales: usize,
}

/// Whether layers with a window keep what lies behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behind {
    /// Blocks behind a window are given back.
    Freed,
    /// Every token stays, in all layers: what a cache needs whose blocks other requests will share.
    Kept,
}

/// What a pool's blocks contain.
#[derive(Debug, Clone)]
pub struct Layout {
    /// Tokens of a block.
    tokens: usize,
    groups: Vec<Group>,
    /// By layer; none for one that shares another's keys and values.
    layers: Vec<Option<LayerPlace>>,
    /// Numbers of a block.
    pub(crate) numbers: usize,
    /// Scales of a block; none unless numbers are codes.
    pub(crate) scales: usize,
    kept: KvType,
    bytes_per_token: usize,
}

impl Layout {
    /// The layout for a model's keys and values, `tokens` to a block.
    ///
    /// # Errors
    /// If `tokens` is not a power of two from 1 to 256, the model's first layer makes no keys and values, or some cannot be
    /// kept so.
    pub fn new(model: &Model, tokens: usize, kept: KvType, behind: Behind) -> Result<Self> {
        kept.check_made(model.kv_element)?;
        let mut made = makers(model)?;
        if behind == Behind::Kept {
            made.iter_mut().flatten().for_each(|maker| maker.window = None);
        }
        Layout::of(&made, tokens, kept)
    }

    /// The same for layers of these sizes and windows, whatever model they are of.
    ///
    /// # Errors
    /// If `tokens` is not a power of two from 1 to 256, no layer makes keys and values, or some have no heads or no numbers,
    /// or cannot be kept so.
    pub fn of(made: &[Option<Maker>], tokens: usize, kept: KvType) -> Result<Self> {
        check_block_tokens(tokens)?;
        let groups = groups(made);
        if groups.is_empty() {
            let what = "layers that make keys and values";
            return Err(Error::invalid(what, 0, "at least 1"));
        }
        for Maker { size, .. } in made.iter().flatten() {
            if size.heads == 0 || size.key_dim == 0 {
                let found = format!("{} heads of {} numbers", size.heads, size.key_dim);
                return Err(Error::invalid(
                    "keys of a layer",
                    found,
                    "at least 1 head of 1 number",
                ));
            }
            kept.check(*size)?;
        }
        let mut layers = vec![None; made.len()];
        let (mut most, mut most_scales) = (0, 0);
        for (index, group) in groups.iter().enumerate() {
            let (mut numbers, mut scales) = (0, 0);
            for &layer in &group.layers {
                let size = made[layer].expect("groups are of layers that make some").size;
                let width = size.value_dim.next_multiple_of(LANES);
                let slots = size.heads * tokens;
                let (keys, values) = (numbers, numbers + slots * size.key_dim);
                let (key_scales, apart) = (scales, if width > 0 { slots } else { 0 });
                // A value that is the beginning of its key has its key's scale.
                let value_scales = key_scales + apart;
                layers[layer] = Some(LayerPlace {
                    group: index,
                    size,
                    width,
                    keys,
                    values,
                    key_scales,
                    value_scales,
                });
                numbers = values + slots * width;
                scales = value_scales + slots;
            }
            (most, most_scales) = (most.max(numbers), most_scales.max(scales));
        }
        Ok(Layout {
            tokens,
            groups,
            layers,
            numbers: most,
            scales: if kept == KvType::Int8 { most_scales } else { 0 },
            kept,
            bytes_per_token: made.iter().flatten().map(|maker| kept.bytes(maker.size)).sum(),
        })
    }

    /// Tokens of a block.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Groups of layers, each with a table of its own.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// What keys and values are kept as.
    pub fn kept(&self) -> KvType {
        self.kept
    }

    /// Bytes of one block.
    pub fn block_bytes(&self) -> usize {
        self.numbers * self.kept.number_bytes() + self.scales * size_of::<f32>()
    }

    /// Bytes of one token's keys and values in all layers.
    pub fn bytes_per_token(&self) -> usize {
        self.bytes_per_token
    }

    /// Blocks for this many tokens of one group.
    pub fn blocks_for(&self, tokens: usize) -> usize {
        tokens.div_ceil(self.tokens)
    }

    /// Where all layers' own keys and values are.
    pub(crate) fn places(&self) -> impl Iterator<Item = &LayerPlace> {
        self.layers.iter().flatten()
    }

    /// Where those of the next layer after this one are that makes its own; of the first, after the last.
    pub(crate) fn next_layer(&self, layer: usize) -> LayerPlace {
        let (before, after) = self.layers.split_at(self.layers.len().min(layer + 1));
        *after.iter().chain(before).flatten().next().expect("some layer makes its own")
    }

    /// Where a layer's own keys and values are.
    ///
    /// # Errors
    /// If there is no such layer, or it makes none.
    pub(crate) fn layer(&self, layer: usize) -> Result<LayerPlace> {
        self.layers.get(layer).copied().flatten().ok_or_else(|| {
            let expected = "a layer that makes its own";
            Error::invalid("layer of keys and values", layer, expected)
        })
    }
}

/// Whether blocks can have so many tokens.
///
/// # Errors
/// If it is not a power of two from 1 to 256.
pub fn check_block_tokens(tokens: usize) -> Result<()> {
    if tokens.is_power_of_two() && tokens <= 256 {
        return Ok(());
    }
    Err(Error::invalid("block size in tokens", tokens, "a power of two from 1 to 256"))
}

/// Layers of equal windows together, as many to a group as the rarest window has layers.
fn groups(made: &[Option<Maker>]) -> Vec<Group> {
    let mut by_window: Vec<Group> = Vec::new();
    for (layer, maker) in made.iter().enumerate() {
        let Some(Maker { window, .. }) = *maker else { continue };
        match by_window.iter_mut().find(|group| group.window == window) {
            Some(group) => group.layers.push(layer),
            None => by_window.push(Group { window, layers: vec![layer] }),
        }
    }
    let each = by_window.iter().map(|group| group.layers.len()).min().unwrap_or(1);
    let chunks = |group: Group| -> Vec<Group> {
        let chunk = |layers: &[usize]| Group { window: group.window, layers: layers.to_vec() };
        group.layers.chunks(each).map(chunk).collect()
    };
    by_window.into_iter().flat_map(chunks).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use naive_decode::Element;

    const SIZE: KvSize = KvSize { heads: 2, key_dim: 8, value_dim: 16 };

    fn layout(windows: &[Option<Option<usize>>], tokens: usize, kept: KvType) -> Layout {
        let maker = |window: Option<usize>| Maker { size: SIZE, window };
        let made: Vec<_> = windows.iter().map(|window| window.map(maker)).collect();
        Layout::of(&made, tokens, kept).unwrap()
    }

    #[test]
    fn layers_of_one_window_share_a_block() {
        let full = Some(None);
        let near = Some(Some(64));
        let layout = layout(&[near, near, full, None, near, near, full], 16, Element::F32.into());
        let groups: Vec<_> = layout.groups().iter().map(|g| (g.window, &g.layers[..])).collect();
        let expected: [(_, &[usize]); 3] =
            [(Some(64), &[0, 1]), (Some(64), &[4, 5]), (None, &[2, 6])];
        assert_eq!(groups, expected);
        assert_eq!(layout.block_bytes(), 2 * 16 * SIZE.numbers() * 4);
        assert_eq!(layout.bytes_per_token(), 6 * SIZE.numbers() * 4);
    }

    #[test]
    fn codes_bring_their_scales() {
        let layout = layout(&[Some(None); 3], 4, KvType::Int8);
        let per_token = 3 * (SIZE.numbers() + 2 * SIZE.heads * 4);
        assert_eq!((layout.block_bytes(), layout.bytes_per_token()), (4 * per_token, per_token));
    }

    #[test]
    fn block_sizes_are_powers_of_two() {
        for tokens in [0, 3, 24, 512] {
            let said = Layout::of(&[], tokens, Element::F32.into()).unwrap_err().to_string();
            let expected = "expected a power of two from 1 to 256";
            assert_eq!(said, format!("block size in tokens is {tokens}, {expected}"));
        }
    }

    #[test]
    fn some_layer_makes_keys_and_values() {
        for made in [&[][..], &[None]] {
            let said = Layout::of(made, 16, Element::F32.into()).unwrap_err().to_string();
            assert_eq!(said, "layers that make keys and values is 0, expected at least 1");
        }
    }
}
