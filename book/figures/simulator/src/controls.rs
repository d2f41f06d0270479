//! What a reader can choose.

use crate::roofline::PUBLISHED;
use crate::simulator::CARDS;
use serde::Serialize;
use serde_json::{Value, json};

/// One choice that a reader has.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Control {
    /// The field of [`Settings`](crate::Settings) that it sets.
    pub name: &'static str,
    /// What the page calls it.
    pub label: &'static str,
    /// What there is to choose from: words, and the field's value.
    pub choices: Vec<(String, Value)>,
    /// Which of them is chosen at first.
    pub first: usize,
}

fn words(
    name: &'static str,
    label: &'static str,
    choices: &[(&str, &str)],
    first: usize,
) -> Control {
    let choices = choices.iter().map(|(word, value)| ((*word).into(), json!(value))).collect();
    Control { name, label, choices, first }
}

fn numbers(name: &'static str, label: &'static str, choices: &[f64], first: usize) -> Control {
    let number = |&number: &f64| match number.fract() == 0.0 {
        true => json!(number as u64),
        false => json!(number),
    };
    let choices = choices.iter().map(|choice| (choice.to_string(), number(choice))).collect();
    Control { name, label, choices, first }
}

/// All of them, in the page's order.
pub fn controls() -> Vec<Control> {
    let models = PUBLISHED.map(|model| (model.name, model.name));
    let cards = CARDS.map(|card| (card.label, card.name));
    let at = |names: &[(&str, &str)], name: &str| {
        names.iter().position(|(_, value)| *value == name).unwrap_or(0)
    };
    vec![
        words("model", "model", &models, at(&models, "llama-3-8b")),
        words("card", "card", &cards, at(&cards, "h100")),
        numbers("cards", "cards", &[1.0, 2.0, 4.0, 8.0], 0),
        numbers("weight_bits", "bits of a weight", &[16.0, 8.0, 4.5], 0),
        words(
            "kv",
            "kept of a token",
            &[
                ("what the model says", "model"),
                ("every head", "mha"),
                ("one head for all", "mqa"),
                ("a latent, 512 + 64", "mla"),
            ],
            0,
        ),
        numbers("kv_bits", "bits of what is kept", &[16.0, 8.0, 4.0], 0),
        words("batching", "batching", &[("continuous", "continuous"), ("static", "static")], 0),
        numbers("running", "at once, at most", &[1.0, 4.0, 16.0, 32.0, 64.0, 128.0, 256.0], 4),
        numbers("draft", "guesses", &[0.0, 2.0, 4.0, 8.0], 0),
        // Of all guesses fewer are kept: nobody looks at what follows one that did not come true.
        numbers(
            "acceptance",
            "a guess comes true, if all before it did",
            &[0.5, 0.6, 0.7, 0.8, 0.9],
            3,
        ),
        numbers("draft_cost", "cost of a guess", &[0.0, 0.05, 0.11, 0.25], 1),
        numbers("prompt_tokens", "tokens of a prompt", &[50.0, 200.0, 500.0, 2000.0], 2),
        numbers("answer_tokens", "tokens of an answer", &[20.0, 100.0, 200.0, 500.0], 2),
        numbers(
            "per_second",
            "requests a second",
            &[0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0],
            4,
        ),
    ]
}
