//! A sequence out of the pool, and back.
//!
//! A request that has to wait can keep its blocks elsewhere: in ordinary memory while the pool is a GPU's, in
//! a file while the pool is memory. Bringing them back costs a copy; computing them again costs a prefill.
//! Blocks are named by what they contain, so what a tier gives back is right or nothing: a block that was
//! lost, torn or overwritten is missing, and the tokens from there on are computed again.

use crate::blocks::BlockId;
use crate::layout::{Group, Layout};
use crate::offload::{BlockBytes, Key, Tier};
use crate::paged_cache::PagedCache;
use crate::table::{Table, Tables};
use flash_attention::tile_attention::KvType;
use kv_cache::KvCache;
use naive_decode::{Error, KvSize, Result};
use std::collections::HashSet;
use std::fmt::{self, Display, Formatter};

/// A sequence whose blocks are in a tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parked {
    /// Tokens that it had.
    length: usize,
    form: Form,
    /// By group and place; none where the block had been given back already.
    keys: Vec<Vec<Option<Key>>>,
}

/// What blocks must have in common to hold the same. As many bytes are not enough.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Form {
    tokens: usize,
    kept: KvType,
    groups: Vec<GroupForm>,
}

/// The same of one group: its layers in the order in which they lie in a block.
#[derive(Debug, Clone, PartialEq, Eq)]
struct GroupForm {
    window: Option<usize>,
    sizes: Vec<KvSize>,
}

impl Form {
    fn of(layout: &Layout) -> Self {
        let size = |&layer: &usize| layout.layer(layer).expect("groups are of such layers").size;
        let group = |group: &Group| {
            let sizes = group.layers.iter().map(size).collect();
            GroupForm { window: group.window, sizes }
        };
        let groups = layout.groups().iter().map(group).collect();
        Form { tokens: layout.tokens(), kept: layout.kept(), groups }
    }
}

impl Display for Form {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Form { tokens, kept, groups } = self;
        let groups: Vec<String> = groups.iter().map(GroupForm::to_string).collect();
        let groups = groups.join("; ");
        write!(f, "of {tokens} tokens as {kept}, layers x heads x (key + value): {groups}")
    }
}

impl Display for GroupForm {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        // Layers of equal sizes are said once: a model has many.
        let same = self.sizes.chunk_by(|a, b| a == b).map(|same| {
            let KvSize { heads, key_dim, value_dim } = same[0];
            format!("{} x {heads} x ({key_dim} + {value_dim})", same.len())
        });
        f.write_str(&same.collect::<Vec<_>>().join(" + "))?;
        self.window.map_or(Ok(()), |window| write!(f, " in a window of {window}"))
    }
}

impl Parked {
    /// Tokens that it had.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Blocks that bringing it back takes.
    pub fn blocks(&self) -> usize {
        self.names().count()
    }

    /// The names of its blocks.
    fn names(&self) -> impl Iterator<Item = Key> {
        self.keys.iter().flatten().flatten().copied()
    }

    /// Has a tier forget its blocks, once it has come back or never will: there they would push out what is of use. Blocks
    /// are named by what they contain, so those that `others` have as well stay.
    ///
    /// # Errors
    /// If the tier cannot forget.
    pub fn forget<'a>(
        self,
        others: impl IntoIterator<Item = &'a Parked>,
        tier: &mut dyn Tier,
    ) -> Result<()> {
        let needed: HashSet<Key> = others.into_iter().flat_map(Parked::names).collect();
        let mut unneeded = self.names().filter(|name| !needed.contains(name));
        unneeded.try_for_each(|name| tier.remove(name).map(|_| ()))
    }
}

impl PagedCache {
    // ANCHOR: park
    /// Moves a sequence's blocks to a tier, and ends it here.
    ///
    /// # Errors
    /// If there is no such sequence, or the tier cannot be written; the sequence is then as it was.
    pub fn park(&mut self, sequence: usize, tier: &mut dyn Tier) -> Result<Parked> {
        // First: a sequence that is not there has no length either.
        let tables = self.tables(sequence)?.clone();
        let (length, form) = (self.len(sequence), Form::of(self.layout()));
        let places = self.layout().blocks_for(length);
        let mut bytes = Vec::with_capacity(self.layout().block_bytes());
        let mut put = |block: BlockId, memory: &dyn BlockBytes| -> Result<Key> {
            bytes.clear();
            memory.copy_out(block, &mut bytes)?;
            let key = name(&bytes);
            tier.put(key, &bytes)?;
            Ok(key)
        };
        let (_, memory) = self.parts();
        let mut keys: Vec<Vec<Option<Key>>> = vec![Vec::new(); tables.groups.len()];
        // The end first: a tier that is full lets go of the oldest, and nothing goes on without the beginning.
        for place in (0..places).rev() {
            for (table, keys) in tables.groups.iter().zip(&mut keys) {
                let block = table.block(place);
                keys.push(block.map(|block| put(block, memory)).transpose()?);
            }
        }
        keys.iter_mut().for_each(|keys| keys.reverse());
        self.close(sequence)?;
        Ok(Parked { length, form, keys })
    }
    // ANCHOR_END: park

    // ANCHOR: unpark
    /// Brings a sequence back, as much of it as the tier still has, and gives its number; its length says
    /// how many tokens that are. What comes after them has to be computed again.
    ///
    /// # Errors
    /// If it was parked by a cache with other blocks; [`Error::Capacity`] if the pool has fewer free blocks than
    /// [`Parked::blocks`], or the sequence is longer than one of this cache may be; whatever the tier says if it cannot
    /// be read at all, or a device that cannot be written. Nothing has then changed.
    pub fn unpark(&mut self, parked: &Parked, tier: &mut dyn Tier) -> Result<usize> {
        let form = Form::of(self.layout());
        if parked.form != form {
            let what = "blocks of a parked sequence";
            return Err(Error::invalid(what, &parked.form, form.to_string()));
        }
        let (free, tokens) = (self.blocks().free(), self.layout().tokens());
        if parked.blocks() > free {
            return Err(self.too_few("the free part of the pool", free, parked.blocks()));
        }
        self.check_length(parked.length)?;
        let mut groups: Vec<Vec<Option<BlockId>>> = Vec::new();
        let mut bytes = Vec::new();
        let mut outcome = Ok(());
        for keys in &parked.keys {
            groups.push(Vec::new());
            for key in keys {
                let block = match (&outcome, key) {
                    (Ok(()), Some(key)) => self.bring_back(*key, tier, &mut bytes),
                    _ => Ok(None),
                };
                let block = block.unwrap_or_else(|error| {
                    outcome = Err(error);
                    None
                });
                groups.last_mut().expect("just pushed").push(block);
            }
        }
        let length = match outcome {
            Ok(()) => self.usable(parked, &groups),
            Err(_) => 0,
        };
        let mut tables = Vec::new();
        for (group, blocks) in groups.into_iter().enumerate() {
            let seen = self.first_seen(group, length) / tokens;
            // What lies before a gap is of no use, even to whoever rolls back.
            let gap = blocks.iter().take(seen).rposition(Option::is_none);
            let first = gap.map_or(0, |gap| gap + 1).max(self.first_kept(group, length) / tokens);
            let mut table = Table::of(blocks);
            table.give_back_before(first, self.parts().0);
            tables.push(table);
        }
        let sequence = self.open_with(Tables { groups: tables }, length);
        // What lies past the usable part is of no use.
        self.truncate(sequence, length)?;
        match outcome {
            Ok(()) => Ok(sequence),
            Err(error) => self.close(sequence).and(Err(error)),
        }
    }
    // ANCHOR_END: unpark

    /// A block with what the tier has under this name, if it has that whole.
    fn bring_back(
        &mut self,
        key: Key,
        tier: &mut dyn Tier,
        bytes: &mut Vec<u8>,
    ) -> Result<Option<BlockId>> {
        bytes.clear();
        let there = tier.get(key, bytes)? && name(bytes) == key;
        let (blocks, memory) = self.parts();
        if !there || bytes.len() != memory.block_bytes() {
            return Ok(None);
        }
        let block = blocks.take().expect("there are enough");
        let copied = memory.copy_in(block, bytes);
        if copied.is_err() {
            blocks.release(block);
        }
        copied.map(|()| Some(block))
    }

    /// The longest part of a parked sequence that can go on from these blocks.
    fn usable(&self, parked: &Parked, groups: &[Vec<Option<BlockId>>]) -> usize {
        let tokens = self.layout().tokens();
        let gaps: Vec<Vec<usize>> = groups.iter().map(|blocks| ends_of_gaps(blocks)).collect();
        let has_all = |length: &usize| {
            let places = length.div_ceil(tokens);
            let mut groups = gaps.iter().enumerate();
            groups.all(|(group, ends)| ends[places] <= self.first_seen(group, *length) / tokens)
        };
        let borders = (0..parked.length.div_ceil(tokens)).rev().map(|place| place * tokens);
        std::iter::once(parked.length).chain(borders).find(has_all).unwrap_or(0)
    }
}

/// By number of places, from none to all: where the last gap among so many ends, 0 if there is none. With these, whether a
/// length has all that it needs is one comparison for each group, however many blocks there are.
fn ends_of_gaps(blocks: &[Option<BlockId>]) -> Vec<usize> {
    let mut end = 0;
    let ends = blocks.iter().enumerate().map(|(place, block)| {
        if block.is_none() {
            end = place + 1;
        }
        end
    });
    std::iter::once(0).chain(ends).collect()
}

/// The name of a block's content.
fn name(bytes: &[u8]) -> Key {
    Key(*blake3::hash(bytes).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_counts_for_all_that_come_after_it() {
        let blocks = |there: &[usize]| -> Vec<Option<BlockId>> {
            there.iter().map(|&there| (there > 0).then_some(BlockId(0))).collect()
        };
        for (there, expected) in [
            (&[][..], &[0][..]),
            (&[1, 1, 1], &[0, 0, 0, 0]),
            (&[0, 1, 0, 0, 1], &[0, 1, 1, 3, 4, 4]),
            (&[1, 0], &[0, 0, 2]),
        ] {
            assert_eq!(ends_of_gaps(&blocks(there)), expected, "{there:?}");
        }
    }
}
