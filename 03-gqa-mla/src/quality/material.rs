//! Texts and questions that no embedded model was trained on.

use embedded_models::recall::{FIRST_HELD_OUT_SEED, World};
use embedded_models::tales::tale;
use naive_decode::{Result, Tokenizer};

/// What caches are judged by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Material {
    /// Texts that are predicted token by token.
    pub texts: Vec<Vec<u32>>,
    /// Prompts, each with questions about it.
    pub quizzes: Vec<Quiz>,
}

/// A prompt and questions about it; each is asked as if it were the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quiz {
    /// What is read first.
    pub prompt: Vec<u32>,
    /// What is then asked.
    pub questions: Vec<Question>,
}

/// One question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The question, up to where the answer comes.
    pub ask: Vec<u32>,
    /// The answer.
    pub answer: Vec<u32>,
}

/// Texts, and tokens of each: most of the embedded models' context.
const TEXTS: u64 = 3;
const TEXT_TOKENS: usize = 448;

/// Worlds that are asked about.
const WORLDS: u64 = 6;

/// Facts of a world and other sentences after each: about 250 tokens, so that what is asked for is far
/// behind whatever window a cache has.
const FACTS: usize = 6;
const FILLER: usize = 3;

impl Material {
    /// Held-out tales and held-out worlds of facts, for the embedded models.
    ///
    /// # Errors
    /// If the tokenizer cannot write them.
    pub fn embedded(tokenizer: &Tokenizer) -> Result<Self> {
        Ok(Material {
            texts: (0..TEXTS).map(|number| text(tokenizer, number)).collect::<Result<_>>()?,
            quizzes: (0..WORLDS).map(|number| quiz(tokenizer, number)).collect::<Result<_>>()?,
        })
    }

    /// A prompt as the only text, its last token as the only answer.
    ///
    /// # Panics
    /// If the prompt has fewer than two tokens.
    pub fn prompt_alone(prompt: &[u32]) -> Self {
        let (answer, before) = prompt.split_last().expect("a prompt has tokens");
        let (ask, before) = before.split_last().expect("a prompt has tokens");
        let questions = vec![Question { ask: vec![*ask], answer: vec![*answer] }];
        let quizzes = vec![Quiz { prompt: before.to_vec(), questions }];
        Material { texts: vec![prompt.to_vec()], quizzes }
    }
}

/// Tales one after another, until there are enough tokens.
fn text(tokenizer: &Tokenizer, number: u64) -> Result<Vec<u32>> {
    let mut text = String::new();
    let mut seed = FIRST_HELD_OUT_SEED + number * 1000;
    loop {
        text += &tale(seed).text;
        text += "\n\n";
        seed += 1;
        let tokens = tokenizer.encode(&text)?;
        if tokens.len() >= TEXT_TOKENS {
            return Ok(tokens[..TEXT_TOKENS].to_vec());
        }
    }
}

fn quiz(tokenizer: &Tokenizer, number: u64) -> Result<Quiz> {
    let world = World::held_out(number, FACTS, FILLER);
    let question = |fact| -> Result<Question> {
        let ask = tokenizer.encode(&world.question(fact))?;
        Ok(Question { ask, answer: tokenizer.encode(world.answer(fact))? })
    };
    let questions = (0..FACTS).map(question).collect::<Result<_>>()?;
    Ok(Quiz { prompt: tokenizer.encode(world.prompt())?, questions })
}
