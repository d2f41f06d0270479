//! Which layers look how far, and which read another's keys and values.

mod read;

use naive_decode::{Config, Error, Result};

/// The shape of a model whose layers are not all alike.
///
/// Invariants, checked on reading and again before a model is built: one entry for each layer in
/// both lists; a window is at least 1; a layer that shares does so with the nearest earlier layer
/// that makes keys and values, and looks as far back as that one.
#[derive(Debug, Clone, PartialEq)]
pub struct HybridConfig {
    /// What it has in common with Llama.
    pub base: Config,
    /// Of each layer, how many tokens back a row sees, itself included; everything if not said.
    pub windows: Vec<Option<usize>>,
    /// Of each layer, the earlier one whose keys and values it reads; its own if not said
    /// (Cross-Layer Attention, Brandon et al. 2024).
    pub shares: Vec<Option<usize>>,
    /// Whether every head of queries and keys is normed before it is turned (QK norm, as in Qwen3).
    pub qk_norm: bool,
}

/// Widest window that is believed: as wide as the longest context that [`Config`] believes.
const WIDEST: usize = 1 << 24;

fn is_believed(window: usize) -> bool {
    (1..=WIDEST).contains(&window)
}

impl HybridConfig {
    /// Whether the invariants hold; `file` is the name that errors give the configuration.
    ///
    /// # Errors
    /// Names what does not, in the terms of `config.json`.
    pub fn check(&self, file: &str) -> Result<()> {
        let layers = self.base.layers;
        for (field, found) in
            [("layer_types", self.windows.len()), ("kv_shared_with", self.shares.len())]
        {
            if found != layers {
                return Err(refuse_length(file, field, found, layers));
            }
        }
        let mut windows = self.windows.iter().flatten();
        if let Some(&window) = windows.find(|&&window| !is_believed(window)) {
            return Err(refuse_window(file, window));
        }
        if !self.qk_norm && self.shares.iter().any(Option::is_some) {
            let expected = "null everywhere: layers that share are those of a model with QK norm";
            return Err(refusal(file, "kv_shared_with", "a layer", expected));
        }
        let mut maker = None;
        for (layer, share) in self.shares.iter().enumerate() {
            let field = format!("kv_shared_with[{layer}]");
            match (share, maker) {
                (None, _) => maker = Some(layer),
                (Some(other), None) => {
                    let expected = "null: no layer comes before";
                    return Err(refusal(file, &field, &other.to_string(), expected));
                }
                (Some(other), Some(maker)) if *other != maker => {
                    let expected = format!(
                        "null or {maker}, the nearest earlier layer that makes keys and values"
                    );
                    return Err(refusal(file, &field, &other.to_string(), &expected));
                }
                (Some(_), Some(maker)) => {
                    let (own, others) = (self.windows[layer], self.windows[maker]);
                    if own != others {
                        let found = format!("{maker}, which sees {}", sight(others));
                        let expected = format!("a layer that sees {}, as this one", sight(own));
                        return Err(refusal(file, &field, &found, &expected));
                    }
                }
            }
        }
        Ok(())
    }
}

fn refusal(file: &str, field: &str, found: &str, expected: &str) -> Error {
    Error::file(file, format!("{field} is {found}, expected {expected}"))
}

fn refuse_length(file: &str, field: &str, found: usize, layers: usize) -> Error {
    let expected = format!("one for each of the {layers} layers");
    refusal(file, field, &format!("a list of {found}"), &expected)
}

fn refuse_window(file: &str, window: usize) -> Error {
    let expected = format!("between 1 and {WIDEST} tokens, or null for no window");
    refusal(file, "sliding_window", &window.to_string(), &expected)
}

fn sight(window: Option<usize>) -> String {
    window.map_or("everything".into(), |window| format!("{window} tokens"))
}
