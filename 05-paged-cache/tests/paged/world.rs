//! Sequences as lists: what the cache is compared with.

use flash_attention::threads::Pool;
use gqa_mla::Maker;
use kv_cache::KvCache;
use naive_decode::break_it::noise;
use naive_decode::{
    Attention, Element, Isa, KeyValues, KvSize, LayerSpec, Pass, Result, Span, Visible, Want,
    attend_span,
};
use ndarray::{Array3, ArrayView3, Axis, concatenate, s};
use paged_cache::offload::{Key, Tier};
use paged_cache::{Behind, Layout, PagedCache, Room};
use std::collections::HashMap;

/// Layers: the second reads the first one's keys and values.
pub(crate) const LAYERS: usize = 3;

/// Sizes and windows of a small model's attention.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) kv_heads: usize,
    pub(crate) group: usize,
    pub(crate) key_dim: usize,
    /// Width of a value; if `absorbed`, a value is the beginning of its key.
    pub(crate) value_dim: usize,
    pub(crate) absorbed: bool,
    pub(crate) windows: [Option<usize>; LAYERS],
    pub(crate) element: Element,
    pub(crate) block: usize,
    pub(crate) rollback: usize,
    pub(crate) isa: usize,
    /// Threads that share out attention, and the writing of many rows.
    pub(crate) threads: usize,
}

/// Keys and values of one layer, `[tokens, kv_heads, D]`.
type Rows = (Array3<f32>, Array3<f32>);

/// A sequence as it ought to be: by layer that makes keys and values.
#[derive(Debug, Clone)]
pub(crate) struct Listed {
    pub(crate) sequence: usize,
    /// Shortest length but 0 to which a rollback must go well: a tier may have lost what is before it.
    pub(crate) surest: usize,
    layers: [Rows; LAYERS],
}

impl Listed {
    pub(crate) fn len(&self) -> usize {
        self.layers[0].0.dim().0
    }

    pub(crate) fn truncate(&mut self, length: usize) {
        // The layer that shares has none of its own.
        for (k, v) in self.layers.iter_mut().filter(|(k, _)| !k.is_empty()) {
            *k = k.slice(s![..length, .., ..]).to_owned();
            *v = v.slice(s![..length, .., ..]).to_owned();
        }
    }

    fn keep(&mut self, start: usize, kept: &[usize]) {
        let slots: Vec<usize> = (0..start).chain(kept.iter().copied()).collect();
        for (k, v) in self.layers.iter_mut().filter(|(k, _)| !k.is_empty()) {
            (*k, *v) = (k.select(Axis(0), &slots), v.select(Axis(0), &slots));
        }
    }
}

/// The cache and the lists, side by side.
pub(crate) struct World {
    pub(crate) shape: Shape,
    pub(crate) cache: PagedCache,
    pub(crate) listed: Vec<Listed>,
    pub(crate) tier: Shelf,
    passes: u64,
}

impl World {
    pub(crate) fn new(shape: Shape, blocks: usize) -> Self {
        let size = KvSize {
            heads: shape.kv_heads,
            key_dim: shape.key_dim,
            value_dim: if shape.absorbed { 0 } else { shape.value_dim },
        };
        // What the first layer keeps, the second one must find.
        let [a, b, c] = shape.windows;
        let widest = a.zip(b).map(|(a, b)| a.max(b));
        let made = [Some(Maker { size, window: widest }), None, Some(Maker { size, window: c })];
        let layout = Layout::of(&made, shape.block, shape.element.into()).unwrap();
        let room = Room {
            bytes: blocks * layout.block_bytes(),
            block: shape.block,
            capacity: 4096,
            kept: shape.element.into(),
            behind: Behind::Freed,
            rollback: shape.rollback,
        };
        let isa = Isa::available()[shape.isa % Isa::available().len()];
        let cache = PagedCache::over(layout, room, isa).unwrap();
        let cache = cache.on_threads(Pool::new(shape.threads));
        World { shape, cache, listed: Vec::new(), tier: Shelf::default(), passes: 0 }
    }

    pub(crate) fn open(&mut self) -> usize {
        let Shape { kv_heads, key_dim, value_dim, .. } = self.shape;
        let none =
            || (Array3::zeros((0, kv_heads, key_dim)), Array3::zeros((0, kv_heads, value_dim)));
        let sequence = self.cache.open();
        self.listed.push(Listed { sequence, surest: 0, layers: [none(), none(), none()] });
        self.listed.len() - 1
    }

    pub(crate) fn fork(&mut self, which: usize) {
        let sequence = self.cache.fork(self.listed[which].sequence).unwrap();
        self.listed.push(Listed { sequence, ..self.listed[which].clone() });
    }

    pub(crate) fn close(&mut self, which: usize) {
        let gone = self.listed.remove(which);
        self.cache.close(gone.sequence).unwrap();
    }

    /// Rolls a sequence back. Where a window's blocks are gone, the cache refuses, and nothing has changed.
    pub(crate) fn truncate(&mut self, which: usize, length: usize) {
        let listed = &mut self.listed[which];
        match self.cache.truncate(listed.sequence, length) {
            Ok(()) => listed.truncate(length),
            Err(error) => assert!(0 < length && length < listed.surest, "{error}"),
        }
    }

    /// Keeps some of a sequence's last slots. Refused, too, if there is no room for copies of what others hold.
    pub(crate) fn keep(&mut self, which: usize, start: usize, kept: &[usize]) {
        let (free, listed) = (self.cache.blocks().free(), &mut self.listed[which]);
        match self.cache.keep(listed.sequence, start, kept) {
            Ok(()) => listed.keep(start, kept),
            Err(error) => {
                let (length, said) = (start + kept.len(), error.to_string());
                let is_full = said.starts_with("the pool of blocks holds");
                assert!(is_full || 0 < length && length < listed.surest, "{said}");
                assert_eq!(self.cache.blocks().free(), free);
            }
        }
    }

    /// Parks a sequence and brings it back; `lost` of its blocks, counted round, are lost in between.
    pub(crate) fn park(&mut self, which: usize, lost: Option<usize>) {
        let sequence = self.listed[which].sequence;
        let parked = self.cache.park(sequence, &mut self.tier).unwrap();
        self.check_integrity();
        if let Some(lost) = lost {
            self.tier.lose(lost);
        }
        let free = self.cache.blocks().free();
        let back = match self.cache.unpark(&parked, &mut self.tier) {
            Ok(back) => back,
            // What it shared with others is not shared any more, and there may be no room for it.
            Err(error) => {
                assert!(parked.blocks() > free, "{error}, with {free} free");
                self.listed.remove(which);
                return;
            }
        };
        let (length, listed) = (self.cache.len(back), &mut self.listed[which]);
        assert!(lost.is_some() || length == listed.len(), "{length} of {} came back", listed.len());
        listed.sequence = back;
        listed.truncate(length);
        if lost.is_some() {
            listed.surest = length;
        }
        self.tier = Shelf::default();
    }

    /// One pass over some sequences, `(which, rows)`; as a draft tree it is rolled back. Refused only if
    /// there are too few blocks, and then nothing has changed.
    pub(crate) fn pass(&mut self, spans: &[(usize, usize)], tree: Option<u64>) {
        let span = |&(which, rows): &(usize, usize)| {
            let Listed { sequence, .. } = self.listed[which];
            span(sequence, self.listed[which].len(), rows, tree)
        };
        let pass = Pass { spans: spans.iter().map(span).collect() };
        self.passes += 1;
        let (needed, free) = (self.cache.blocks_needed(&pass).unwrap(), self.cache.blocks().free());
        match self.cache.begin(&pass) {
            Err(error) => {
                assert!(needed > free, "{error}, but {needed} blocks are needed, {free} free");
                assert!(error.to_string().starts_with("the pool of blocks holds"), "{error}");
                return;
            }
            Ok(()) => {
                assert!(needed <= free, "{needed} blocks are needed, {free} free");
                assert_eq!(self.cache.blocks().free(), free - needed, "as many as were foretold");
            }
        }
        let kept = self.attend(&pass, spans).unwrap();
        if tree.is_none() {
            self.cache.commit(&pass);
            for ((which, _), layers) in spans.iter().zip(kept) {
                let listed = &mut self.listed[*which];
                listed.layers = layers;
                let shortest = listed.len().saturating_sub(self.shape.rollback);
                listed.surest = listed.surest.max(shortest);
            }
        }
    }

    /// Attention of every layer, compared; gives each span's rows as they are now.
    fn attend(&mut self, pass: &Pass, spans: &[(usize, usize)]) -> Result<Vec<[Rows; LAYERS]>> {
        let Shape { kv_heads, group, key_dim, value_dim, absorbed, windows, element, .. } =
            self.shape;
        let rows = pass.rows();
        let mut now: Vec<[Rows; LAYERS]> =
            spans.iter().map(|(which, _)| self.listed[*which].layers.clone()).collect();
        for index in 0..LAYERS {
            let kv_layer = if index == 1 { 0 } else { index };
            let random = |what: u64, layer: usize, shape: (usize, usize, usize)| {
                let seed = (self.passes * 8 + layer as u64) * 3 + what;
                let numbers = noise(seed, shape.0 * shape.1 * shape.2);
                Array3::from_shape_vec(shape, numbers).unwrap()
            };
            let q = random(0, index, (rows, kv_heads * group, key_dim));
            let mut k = random(1, kv_layer, (rows, kv_heads, key_dim));
            element.round(k.as_slice_mut().unwrap());
            let mut v = random(2, kv_layer, (rows, kv_heads, value_dim));
            element.round(v.as_slice_mut().unwrap());
            if absorbed {
                v = k.slice(s![.., .., ..value_dim]).as_standard_layout().into_owned();
            }
            let score_cap = (index == 1).then_some(2.0);
            let layer =
                LayerSpec { index, kv_layer, window: windows[index], scale: 1.5, score_cap };
            let found = self.cache.attend(layer, pass, q.view(), k.view(), v.view())?;
            for ((span, rows), now) in pass.spans_with_rows().zip(&mut now) {
                if kv_layer == index {
                    let (old_k, old_v) = &now[index];
                    let new = |x: &Array3<f32>| x.slice(s![rows.clone(), .., ..]).to_owned();
                    now[index] = (
                        concatenate![Axis(0), *old_k, new(&k)],
                        concatenate![Axis(0), *old_v, new(&v)],
                    );
                }
                let (k, v) = &now[kv_layer];
                let mut expected = Array3::zeros((rows.len(), kv_heads * group, value_dim));
                let plain = Plain { k: k.view(), v: v.view() };
                let q = q.slice(s![rows.clone(), .., ..]);
                attend_span(Isa::best(), layer, span, q, &plain, expected.view_mut());
                let found = found.slice(s![rows, .., ..]).to_owned();
                assert_same_bits(&found, &expected, &format!("layer {index}, {span:?}"));
            }
        }
        Ok(now)
    }

    pub(crate) fn check_integrity(&self) {
        self.cache.check_integrity([]).unwrap();
    }
}

/// A span of rows after `held` tokens; as a draft tree, each row follows some earlier one or the text.
fn span(sequence: usize, held: usize, rows: usize, tree: Option<u64>) -> Span {
    let mut span = Span::new(sequence, held, &vec![0; rows], Want::All);
    let Some(seed) = tree else { return span };
    for (row, random) in noise(seed, rows).into_iter().enumerate() {
        let parent = ((random + 1.0) / 2.0 * (row + 1) as f32) as usize; // 0 is the text itself
        let mut also = match parent {
            0 => Vec::new(),
            parent => span.sees[parent - 1].also.clone(),
        };
        also.push(held + row);
        span.sees[row] = Visible { range: 0..held, also };
    }
    span
}

struct Plain<'a> {
    k: ArrayView3<'a, f32>,
    v: ArrayView3<'a, f32>,
}

impl KeyValues for Plain<'_> {
    fn kv_heads(&self) -> usize {
        self.k.dim().1
    }
    fn key(&self, kv_head: usize, slot: usize, copy: &mut [f32]) {
        copy.iter_mut().zip(self.k.slice(s![slot, kv_head, ..])).for_each(|(to, &k)| *to = k);
    }
    fn value(&self, kv_head: usize, slot: usize, copy: &mut [f32]) {
        copy.iter_mut().zip(self.v.slice(s![slot, kv_head, ..])).for_each(|(to, &v)| *to = v);
    }
}

pub(crate) fn assert_same_bits(found: &Array3<f32>, expected: &Array3<f32>, place: &str) {
    assert_eq!(found.dim(), expected.dim(), "{place}");
    for ((at, expected), found) in expected.indexed_iter().zip(found) {
        let same = expected.to_bits() == found.to_bits();
        assert!(same, "{found:e} at {at:?}, expected {expected:e}: {place}");
    }
}

/// A tier in a map.
#[derive(Default)]
pub(crate) struct Shelf {
    kept: HashMap<Key, Vec<u8>>,
}

impl Shelf {
    /// Loses one block, or damages it.
    pub(crate) fn lose(&mut self, which: usize) {
        let mut keys: Vec<Key> = self.kept.keys().copied().collect();
        keys.sort_unstable();
        if keys.is_empty() {
            return;
        }
        let key = keys[which % keys.len()];
        match which % 2 {
            0 => drop(self.kept.remove(&key)),
            _ => self.kept.get_mut(&key).unwrap()[0] ^= 1,
        }
    }
}

impl Tier for Shelf {
    fn put(&mut self, key: Key, bytes: &[u8]) -> Result<()> {
        self.kept.insert(key, bytes.to_vec());
        Ok(())
    }
    fn get(&mut self, key: Key, bytes: &mut Vec<u8>) -> Result<bool> {
        bytes.clear();
        let found = self.kept.get(&key);
        bytes.extend(found.into_iter().flatten());
        Ok(found.is_some())
    }
    fn contains(&self, key: Key) -> bool {
        self.kept.contains_key(&key)
    }
    fn remove(&mut self, key: Key) -> Result<bool> {
        Ok(self.kept.remove(&key).is_some())
    }
}
