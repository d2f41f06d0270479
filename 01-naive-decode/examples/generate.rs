//! Lets the model that the book goes on with continue a text, token by token, the naive way.
//!
//!     cargo run --release -p naive-decode --example generate -- "The word of Ada is amber."

use embedded_models::TARGET;
use naive_decode::{
    LoadOptions, Model, NaiveDecoder, Request, Sampler, Sampling, Tokenizer, generate,
};
use std::error::Error;
use std::io::{Write, stdout};
use std::sync::Arc;

// ANCHOR: main
fn main() -> Result<(), Box<dyn Error>> {
    let text = std::env::args().nth(1).unwrap_or("Ada was at the mill.".into());
    let options = LoadOptions::default();
    let model = Model::embedded(TARGET.name, TARGET.config, TARGET.weights, options)?;
    let tokenizer = Tokenizer::from_bytes(TARGET.name, TARGET.tokenizer)?;

    let prompt = tokenizer.encode_with_special(&text)?;
    let mut written = tokenizer.stream_after(&prompt);
    let mut decoder = NaiveDecoder::new(Arc::new(model));
    let sampler = Sampler::new(Sampling { temperature: 0.7, seed: 7, ..Sampling::default() })?;
    let end_tokens = vec![0]; // the token that ends a text
    let request = Request { prompt, tokens: 120, end_tokens };

    print!("{text}");
    for step in generate(&mut decoder, sampler, request)? {
        print!("{}", written.push(step?.token)?);
        stdout().flush()?; // now, not at the end of the line
    }
    println!("{}", written.finish());
    Ok(())
}
// ANCHOR_END: main
