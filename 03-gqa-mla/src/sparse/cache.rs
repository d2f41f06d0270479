//! The cache whose queries read blocks.

use super::Pattern;
use super::blocks::Blocks;
use super::select::RowReading;
use crate::reading::attend_reading;
use crate::tiles::{Tiled, Tiles};
use kv_cache::{KvCache, KvShape, Lengths};
use naive_decode::{Attention, Isa, LayerSpec, Model, Pass, Result, Span, Want};
use ndarray::{Array3, ArrayView3, s};

/// Keeps everything, and reads what the pattern says.
#[derive(Clone)]
pub struct SparseCache {
    shape: KvShape,
    bytes_per_token: usize,
    isa: Isa,
    pattern: Pattern,
    /// `[sequences][layers][kv_heads]`
    heads: Vec<Blocks>,
    lengths: Lengths,
    read: EntriesRead,
}

/// What queries have had to read so far. A query here is one row in one layer and key-value head.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EntriesRead {
    /// Queries asked.
    pub queries: usize,
    /// Entries that they looked at, stand-ins included.
    pub read: usize,
    /// Entries that they would have looked at with full attention.
    pub visible: usize,
}

impl SparseCache {
    /// An empty cache for sequences of at most `capacity` tokens.
    ///
    /// # Errors
    /// A pattern with nothing in one of its parts.
    pub fn new(model: &Model, capacity: usize, sequences: usize, pattern: Pattern) -> Result<Self> {
        let pattern = pattern.check()?;
        let shape = KvShape::of(model);
        let heads = sequences * shape.layers * shape.kv_heads;
        let heads = (0..heads).map(|_| Blocks::new(shape, pattern.block)).collect();
        let (isa, lengths) = (model.isa, Lengths::new(sequences, capacity));
        let bytes_per_token = KvShape::of_makers(model).bytes_per_token();
        let read = EntriesRead::default();
        Ok(SparseCache { shape, bytes_per_token, isa, pattern, heads, lengths, read })
    }

    /// What all queries of all sequences have had to read so far.
    pub fn entries_read(&self) -> EntriesRead {
        self.read
    }

    /// Whether everything is as it should be between passes: lengths that fit, an entry for every token in
    /// layers that make some, and a stand-in for every whole block.
    ///
    /// # Errors
    /// Names the sequence and layer, and what is wrong.
    pub fn check_integrity(&self) -> Result<()> {
        self.lengths.check_integrity()?;
        let per_sequence = self.shape.layers * self.shape.kv_heads;
        for (i, head) in self.heads.iter().enumerate() {
            let (sequence, layer) = (i / per_sequence, i % per_sequence / self.shape.kv_heads);
            let at = format!("layer {layer} of sequence {sequence}");
            head.check_integrity(&at, self.lengths.of(sequence))?;
        }
        Ok(())
    }

    fn heads(&mut self, sequence: usize, layer: usize) -> &mut [Blocks] {
        let KvShape { layers, kv_heads, .. } = self.shape;
        &mut self.heads[(sequence * layers + layer) * kv_heads..][..kv_heads]
    }

    /// Forgets all entries of a sequence from `length` on.
    fn cut(&mut self, sequence: usize, length: usize) {
        let per_sequence = self.shape.layers * self.shape.kv_heads;
        let heads = &mut self.heads[sequence * per_sequence..][..per_sequence];
        heads.iter_mut().for_each(|head| head.truncate(length));
    }

    /// A layer's entries, and after them its stand-ins.
    fn tiles(&mut self, span: &Span, layer: usize, value_dim: usize) -> Tiles {
        let (isa, key_dim) = (self.isa, self.shape.key_dim);
        let (mut key, mut value) = (vec![0.0; key_dim], vec![0.0; value_dim]);
        let heads = self.heads(span.sequence, layer).iter().map(|head| {
            let parts = [&head.entries, &head.means];
            let places = parts.iter().map(|part| part.len()).sum();
            let mut tiled = Tiled::new((0..places).collect(), key_dim, value_dim);
            let all = parts.iter().flat_map(|part| (0..part.len()).map(move |i| (part, i)));
            for (place, (part, i)) in all.enumerate() {
                part.key(i, &mut key);
                part.value(i, &mut value);
                tiled.put(place, &key, &value);
            }
            tiled
        });
        Tiles { heads: heads.collect(), isa }
    }
}

impl Attention for SparseCache {
    fn begin(&mut self, pass: &Pass) -> Result<()> {
        self.lengths.check_pass(pass)?;
        // A pass that failed may have left entries behind.
        pass.spans.iter().for_each(|span| self.cut(span.sequence, span.start));
        Ok(())
    }

    // ANCHOR: attend
    fn attend(
        &mut self,
        layer: LayerSpec,
        pass: &Pass,
        q: ArrayView3<f32>,
        k: ArrayView3<f32>,
        v: ArrayView3<f32>,
    ) -> Result<Array3<f32>> {
        let mut out = Array3::zeros((q.dim().0, q.dim().1, v.dim().2));
        for (span, rows) in pass.spans_with_rows() {
            if layer.kv_layer == layer.index {
                for (kv_head, head) in self.heads(span.sequence, layer.index).iter_mut().enumerate()
                {
                    for row in rows.clone() {
                        let contiguous = "heads are contiguous";
                        let (k, v) = (k.slice(s![row, kv_head, ..]), v.slice(s![row, kv_head, ..]));
                        head.push(k.to_slice().expect(contiguous), v.to_slice().expect(contiguous));
                    }
                }
            }
            let tiles = self.tiles(span, layer.kv_layer, v.dim().2);
            for (sees, row) in span.sees.iter().zip(rows) {
                let queries = q.slice(s![row, .., ..]);
                let reading =
                    RowReading::choose(&tiles, span.end(), self.pattern, layer, queries, sees);
                self.read.queries += self.shape.kv_heads;
                self.read.read += reading.entries_read();
                self.read.visible += self.shape.kv_heads * sees.places(layer.window).len();
                let one = Span {
                    sees: vec![sees.clone()],
                    ..Span::new(span.sequence, span.start, &[0], Want::Nothing)
                };
                let queries = q.slice(s![row..row + 1, .., ..]);
                let out = out.slice_mut(s![row..row + 1, .., ..]);
                attend_reading(self.isa, layer, &one, queries, &reading, out, None);
            }
        }
        Ok(out)
    }
    // ANCHOR_END: attend

    fn commit(&mut self, pass: &Pass) {
        self.lengths.commit(pass);
    }
}

impl KvCache for SparseCache {
    fn len(&self, sequence: usize) -> usize {
        self.lengths.of(sequence)
    }

    fn capacity(&self) -> usize {
        self.lengths.capacity()
    }

    fn truncate(&mut self, sequence: usize, length: usize) -> Result<()> {
        self.lengths.check_truncate(sequence, length)?;
        self.cut(sequence, length);
        self.lengths.truncate(sequence, length);
        Ok(())
    }

    /// A token's own entry; one more is kept for each whole block.
    fn bytes_per_token(&self) -> usize {
        self.bytes_per_token
    }

    fn allocated_bytes(&self) -> usize {
        self.heads.iter().map(Blocks::bytes).sum()
    }
}
