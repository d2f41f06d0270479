//! Which layers make keys and values, and how far back anyone will ask for them.

use naive_decode::{Error, KvSize, Model, Result};

/// Of each layer, the sizes of the keys and values that it makes and the widest window of those who
/// read them; none if it reads an earlier layer's.
///
/// # Errors
/// If the first layer makes none.
pub(super) fn makers(model: &Model) -> Result<Vec<Option<(KvSize, Option<usize>)>>> {
    let mut makers: Vec<Option<(KvSize, Option<usize>)>> = Vec::new();
    let mut latest = None;
    for (index, block) in model.blocks.iter().enumerate() {
        let made = block.projection.kv().map(|size| (size, block.window));
        match (&made, latest) {
            (Some(_), _) => latest = Some(index),
            (None, None) => {
                let expected = "its own: none come before";
                return Err(Error::invalid("layer 0's keys and values", "none", expected));
            }
            (None, Some(maker)) => {
                if let Some((_, window)) = &mut makers[maker] {
                    *window = window.zip(block.window).map(|(a, b)| a.max(b));
                }
            }
        }
        makers.push(made);
    }
    Ok(makers)
}
