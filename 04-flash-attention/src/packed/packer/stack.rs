//! Matrices that the same rows meet, as one.

use super::Packer;
use crate::packed::format::Rows;
use crate::packed::linear::PackedLinear;
use naive_decode::{Result, Tensors};

/// Matrices that are one, each with so many outputs.
pub(super) struct Stack {
    matrices: Vec<(String, usize)>,
    inputs: usize,
    /// What a packed file calls it.
    pub(super) name: String,
}

impl Stack {
    pub(super) fn new(matrices: Vec<(String, usize)>, inputs: usize) -> Self {
        let names: Vec<&str> = matrices.iter().map(|(name, _)| name.as_str()).collect();
        let name = names.join(" + ");
        Stack { matrices, inputs, name }
    }

    pub(super) fn shape(&self) -> [usize; 2] {
        [self.matrices.iter().map(|(_, outputs)| outputs).sum(), self.inputs]
    }
}

impl Packer<'_> {
    /// Matrices that are kept alike, of their rows where the source has some.
    pub(super) fn stack(
        &self,
        stack: Stack,
        rows: Vec<Option<Rows>>,
        tensors: Tensors,
    ) -> Result<PackedLinear> {
        let (inputs, outputs) = (stack.inputs, stack.shape()[0]);
        let rows = match rows.iter().any(Option::is_some) {
            // All of it is converted at once, by all threads.
            false => None,
            true => {
                let mut parts = Vec::with_capacity(rows.len());
                for (rows, (name, outputs)) in rows.into_iter().zip(&stack.matrices) {
                    parts.push(match rows {
                        Some(rows) => rows,
                        None => self.encoded(name, [*outputs, inputs], tensors)?,
                    });
                }
                Some(match parts.len() {
                    1 => parts.remove(0),
                    _ => {
                        let bytes =
                            parts.iter().map(|rows| &*rows.bytes).collect::<Vec<_>>().concat();
                        let as_stored = parts.iter().all(|rows| rows.as_stored);
                        let format = parts[0].format;
                        Rows { as_stored, format, outputs, inputs, bytes: bytes.into() }
                    }
                })
            }
        };
        let make = || {
            let mut weights = Vec::new();
            for (name, outputs) in &stack.matrices {
                // Not before the shape is known to be the file's: a config alone may have sizes without end.
                let more = tensors(name, &[*outputs, inputs])?;
                weights.reserve_exact(more.len());
                weights.extend(more);
            }
            Ok(weights)
        };
        self.packed_now(&stack.name, stack.shape(), rows, &make)
    }
}
