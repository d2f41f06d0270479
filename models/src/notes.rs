//! Worlds told in blocks, each followed by notes that keep its facts and drop the rest.
//!
//! Whoever has written the notes can forget the block: the answers are in both. This is the task on which
//! compaction is judged, in the manner of Memento (Microsoft Research 2026), where a model summarises each
//! finished block of its text and keeps only the summary in its cache. What the notes leave out, the sentences of
//! a tale between the facts, is lost with the block.
//!
//! ```
//! use embedded_models::notes::NotedWorld;
//!
//! let noted = NotedWorld::held_out(7, 2, 3, 1);
//! assert!(noted.block(0).starts_with("Remember these words."));
//! let [first, second, ..] = &noted.world().facts[..] else { panic!("two blocks of three facts") };
//! assert!(noted.notes(0).starts_with(&format!(
//!     "\nNotes: {} is {}, {} is {}", first.name, first.value, second.name, second.value,
//! )));
//! ```

use crate::dice::Dice;
use crate::document::Document;
use crate::recall::{FIRST_HELD_OUT_SEED, World, ask};

/// A world whose text is cut into blocks of as many facts each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotedWorld {
    world: World,
    facts_per_block: usize,
}

impl NotedWorld {
    /// The `number`th noted world that no model of the family has seen in training: so many blocks, each of so
    /// many facts, each fact followed by `filler` other sentences.
    ///
    /// # Panics
    /// If there are no facts in a block, or more than [`MOST_PAIRS`](crate::recall::MOST_PAIRS) in all.
    pub fn held_out(
        number: u64,
        blocks: usize,
        facts_per_block: usize,
        filler: usize,
    ) -> NotedWorld {
        let dice = &mut Dice::new(FIRST_HELD_OUT_SEED + FIRST_SEED + number);
        NotedWorld::from_dice(dice, blocks, facts_per_block, filler)
    }

    fn from_dice(
        dice: &mut Dice,
        blocks: usize,
        facts_per_block: usize,
        filler: usize,
    ) -> NotedWorld {
        assert!(facts_per_block > 0, "a block without facts has no notes");
        let world = World::from_dice(dice, blocks * facts_per_block, filler);
        NotedWorld { world, facts_per_block }
    }

    /// The facts, and the questions about them.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> usize {
        self.world.facts.len() / self.facts_per_block
    }

    /// The text of block `i`, on a line of its own.
    pub fn block(&self, i: usize) -> String {
        let start_of = |block: usize| match self.world.facts.get(block * self.facts_per_block) {
            Some(_) if block == 0 => 0,
            Some(fact) => fact.sentence_bytes.start,
            None => self.world.prompt().len(),
        };
        let text = self.world.prompt()[start_of(i)..start_of(i + 1)].trim_end();
        format!("{}{text}", if i > 0 { "\n" } else { "" })
    }

    /// The notes on block `i`: its facts, each in three words.
    pub fn notes(&self, i: usize) -> String {
        self.notes_document(i).text
    }

    /// The notes with what must be looked up marked: every name and value.
    fn notes_document(&self, i: usize) -> Document {
        let mut document = Document::default();
        document.push(NOTES);
        let facts = &self.world.facts[i * self.facts_per_block..][..self.facts_per_block];
        for (at, fact) in facts.iter().enumerate() {
            document.push_answer(&format!(" {}", fact.name));
            document.push(" is");
            document.push_answer(&format!(" {}", fact.value));
            document.push(if at + 1 < facts.len() { "," } else { "." });
        }
        document
    }
}

/// What asks for notes on the block before it.
pub const NOTES: &str = "\nNotes:";

/// Training documents and held-out worlds are numbered from here, apart from every other text's.
pub const FIRST_SEED: u64 = 5 << 28;

/// A world in one to three blocks with notes after each, then questions. Of some blocks only the notes
/// are there, as after compaction, so that answers are learnt to be in the notes as well.
pub fn document(seed: u64) -> Document {
    let dice = &mut Dice::new(seed);
    let blocks = dice.between(1, 3);
    let facts_per_block = dice.between(1, if blocks == 1 { 5 } else { 3 });
    // A fact is about 9 tokens, 4 more in the notes, and a sentence about 11: this leaves a quarter
    // of the context to the questions.
    let facts = blocks * facts_per_block;
    let most_filler = (380 - 14 * facts) / (11 * facts);
    let filler = dice.between(0, most_filler.min(6));
    let noted = NotedWorld::from_dice(dice, blocks, facts_per_block, filler);
    let mut document = Document::default();
    for block in 0..blocks {
        if dice.percent(60) {
            document.push(&noted.block(block));
        }
        document.append(noted.notes_document(block));
    }
    ask(dice, &noted.world, &mut document, false);
    document
}
