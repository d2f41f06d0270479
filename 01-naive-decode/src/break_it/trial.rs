//! One prompt, continued twice: by correct code and by the same code with the fault in it.

use super::report::{Check, Recall, Report, Surprise, Text};
use super::{Bench, BreakIt};
use crate::decode::Decoder;
use crate::error::Result;
use crate::generate::{Request, generate};
use crate::sampler::{Sampler, Sampling};

/// Which of the two runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Correct code.
    Clean,
    /// The same with the fault in it.
    Broken,
}

/// What a break-it does on either side.
pub struct Trial<'a> {
    /// The break-it.
    pub about: &'a BreakIt,
    /// Tokens to generate.
    pub tokens: usize,
    /// Sets up a fresh decoder.
    pub decoder: &'a dyn Fn(Side) -> Result<Box<dyn Decoder>>,
    /// The check that must pass on the clean side and fail on the broken one.
    pub guard: &'a dyn Fn(Side) -> Result<()>,
    /// The check that passes on both sides.
    pub weaker_test: Option<&'a dyn Fn(Side) -> Result<()>>,
    /// Recall before and after, where it was measured.
    pub recall: Option<Recall>,
}

/// Tales that are tried after the bench's own prompt.
const TALES: u64 = 4;

/// One prompt, continued by both sides.
struct Pair {
    prompt: Vec<u32>,
    clean: Vec<u32>,
    /// What each token of `clean` was chosen from.
    clean_logits: Vec<Vec<f32>>,
    broken: Vec<u32>,
}

impl Trial<'_> {
    /// Runs both sides on the bench's prompt, and both checks.
    ///
    /// # Errors
    /// If a decoder cannot be set up or cannot run. That a check fails is no error: it is a finding.
    pub fn run(self, bench: &Bench) -> Result<Report> {
        let pair = self.pair(&bench.prompt)?;
        self.report(bench, pair, 1)
    }

    /// The same, but if the fault leaves the bench's prompt as it was, with the first of some tales
    /// whose text it changes. Greedy text is a blunt test, and a faint fault can pass it by luck.
    ///
    /// # Errors
    /// As [`Trial::run`].
    pub fn run_until_it_shows(self, bench: &Bench) -> Result<Report> {
        let first = self.pair(&bench.prompt)?;
        if first.clean != first.broken {
            return self.report(bench, first, 1);
        }
        for tale in 0..TALES {
            let pair = self.pair(&bench.tokenizer.encode(&Bench::tale(tale))?)?;
            if pair.clean != pair.broken {
                return self.report(bench, pair, 2 + tale as usize);
            }
        }
        self.report(bench, first, 1 + TALES as usize)
    }

    fn pair(&self, prompt: &[u32]) -> Result<Pair> {
        let (clean, clean_logits) = self.greedy(prompt, Side::Clean)?;
        let (broken, _) = self.greedy(prompt, Side::Broken)?;
        Ok(Pair { prompt: prompt.to_vec(), clean, clean_logits, broken })
    }

    fn report(self, bench: &Bench, pair: Pair, tried: usize) -> Result<Report> {
        let Pair { prompt, clean, clean_logits, broken } = pair;
        let broken_logits = self.teacher_forced(&prompt, &clean)?;
        let differ = |(a, b): (&Vec<f32>, &Vec<f32>)| {
            a.iter().zip(b).any(|(a, b)| a.to_bits() != b.to_bits())
        };
        Ok(Report {
            name: self.about.name,
            package: self.about.package,
            cites: self.about.cites,
            symptom: self.about.symptom,
            prompt: bench.tokenizer.decode(&prompt)?,
            tried,
            first_difference: clean.iter().zip(&broken).position(|(a, b)| a != b),
            first_logit_difference: clean_logits.iter().zip(&broken_logits).position(differ),
            surprise: Surprise {
                clean: surprise(&clean_logits, &clean),
                broken: surprise(&broken_logits, &clean),
            },
            guard: check(self.about.guard, self.guard),
            weaker_test: self.about.weaker_test.zip(self.weaker_test).map(|(w, run)| check(w, run)),
            recall: self.recall,
            clean: text(bench, &prompt, &clean)?,
            broken: text(bench, &prompt, &broken)?,
        })
    }

    /// The greedy continuation, and the logits that each of its tokens was chosen from.
    fn greedy(&self, prompt: &[u32], side: Side) -> Result<(Vec<u32>, Vec<Vec<f32>>)> {
        let mut decoder = (self.decoder)(side)?;
        // No end tokens: both sides write the same number of tokens.
        let prompt = prompt.to_vec();
        let request = Request { prompt, tokens: self.tokens, end_tokens: Vec::new() };
        let sampler = Sampler::new(Sampling::default())?;
        let steps = generate(&mut *decoder, sampler, request)?;
        steps.map(|step| step.map(|step| (step.token, step.logits))).collect()
    }

    /// The broken side's logits along the clean text.
    fn teacher_forced(&self, prompt: &[u32], text: &[u32]) -> Result<Vec<Vec<f32>>> {
        let mut decoder = (self.decoder)(Side::Broken)?;
        let before_last = text.split_last().map_or(text, |(_, before)| before);
        std::iter::once(prompt)
            .chain(before_last.chunks(1))
            .map(|tokens| decoder.feed(tokens))
            .collect()
    }
}

pub(super) fn check(what: &'static str, run: &dyn Fn(Side) -> Result<()>) -> Check {
    let said = |side| run(side).err().map(|error| error.to_string());
    Check { what, on_clean: said(Side::Clean), on_broken: said(Side::Broken) }
}

pub(super) fn text(bench: &Bench, prompt: &[u32], tokens: &[u32]) -> Result<Text> {
    let mut stream = bench.tokenizer.stream_after(prompt);
    let tokens = tokens.iter().map(|&t| stream.push(t)).collect::<Result<Vec<String>>>()?;
    Ok(Text { text: tokens.concat(), tokens })
}

/// −log2 of the probability that each row of logits gives to its token, to a hundredth of a bit.
pub(super) fn surprise(logits: &[Vec<f32>], tokens: &[u32]) -> Vec<f64> {
    let bits = |(row, &token): (&Vec<f32>, &u32)| {
        let highest = row.iter().fold(f64::NEG_INFINITY, |high, &l| high.max(f64::from(l)));
        let below = |l: f32| (f64::from(l) - highest) * std::f64::consts::LOG2_E;
        let total: f64 = row.iter().map(|&l| libm::exp2(below(l))).sum();
        let bits = libm::log2(total) - below(row[token as usize]);
        // Adding zero turns a rounded -0 into 0.
        (bits * 100.0).round() / 100.0 + 0.0
    };
    logits.iter().zip(tokens).map(bits).collect()
}

#[cfg(test)]
mod tests {
    use super::surprise;

    #[test]
    fn surprise_is_bits() {
        let even = vec![1.5; 8];
        let certain = vec![100.0, 0.0];
        assert_eq!(surprise(&[even, certain.clone(), certain], &[3, 0, 1]), [3.0, 0.0, 144.27]);
    }
}
