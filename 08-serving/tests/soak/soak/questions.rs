//! What is asked, and what each is answered alone.

use anyhow::{Context, Result, ensure};
use embedded_models::tales::tale;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// Draws below a bound; the same for one seed and number.
pub(super) struct Dice(ChaCha8Rng);

impl Dice {
    pub(super) fn new(seed: u64, number: u64) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..16].copy_from_slice(&number.to_le_bytes());
        Dice(ChaCha8Rng::from_seed(key))
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0.next_u64() % end
    }

    pub(super) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// A request, and the texts that are right.
pub(super) struct Question {
    pub(super) path: &'static str,
    /// The body, not yet streamed.
    pub(super) body: Value,
    /// One for each answer.
    pub(super) texts: Vec<String>,
    /// Tokens of its prompt and all answers.
    pub(super) tokens: usize,
}

impl Question {
    /// One of many; `alone` answers it.
    pub(super) fn new(seed: u64, number: u64, alone: SocketAddr) -> Result<Self> {
        let mut dice = Dice::new(seed, number);
        // Few tales and many lengths: prompts begin alike.
        let told = tale(seed.wrapping_add(dice.below(6))).text;
        let letters = 20 + dice.below(500) as usize;
        let text: String = told.chars().take(letters).collect();
        let mut body = json!({"max_tokens": 8 + dice.below(150), "ignore_eos": dice.percent(50)});
        let path = match dice.percent(30) {
            true => {
                body["messages"] = json!([{"role": "user", "content": text}]);
                "/v1/chat/completions"
            }
            false => {
                body["prompt"] = json!(text);
                "/v1/completions"
            }
        };
        // Greedy, most of them; the dice of the others are their own.
        body["temperature"] = json!(if dice.percent(70) { 0.0 } else { 0.8 });
        body["seed"] = json!(number);
        if dice.percent(15) {
            body["n"] = json!(2);
        }
        if dice.percent(15) {
            body["stop"] = json!(["Question:"]);
        }
        body["priority"] = json!(dice.below(3) as i64 - 1);
        let mut response = ureq::post(format!("http://{alone}{path}")).send_json(&body)?;
        let answer: Value = response.body_mut().read_json()?;
        let texts = texts(&answer)?;
        let tokens = answer["usage"]["total_tokens"].as_u64().context("no usage")? as usize;
        ensure!(tokens > 0, "nothing was answered: {answer}");
        Ok(Question { path, body, texts, tokens })
    }
}

/// The texts of a whole answer.
pub(super) fn texts(answer: &Value) -> Result<Vec<String>> {
    let choices = answer["choices"].as_array().context("an answer without choices")?;
    let text = |choice: &Value| {
        let text = choice["text"].as_str().or(choice["message"]["content"].as_str());
        Ok(text.context("a choice without a text")?.to_owned())
    };
    choices.iter().map(text).collect()
}
