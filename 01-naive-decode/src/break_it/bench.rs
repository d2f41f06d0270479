//! What every break-it runs on: always the same, so that what comes out can be kept and compared.

use crate::attention::NaiveAttention;
use crate::decode::{Decoder, NaiveDecoder};
use crate::error::{Error, Result};
use crate::executor::CpuExecutor;
use crate::load::LoadOptions;
use crate::model::Model;
use crate::tokenizer::Tokenizer;
use embedded_models::TARGET;
use embedded_models::recall::FIRST_HELD_OUT_SEED;
pub use embedded_models::recall::World;
use embedded_models::tales::tale;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use std::sync::Arc;

/// How much of a tale is prompt.
const TALE_SENTENCES: usize = 4;

/// The model and the prompt.
pub struct Bench {
    /// The embedded target, or another.
    pub model: Arc<Model>,
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
    /// Facts, and the first question about them. The model goes on to answer this one and to ask
    /// the others itself, so nearly every sentence it writes can be checked against the prompt.
    pub prompt: Vec<u32>,
    /// Whether the model is the embedded target.
    pub is_embedded: bool,
}

impl Bench {
    /// The embedded target and a world that it has not been trained on.
    ///
    /// # Errors
    /// If the embedded files do not fit together.
    pub fn embedded() -> Result<Self> {
        let options = LoadOptions::default();
        let model = Model::embedded(TARGET.name, TARGET.config, TARGET.weights, options)?;
        let name = format!("{}/tokenizer.json", TARGET.name);
        let tokenizer = Tokenizer::from_bytes(&name, TARGET.tokenizer)?;
        tokenizer.check_vocab_size(model.config.vocab_size)?;
        Ok(Bench { is_embedded: true, ..Bench::of(Arc::new(model), tokenizer)? })
    }

    /// The same prompt for another model: it reads facts and a question, whatever it makes of them.
    ///
    /// # Errors
    /// If the tokenizer cannot write the text.
    pub fn of(model: Arc<Model>, tokenizer: Tokenizer) -> Result<Self> {
        let world = Bench::world(0, 5, 2);
        let text = world.prompt().to_owned() + &world.question(0);
        let prompt = tokenizer.encode_with_special(&text)?;
        Ok(Bench { model, tokenizer, prompt, is_embedded: false })
    }

    /// Refuses other models than the embedded target, for break-its that hang on what that one learnt or
    /// how it is made: `why`.
    ///
    /// # Errors
    /// If the model is another.
    pub fn only_embedded(&self, why: &str) -> Result<()> {
        match self.is_embedded {
            true => Ok(()),
            false => {
                let expected = format!("the embedded one: this break-it needs {why}");
                Err(Error::invalid("the model of a break-it", "another", expected))
            }
        }
    }

    /// The same with another prompt.
    ///
    /// # Errors
    /// If the tokenizer cannot write the text.
    pub fn with_prompt(&self, text: &str) -> Result<Self> {
        let prompt = self.tokenizer.encode(text)?;
        let (model, tokenizer) = (Arc::clone(&self.model), self.tokenizer.clone());
        Ok(Bench { model, tokenizer, prompt, is_embedded: self.is_embedded })
    }

    /// The beginning of a tale, whose seed training never used. What happens next is open, and so
    /// hangs on little: a fault that changes logits slightly changes a tale before it changes an
    /// answer.
    pub fn tale(number: u64) -> String {
        let tale = tale(FIRST_HELD_OUT_SEED + number).text;
        tale.split_inclusive(". ").take(TALE_SENTENCES).collect::<String>().trim_end().to_owned()
    }

    /// A world of `pairs` facts with `filler` other sentences after each; see
    /// [`World::held_out`].
    pub fn world(number: u64, pairs: usize, filler: usize) -> World {
        World::held_out(number, pairs, filler)
    }

    /// Attention without a memory, over the whole text at once: the judge of everything.
    pub fn naive_executor(&self) -> CpuExecutor<NaiveAttention> {
        let attention = NaiveAttention::new(self.model.isa);
        CpuExecutor { model: Arc::clone(&self.model), attention }
    }

    /// Logits after `tokens`, `[vocab]`, from the naive decoder.
    ///
    /// # Errors
    /// As [`Decoder::feed`].
    pub fn naive_logits(&self, tokens: &[u32]) -> Result<Vec<f32>> {
        NaiveDecoder::new(Arc::clone(&self.model)).feed(tokens)
    }
}

/// `count` random numbers in [-1, 1), always the same for one seed.
pub fn noise(seed: u64, count: usize) -> Vec<f32> {
    let mut key = [0; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    let mut generator = ChaCha8Rng::from_seed(key);
    (0..count).map(|_| (generator.next_u32() >> 8) as f32 / (1 << 23) as f32 - 1.0).collect()
}
