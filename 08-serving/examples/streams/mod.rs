//! A streaming client, for measurements: when each piece of an answer came.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

/// A server that speaks OpenAI's `/v1/completions`.
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) url: String,
    model: String,
}

/// One answer, as the client saw it come.
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) tokens: usize,
    /// When each piece came, from when it was asked for. There is at least one.
    pub(crate) pieces: Vec<Duration>,
}

impl Answer {
    /// Time to the first token.
    pub(crate) fn first(&self) -> Duration {
        self.pieces[0]
    }

    /// Between two tokens after the first, on average.
    pub(crate) fn each(&self) -> Option<Duration> {
        let last = self.pieces.last().expect("there is one");
        (self.tokens > 1).then(|| (*last - self.first()) / (self.tokens as u32 - 1))
    }
}

/// The sample below which a part of all lie.
pub(crate) fn quantile(samples: &[f64], part: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * part).ceil() as usize]
}

impl Server {
    /// Asks a server what its model is called.
    pub(crate) fn at(name: &str, url: &str) -> Result<Self> {
        let asked = format!("{url}/v1/models");
        let models: Value =
            ureq::get(&asked).call().context(asked.clone())?.body_mut().read_json()?;
        let model = models["data"][0]["id"].as_str();
        let model = model.with_context(|| format!("{asked} names no model"))?.to_string();
        Ok(Server { name: name.into(), url: url.into(), model })
    }

    /// Asks for so many tokens after a text, or after tokens by number, and reads them as they come.
    pub(crate) fn ask(&self, prompt: impl Into<Value>, tokens: usize) -> Result<Answer> {
        let body = json!({
            "model": self.model, "prompt": prompt.into(), "max_tokens": tokens, "temperature": 0,
            "ignore_eos": true, "stream": true, "stream_options": {"include_usage": true},
        });
        let began = Instant::now();
        let request = ureq::post(format!("{}/v1/completions", self.url));
        let request = request.config().http_status_as_error(false).build();
        let mut response = request.send_json(body)?;
        if response.status() != 200 {
            bail!("{}: {}", self.name, response.body_mut().read_to_string()?);
        }
        let (mut text, mut pieces, mut counted) = (String::new(), Vec::new(), None);
        for line in BufReader::new(response.body_mut().as_reader()).lines() {
            let line = line?;
            let Some(data) = line.strip_prefix("data: ") else { continue };
            if data == "[DONE]" {
                break;
            }
            let event: Value = serde_json::from_str(data)?;
            if let Some(error) = event.get("error") {
                bail!("{}: {error}", self.name);
            }
            let piece = event["choices"][0]["text"].as_str();
            if let Some(piece) = piece.filter(|text| !text.is_empty()) {
                text += piece;
                pieces.push(began.elapsed());
            }
            counted = event["usage"]["completion_tokens"].as_u64().or(counted);
        }
        let counted = counted.context("the stream ended without saying how many tokens it was")?;
        ensure!(!pieces.is_empty(), "the stream ended without a token");
        ensure!(counted as usize == tokens, "{counted} tokens came, {tokens} were asked for");
        Ok(Answer { text, tokens, pieces })
    }
}
