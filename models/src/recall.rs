//! Recall: worlds of facts, "The word of Ada is amber.", and questions that only a reader who looks
//! back can answer.
//!
//! Names and values are drawn afresh for every world and each is one token, so the answer to a
//! question hangs on one cached position: the value's, in the one sentence that states the fact.
//! Corrupt that position, evict it or slide a window past it, and the answer goes wrong; touch any
//! other fact's, and it stays.
//!
//! ```
//! use embedded_models::recall::World;
//!
//! let world = World::held_out(7, 3, 1);
//! let fact = &world.facts[0];
//! assert_eq!(world.question(0), format!(
//!     "\nQuestion: What is the word of {}?\nAnswer: The word of {} is", fact.name, fact.name,
//! ));
//! assert_eq!(world.answer(0), format!(" {}", fact.value));
//! assert_eq!(&world.prompt()[fact.value_bytes.clone()], world.answer(0));
//! ```

use std::ops::Range;

use crate::dice::Dice;
use crate::document::Document;
use crate::tales::Scene;
use crate::words::{NAMES, VALUES};

/// The first seed that training never uses. Training documents have seeds below it; tests and
/// evaluations use seeds from it on, by [`World::held_out`].
pub const FIRST_HELD_OUT_SEED: u64 = 1 << 32;

/// About how long a training document is: a little more than 512 tokens, the trained context, so
/// that a training window that begins where a document begins holds one world and no other.
const DOCUMENT_BYTES: usize = 2_400;

/// Most facts of a [`World`]: four of the names are kept for the people of the other sentences.
pub const MOST_PAIRS: usize = NAMES.len() - 4;

/// One name, the value it has, and where the prompt says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// Who.
    pub name: &'static str,
    /// Which word is theirs.
    pub value: &'static str,
    /// The bytes of the prompt's one sentence that states this fact, full stop included.
    pub sentence_bytes: Range<usize>,
    /// The bytes of the value in that sentence with the space before it: one token, the position
    /// on which the answer hangs.
    pub value_bytes: Range<usize>,
}

/// Some facts, told once each with other sentences in between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct World {
    /// The facts in the order in which the prompt states them. Names differ, and so do values.
    pub facts: Vec<Fact>,
    prompt: String,
}

impl World {
    /// The world of this seed with `pairs` facts and `filler` sentences about other people and the
    /// weather after each of them.
    ///
    /// # Panics
    /// If `pairs` is more than [`MOST_PAIRS`].
    pub fn new(seed: u64, pairs: usize, filler: usize) -> World {
        World::from_dice(&mut Dice::new(seed), pairs, filler)
    }

    /// The `number`th world that no model of the family has seen in training.
    ///
    /// # Panics
    /// As [`World::new`].
    pub fn held_out(number: u64, pairs: usize, filler: usize) -> World {
        World::new(FIRST_HELD_OUT_SEED + number, pairs, filler)
    }

    pub(crate) fn from_dice(dice: &mut Dice, pairs: usize, filler: usize) -> World {
        assert!(pairs <= MOST_PAIRS, "a world has at most {MOST_PAIRS} facts, not {pairs}");
        let names = dice.draw(&NAMES, pairs);
        let values = dice.draw(&VALUES, pairs);
        let mut scene = Scene::new(dice, &names);
        let mut prompt = "Remember these words.".to_owned();
        let mut facts = Vec::with_capacity(pairs);
        for (name, value) in names.into_iter().zip(values) {
            prompt.push(' ');
            let start = prompt.len();
            prompt += &match dice.below(4) {
                0 => format!("The secret word of {name} is"),
                1 => format!("As everybody knows, the word of {name} is"),
                _ => format!("The word of {name} is"),
            };
            let value_start = prompt.len();
            prompt += &format!(" {value}");
            let value_bytes = value_start..prompt.len();
            prompt.push('.');
            facts.push(Fact { name, value, sentence_bytes: start..prompt.len(), value_bytes });
            for _ in 0..filler {
                prompt += &format!(" {}", scene.step(dice));
            }
        }
        World { facts, prompt }
    }

    /// The text that states the facts. A question follows it directly.
    pub fn prompt(&self) -> &str {
        &self.prompt
    }

    /// The question about fact `i` and the beginning of its answer, up to where the value comes.
    pub fn question(&self, i: usize) -> String {
        let name = self.facts[i].name;
        format!("\nQuestion: What is the word of {name}?\nAnswer: The word of {name} is")
    }

    /// What comes after [`World::question`]: the value with the space before it, one token.
    pub fn answer(&self, i: usize) -> &str {
        &self.prompt[self.facts[i].value_bytes.clone()]
    }
}

/// The first lessons: pairs with the name right before the value, listed again and again. What is to
/// be learnt from them is the one habit that recall needs: find the same name earlier, copy what
/// followed it.
pub fn list_document(seed: u64) -> Document {
    let dice = &mut Dice::new(seed);
    let pairs = dice.between(2, 12);
    let names = dice.draw(&NAMES, pairs);
    let values = dice.draw(&VALUES, pairs);
    let (before, between, after) = dice.pick(&[
        ("", "", ","),
        ("\n-", ":", ""),
        ("", " is", "."),
        (" The word of", " is", "."),
    ]);
    let mut document = Document::default();
    document.push("Words:");
    let mut order: Vec<_> = (0..pairs).collect();
    let mut first_round = true;
    while document.text.len() < DOCUMENT_BYTES {
        for &i in &order {
            document.push(&format!("{before} {}{between}", names[i]));
            let value = format!(" {}", values[i]);
            if first_round {
                document.push(&value)
            } else {
                document.push_answer(&value)
            }
            document.push(after);
        }
        first_round = false;
        dice.shuffle(&mut order);
    }
    document
}

/// A world with few sentences between its facts, and questions about it to the document's end.
pub fn near_document(seed: u64) -> Document {
    let dice = &mut Dice::new(seed);
    let pairs = dice.between(2, 8);
    let filler = dice.pick(&[0, 0, 0, 1, 1, 2]);
    let world = World::from_dice(dice, pairs, filler);
    questions(dice, &world)
}

/// A world with many sentences between its facts: up to 350 tokens from a fact to its question.
pub fn far_document(seed: u64) -> Document {
    let dice = &mut Dice::new(seed);
    let pairs = dice.between(2, 8);
    // A fact is about 9 tokens and a sentence about 11; this fills at most three quarters of the context.
    let most = (380 - 9 * pairs) / (11 * pairs);
    let filler = dice.between(1, most);
    let world = World::from_dice(dice, pairs, filler);
    questions(dice, &world)
}

/// The world's text, then questions, in a fifth of the documents as a chat.
fn questions(dice: &mut Dice, world: &World) -> Document {
    let mut document = Document::default();
    let chat = dice.percent(20);
    if chat {
        document.push("<|user|>\n");
    }
    document.push(world.prompt());
    ask(dice, world, &mut document, chat);
    document
}

/// Questions to the document's end, each pair again and again. Half of the documents keep the
/// order of the facts, which is what makes a model that continues such a text go through them all.
pub(crate) fn ask(dice: &mut Dice, world: &World, document: &mut Document, chat: bool) {
    let in_order = dice.percent(50);
    let mut order: Vec<_> = (0..world.facts.len()).collect();
    let mut first = true;
    while document.text.len() < DOCUMENT_BYTES {
        if !in_order {
            dice.shuffle(&mut order);
        }
        for &i in &order {
            let name = world.facts[i].name;
            let question = if chat {
                let turn = if first { " " } else { "<|user|>\n" };
                format!(
                    "{turn}What is the word of {name}?<|end|>\n<|assistant|>\nThe word of {name} is"
                )
            } else {
                world.question(i)
            };
            // Whom to ask about is looked up too: a model that has learnt it goes on asking about
            // people of this world.
            let (before, after) = question.split_once(name).unwrap_or((&question, ""));
            document.push(before.trim_end_matches(' '));
            document.push_answer(&format!(" {name}"));
            document.push(after);
            document.push_answer(world.answer(i));
            document.push(if chat { ".<|end|>\n" } else { "." });
            first = false;
        }
    }
}
