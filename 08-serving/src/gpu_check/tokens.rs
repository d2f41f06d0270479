//! A model's greedy tokens, on the processor and on the GPU.
//!
//! The processor writes a text; the GPU is fed the same tokens and says after each what it would take next. So one token
//! that differs does not make all after it differ, and every step is a comparison.

use crate::device::OnGpu;
use anyhow::{Result, ensure};
use cuda_kernels::Gpu;
use kv_cache::CONTIGUOUS;
use model_files::ModelFiles;
use naive_decode::{Decoder, Element, LoadOptions, Settings, argmax};
use serde::Serialize;
use std::sync::Arc;

/// Tokens that are compared after each prompt.
const TOKENS: usize = 48;

const PROMPTS: [&str; 3] = [
    "Once upon a time there was a small house at the edge of a forest.",
    "The word of Ada is amber. The word of Ben is basalt. Question: What is the word of Ada?\nAnswer:",
    "1, 2, 3, 4, 5, 6,",
];

/// How far a logit may be off, as a part of the usual size of one. Activations are rounded to bfloat16 some ten times in
/// each layer, by 2^-9 of themselves on average; over some tens of layers that adds up, as a root, to a few hundredths.
const BOUND: f32 = 0.1;

/// How the two compare.
#[derive(Debug, Serialize)]
pub struct Compared {
    /// The model.
    pub model: String,
    /// Why it was not run on the GPU, if it was not.
    pub left_out: Option<String>,
    /// Steps that were compared.
    pub steps: usize,
    /// Those where both would take the same token.
    pub agreed: usize,
    /// Those where the processor's second likeliest token is so far behind that both must take the same.
    pub certain: usize,
    /// Those of them where they do not.
    pub wrong: usize,
    /// At each step, how far the furthest logit is off, as a part of the usual size of one.
    pub furthest: Vec<f32>,
}

impl Compared {
    /// In words.
    pub fn said(&self) -> String {
        match &self.left_out {
            Some(why) => format!("left out: {why}"),
            None => format!(
                "{} of {} greedy tokens agree, {} of {} that must",
                self.agreed,
                self.steps,
                self.certain - self.wrong,
                self.certain
            ),
        }
    }

    /// What is wrong, if anything is.
    pub fn problem(&self) -> Option<String> {
        (self.wrong > 0).then(|| {
            format!("{}: {} tokens are not those of the processor", self.model, self.wrong)
        })
    }
}

/// Compares a model on the processor, in f32 over keys and values in bf16, with the same on a GPU.
///
/// # Errors
/// Whatever is wrong with the files, or a GPU that fails.
pub fn compare<G: Gpu + 'static>(gpu: G, files: &ModelFiles) -> Result<Compared> {
    compare_texts(gpu, files, &PROMPTS, TOKENS)
}

/// The same for these prompts and so many tokens after each.
///
/// # Errors
/// As [`compare`].
pub fn compare_texts<G: Gpu + 'static>(
    gpu: G,
    files: &ModelFiles,
    prompts: &[&str],
    tokens: usize,
) -> Result<Compared> {
    let mut compared = Compared {
        model: files.name.clone(),
        left_out: None,
        steps: 0,
        agreed: 0,
        certain: 0,
        wrong: 0,
        furthest: Vec::new(),
    };
    let llama = match files.plain_llama(None) {
        Ok(llama) => llama,
        Err(error) => return Ok(Compared { left_out: Some(error.to_string()), ..compared }),
    };
    let prompts: Vec<Vec<u32>> = prompts
        .iter()
        .map(|prompt| files.tokenizer.encode_with_special(prompt))
        .collect::<Result<_, _>>()?;
    let longest = prompts.iter().map(Vec::len).max().unwrap_or(0) + tokens;
    ensure!(longest <= llama.rope.positions(), "the prompts are longer than the model's context");
    let options = LoadOptions { kv_element: Element::Bf16, ..LoadOptions::default() };
    let model = Arc::new(files.load(options)?);
    let mut on_gpu = OnGpu { gpu, llama }.decoder(files, longest)?;
    for prompt in prompts {
        let settings = Settings { capacity: longest, prefill_chunk: None };
        let mut right = (CONTIGUOUS.start)(Arc::clone(&model), settings)?;
        on_gpu.truncate(0)?;
        let mut next = prompt;
        for _ in 0..tokens {
            let (right, found) = (right.feed(&next)?, on_gpu.feed(&next)?);
            compared.add(&right, &found)?;
            next = vec![argmax(&right)?];
        }
    }
    Ok(compared)
}

impl Compared {
    /// One step more: the logits `[vocab]` of both.
    fn add(&mut self, right: &[f32], found: &[f32]) -> Result<()> {
        let size = (right.iter().map(|x| x * x).sum::<f32>() / right.len() as f32).sqrt();
        let off = right.iter().zip(found).map(|(right, found)| (right - found).abs() / size);
        // A NaN is further off than anything.
        self.furthest.push(off.fold(0.0, |most, off| if off <= most { most } else { off }));
        let best = argmax(right)?;
        let second = right.iter().enumerate().filter(|(token, _)| *token != best as usize);
        let second = second.map(|(_, &x)| x).fold(f32::NEG_INFINITY, f32::max);
        let is_certain = right[best as usize] - second > 2.0 * BOUND * size;
        let is_same = argmax(found).is_ok_and(|token| token == best);
        self.steps += 1;
        self.agreed += usize::from(is_same);
        self.certain += usize::from(is_certain);
        self.wrong += usize::from(is_certain && !is_same);
        Ok(())
    }
}
