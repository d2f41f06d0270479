//! Which layers make keys and values, and how far back anyone will ask for them.

use naive_decode::{Error, KvSize, Model, Result};

/// A layer that makes keys and values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Maker {
    /// Their sizes.
    pub size: KvSize,
    /// Widest window of the layers that read them; everything if one of those has none.
    pub window: Option<usize>,
}

/// By layer; none for one that reads an earlier layer's.
///
/// # Errors
/// If the first layer makes none.
pub fn makers(model: &Model) -> Result<Vec<Option<Maker>>> {
    let mut makers: Vec<Option<Maker>> = Vec::new();
    let mut latest = None;
    for (index, block) in model.blocks.iter().enumerate() {
        let made = block.projection.kv().map(|size| Maker { size, window: block.window });
        match (&made, latest) {
            (Some(_), _) => latest = Some(index),
            (None, None) => {
                let expected = "its own: none come before";
                return Err(Error::invalid("layer 0's keys and values", "none", expected));
            }
            (None, Some(maker)) => {
                if let Some(Maker { window, .. }) = &mut makers[maker] {
                    *window = window.zip(block.window).map(|(a, b)| a.max(b));
                }
            }
        }
        makers.push(made);
    }
    Ok(makers)
}
