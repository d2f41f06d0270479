//! A model's greedy tokens, on the processor and on the GPU.
//!
//! The processor writes a text; the GPU is fed the same tokens and says after each what it would take next. So one token
//! that differs does not make all after it differ, and every step is a comparison.

use crate::device::{OnGpu, check_memory, text_room};
use anyhow::{Result, ensure};
use cuda_executor::Driver;
use cuda_kernels::Gpu;
use kv_cache::{CONTIGUOUS, CachedDecoder, CachedExecutor};
use model_files::ModelFiles;
use naive_decode::measurement::median;
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

/// How far the furthest logit of a usual step may be off, as a part of the usual size of one. Activations are rounded to bfloat16
/// some ten times in each layer, by 2^-9 of themselves on average; over some tens of layers that adds up, as a root, to a few
/// hundredths.
const BOUND: f32 = 0.1;

/// How far that of any step may be. A few steps are off several times as far as the usual one, as they are where PyTorch runs a
/// model in bfloat16 on a processor.
const MOST: f32 = 0.5;

/// How the two compare.
#[derive(Debug, Serialize)]
pub struct Compared {
    /// The model.
    pub model: String,
    /// Why it was not run on the GPU, if it was not.
    pub left_out: Option<String>,
    /// Which kernels prompts took on the GPU.
    pub prompts: String,
    /// Steps that were compared.
    pub steps: usize,
    /// Those where both would take the same token.
    pub agreed: usize,
    /// Those where the processor's second likeliest token is so far behind that both must take the same.
    pub certain: usize,
    /// Those of them where they do not.
    pub wrong: usize,
    /// At each step, how far the furthest logit is off, as a part of the usual size of one; infinite, which is null in JSON, if
    /// it is no number.
    pub furthest: Vec<f32>,
}

impl Compared {
    /// In words.
    pub fn said(&self) -> String {
        match &self.left_out {
            Some(why) => format!("left out: {why}"),
            None => format!(
                "{} of {} greedy tokens agree, {} of {} that must; prompts took {}",
                self.agreed,
                self.steps,
                self.certain - self.wrong,
                self.certain,
                self.prompts
            ),
        }
    }

    /// What is wrong, if anything is.
    pub fn problem(&self) -> Option<String> {
        if self.left_out.is_some() {
            return None;
        }
        let Compared { model, steps, certain, wrong, .. } = self;
        let far = self.furthest.iter().filter(|&&off| off > MOST).count();
        if *wrong > 0 {
            return Some(format!("{model}: {wrong} tokens are not those of the processor"));
        }
        if far > 0 {
            return Some(format!(
                "{model}: logits of {far} of {steps} steps are off by more than {MOST}"
            ));
        }
        let furthest: Vec<f64> = self.furthest.iter().map(|&off| off.into()).collect();
        let usual = (!furthest.is_empty()).then(|| median(&furthest));
        if let Some(usual) = usual.filter(|&usual| usual > BOUND.into()) {
            return Some(format!(
                "{model}: logits of the usual step are off by {usual:.2}, expected {BOUND} at most"
            ));
        }
        // A comparison that could hardly have failed has shown nothing.
        (certain * 4 < *steps || *steps == 0).then(|| {
            format!(
                "{model}: only {certain} of {steps} tokens are certain, expected a quarter at least"
            )
        })
    }
}

/// Compares a model on the processor, in f32 over keys and values in bf16, with the same on a GPU.
///
/// # Errors
/// Whatever is wrong with the files, or a GPU that fails.
pub fn compare(gpu: Driver, files: &ModelFiles) -> Result<Compared> {
    let prompts = prompts();
    let prompts: Vec<&str> = prompts.iter().map(String::as_str).collect();
    let free = gpu.memory()?.0;
    compare_within(gpu, files, (&prompts, TOKENS), Some(free))
}

/// Short ones, and one that is long enough for the kernels for many rows.
fn prompts() -> Vec<String> {
    let long = PROMPTS.join(" ").repeat(4);
    PROMPTS.iter().map(ToString::to_string).chain([long]).collect()
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
    compare_within(gpu, files, (prompts, tokens), None)
}

/// The same on a GPU of which so many bytes are free, if that is known.
fn compare_within<G: Gpu + 'static>(
    gpu: G,
    files: &ModelFiles,
    (prompts, tokens): (&[&str], usize),
    free: Option<usize>,
) -> Result<Compared> {
    let mut compared = Compared {
        model: files.name.clone(),
        left_out: None,
        prompts: String::new(),
        steps: 0,
        agreed: 0,
        certain: 0,
        wrong: 0,
        furthest: Vec::new(),
    };
    let prompts: Vec<Vec<u32>> = prompts
        .iter()
        .map(|prompt| files.tokenizer.encode_with_special(prompt))
        .collect::<Result<_, _>>()?;
    let longest = prompts.iter().map(Vec::len).max().unwrap_or(0) + tokens;
    let fits = || {
        let llama = files.plain_llama(None)?;
        let context = llama.rope.positions();
        ensure!(longest <= context, "its context of {context} is less than the {longest} compared");
        let room = text_room(&llama, longest);
        let bytes = room.bytes(&llama.config)?;
        free.map_or(Ok(()), |free| check_memory(bytes, free))?;
        Ok((llama, room))
    };
    let (llama, room) = match fits() {
        Ok(fits) => fits,
        Err(error) => return Ok(Compared { left_out: Some(error.to_string()), ..compared }),
    };
    let options = LoadOptions { kv_element: Element::Bf16, ..LoadOptions::default() };
    let model = Arc::new(files.load(options)?);
    let mut executor = OnGpu { gpu, llama, room }.executor(files)?;
    compared.prompts = executor.prompts().to_string();
    executor.cache_mut().open();
    let mut on_gpu = CachedDecoder::over(executor, Some(room.rows))?;
    for prompt in prompts {
        let settings = Settings { capacity: longest, prefill_chunk: None, threads: None };
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
        // What is no number is further off than anything.
        let off = off.map(|off| if off.is_nan() { f32::INFINITY } else { off });
        self.furthest.push(off.fold(0.0, f32::max));
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

#[cfg(test)]
mod tests {
    use super::*;
    use embedded_models::TARGET;

    /// Steps of a model of four tokens, of which the last is far the likeliest.
    fn compared(found: &[[f32; 4]]) -> Compared {
        let mut compared = Compared {
            model: "m".into(),
            left_out: None,
            prompts: "the usual kernels".into(),
            steps: 0,
            agreed: 0,
            certain: 0,
            wrong: 0,
            furthest: Vec::new(),
        };
        found.iter().for_each(|found| compared.add(&[0.0, 1.0, 2.0, 9.0], found).unwrap());
        compared
    }

    #[test]
    fn logits_that_are_wrong_are_a_problem_even_where_the_token_is_right() {
        let right = [0.0, 1.0, 2.0, 9.0];
        assert_eq!(compared(&[right, right]).problem(), None);
        // Whatever comes after it, what is no number is not forgotten.
        for place in 0..3 {
            let mut none = right;
            none[place] = f32::NAN;
            let compared = compared(&[right, none]);
            assert_eq!(compared.furthest, [0.0, f32::INFINITY]);
            assert!(compared.problem().is_some(), "{compared:?}");
        }
        let off = compared(&[[0.0, 4.0, 2.0, 9.0]]).problem().unwrap();
        assert_eq!(off, "m: logits of 1 of 1 steps are off by more than 0.5");
        // One step may be off a little further, and not every second one.
        let further = [0.0, 2.0, 2.0, 9.0];
        assert_eq!(compared(&[right, right, further]).problem(), None);
        let usual = compared(&[right, further, further]).problem().unwrap();
        assert_eq!(usual, "m: logits of the usual step are off by 0.22, expected 0.1 at most");
        let wrong = compared(&[[9.0, 1.0, 2.0, 0.0]]).problem().unwrap();
        assert!(wrong.contains("1 tokens are not those of the processor"), "{wrong}");
    }

    #[test]
    fn a_comparison_of_nothing_is_a_problem() {
        assert!(compared(&[]).problem().unwrap().contains("only 0 of 0 tokens"));
        let uncertain = Compared { certain: 1, ..compared(&[[0.0, 1.0, 2.0, 9.0]; 5]) };
        assert!(uncertain.problem().unwrap().contains("only 1 of 5 tokens are certain"));
        let left_out = Compared { left_out: Some("too large".into()), ..compared(&[]) };
        assert_eq!(left_out.problem(), None);
    }

    #[test]
    fn one_prompt_takes_the_kernels_for_many_rows_and_all_fit_the_embedded_model() {
        let files = ModelFiles::embedded(&TARGET).unwrap();
        let length = |prompt: &String| files.tokenizer.encode_with_special(prompt).unwrap().len();
        let longest = prompts().iter().map(length).max().unwrap();
        let context = files.plain_llama(None).unwrap().rope.positions();
        assert!(longest > 200 && longest + TOKENS <= context, "{longest} of {context}");
    }
}
