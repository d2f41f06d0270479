//! The pool's memory on a device, as the tables see it.

use crate::heads::Heads;
use crate::shared::Shared;
use cuda_kernels::cache::BLOCK_TOKENS;
use cuda_kernels::{Address, Gpu, Rows, read_onto};
use naive_decode::{Config, Error, Result};
use paged_cache::BlockId;
use paged_cache::offload::{BlockBytes, BlockMemory};

/// Bytes of a number.
const BF16: usize = 2;

/// Blocks in a device's memory, `[blocks][layers][keys, values][kv_heads][BLOCK_TOKENS][head_dim]` in bf16: a block is one
/// piece.
pub(crate) struct DeviceBlocks<G> {
    pub(crate) gpu: Shared<G>,
    pub(crate) base: Address,
    pub(crate) blocks: usize,
    pub(crate) shape: BlockShape,
}

/// What is in a block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockShape {
    layers: usize,
    kv_heads: usize,
    head_dim: usize,
}

impl BlockShape {
    pub(crate) fn of(config: &Config, heads: Heads) -> Self {
        let Config { layers, kv_heads, .. } = *config;
        BlockShape { layers, kv_heads, head_dim: heads.wide }
    }

    /// Elements from a kv head to the next.
    pub(crate) fn head_stride(self) -> usize {
        BLOCK_TOKENS * self.head_dim
    }

    /// Elements of a layer's keys, or of its values.
    pub(crate) fn half_layer(self) -> usize {
        self.kv_heads * self.head_stride()
    }

    /// Elements of a block.
    pub(crate) fn elements(self) -> usize {
        self.layers * 2 * self.half_layer()
    }

    pub(crate) fn bytes(self) -> usize {
        self.elements() * BF16
    }
}

impl<G> DeviceBlocks<G> {
    fn address(&self, block: BlockId) -> Result<Address> {
        if block.index() >= self.blocks {
            let expected = format!("below {}, the device's", self.blocks);
            return Err(Error::invalid("block", block.index(), expected));
        }
        Ok(self.base + (block.index() * self.shape.bytes()) as u64)
    }
}

impl<G: Gpu> BlockBytes for DeviceBlocks<G> {
    fn block_bytes(&self) -> usize {
        self.shape.bytes()
    }

    fn copy_out(&self, block: BlockId, bytes: &mut Vec<u8>) -> Result<()> {
        let from = self.address(block)?;
        self.gpu.with(|gpu| read_onto(gpu, from, self.shape.bytes(), bytes))
    }

    fn copy_in(&mut self, block: BlockId, bytes: &[u8]) -> Result<()> {
        if bytes.len() != self.shape.bytes() {
            let expected = format!("{}, a block", self.shape.bytes());
            return Err(Error::invalid("bytes to bring back", bytes.len(), expected));
        }
        let to = self.address(block)?;
        self.gpu.with(|gpu| gpu.write(to, bytes))
    }
}

impl<G: Gpu> BlockMemory for DeviceBlocks<G> {
    fn copy(&mut self, from: BlockId, to: BlockId) -> Result<()> {
        let (from, to, bytes) = (self.address(from)?, self.address(to)?, self.shape.bytes());
        self.gpu.with(|gpu| gpu.copy(Rows { from, to, count: 1, bytes, stride: bytes }))
    }

    fn copy_slot(
        &mut self,
        (from, from_place): (BlockId, usize),
        (to, to_place): (BlockId, usize),
    ) -> Result<()> {
        let BlockShape { layers, kv_heads, head_dim } = self.shape;
        // One row for each layer, keys and values, and head: they lie a head's tokens apart.
        let bytes = head_dim * BF16;
        let rows = Rows {
            from: self.address(from)? + (from_place * bytes) as u64,
            to: self.address(to)? + (to_place * bytes) as u64,
            count: layers * 2 * kv_heads,
            bytes,
            stride: self.shape.head_stride() * BF16,
        };
        self.gpu.with(|gpu| gpu.copy(rows))
    }
}
