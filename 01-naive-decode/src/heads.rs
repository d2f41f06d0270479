//! Seam: what is done to queries, keys and values once their matrices have made them.

use crate::error::Result;
use crate::kernels::Isa;
use crate::rope::Rope;

/// What stands between the matrices of grouped-query attention and attention itself: of each row by itself, in place.
pub trait HeadStep: Send + Sync {
    /// A row at `position`: queries `[heads · D]`, keys and values `[kv_heads · D]`. `rope` is the model's, by which they are
    /// turned unless there is [`HeadStep::own_rope`].
    ///
    /// # Errors
    /// If the position lies past what RoPE covers.
    fn row(&self, qkv: [&mut [f32]; 3], position: usize, rope: &Rope) -> Result<()>;

    /// The RoPE that it turns by, if that is not the model's.
    fn own_rope(&self) -> Option<&Rope> {
        None
    }

    /// Bytes of weights that one pass reads.
    fn bytes(&self) -> usize {
        0
    }
}

/// Llama's: queries and keys are turned by their positions.
pub struct Turn(pub Isa);

impl HeadStep for Turn {
    // ANCHOR: turn
    fn row(&self, [q, k, _]: [&mut [f32]; 3], position: usize, rope: &Rope) -> Result<()> {
        rope.rotate_with(self.0, q, position)?;
        rope.rotate_with(self.0, k, position)
    }
    // ANCHOR_END: turn
}
