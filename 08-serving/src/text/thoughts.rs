//! What a model thinks, told from what it answers.
//!
//! Models that reason write `<think>…</think>` before they answer. Some templates write the opening mark themselves, so
//! that an answer begins with thoughts and has the closing mark only.

use super::overlap;

/// What thoughts stand between.
pub const THOUGHTS: (&str, &str) = ("<think>", "</think>");

/// What a prompt leaves open of a model's thinking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thinking {
    /// Nothing: the model does not think, or has done so.
    Over,
    /// It may think before it answers.
    MayCome,
    /// The prompt has opened its thoughts.
    UnderWay,
}

/// Tells thoughts from the answer while both come. White space around thoughts belongs to neither.
#[derive(Debug, Clone)]
pub struct ThoughtFinder {
    held: String,
    place: Place,
}

/// Where the text is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Where thoughts may begin: nothing but white space so far.
    Start,
    /// The same, and they have been opened. A model may write the mark again.
    Opened,
    /// At the beginning of thoughts: nothing but white space so far.
    Beginning,
    /// In thoughts.
    Thoughts,
    /// Behind them: nothing but white space since.
    After,
    /// In the answer.
    Answer,
}

/// What a piece of text comes to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Thought {
    /// What is thought.
    pub thoughts: String,
    /// What is answered.
    pub answer: String,
}

impl ThoughtFinder {
    /// For what comes after a prompt that leaves the model's thinking so.
    pub fn new(thinking: Thinking) -> Self {
        let place = match thinking {
            Thinking::Over => Place::Answer,
            Thinking::MayCome => Place::Start,
            Thinking::UnderWay => Place::Opened,
        };
        ThoughtFinder { held: String::new(), place }
    }

    /// Takes more text. What could be the beginning of a mark is held back, and white space before one.
    pub fn push(&mut self, text: &str) -> Thought {
        self.held += text;
        let mut found = Thought::default();
        while self.step(&mut found) {}
        found
    }

    /// What the text so far leaves open.
    pub fn thinking(&self) -> Thinking {
        match self.place {
            Place::Start => Thinking::MayCome,
            Place::Opened | Place::Beginning | Place::Thoughts => Thinking::UnderWay,
            Place::After | Place::Answer => Thinking::Over,
        }
    }

    /// Ends the text: what was held back is all there is.
    pub fn finish(&mut self) -> Thought {
        let held = std::mem::take(&mut self.held);
        match self.place {
            Place::Opened | Place::Beginning | Place::Thoughts => {
                Thought { thoughts: held.trim_end().to_owned(), answer: String::new() }
            }
            Place::After => Thought::default(),
            Place::Start | Place::Answer => Thought { thoughts: String::new(), answer: held },
        }
    }

    /// One step on; false if more text is needed.
    fn step(&mut self, found: &mut Thought) -> bool {
        let (open, close) = THOUGHTS;
        let said = self.held.trim_start();
        let before = self.held.len() - said.len();
        match self.place {
            Place::Start | Place::Opened => {
                if said.len() < open.len() && open.starts_with(said) {
                    return false;
                }
                self.place = match (said.starts_with(open), self.place) {
                    (true, _) => {
                        self.held.drain(..before + open.len());
                        Place::Beginning
                    }
                    (false, Place::Opened) => Place::Beginning,
                    // White space at the start of an answer without thoughts is the answer's.
                    (false, _) => Place::Answer,
                };
                true
            }
            Place::Beginning | Place::After => {
                let is_blank = said.is_empty();
                self.held.drain(..before);
                if !is_blank {
                    let is_after = self.place == Place::After;
                    self.place = if is_after { Place::Answer } else { Place::Thoughts };
                }
                !is_blank
            }
            Place::Thoughts => match self.held.find(close) {
                Some(at) => {
                    found.thoughts += self.held[..at].trim_end();
                    self.held.drain(..at + close.len());
                    self.place = Place::After;
                    true
                }
                None => {
                    let end = self.held.len() - overlap(&self.held, close);
                    let sent = self.held[..end].trim_end().len();
                    found.thoughts.extend(self.held.drain(..sent));
                    false
                }
            },
            Place::Answer => {
                found.answer += &std::mem::take(&mut self.held);
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thoughts and answer of a text in pieces of so many letters.
    fn run(thinking: Thinking, text: &str, letters: usize) -> (String, String) {
        let mut finder = ThoughtFinder::new(thinking);
        let all: Vec<char> = text.chars().collect();
        let pieces = all.chunks(letters).map(|piece| piece.iter().collect::<String>());
        let mut found: Vec<Thought> = pieces.map(|piece| finder.push(&piece)).collect();
        found.push(finder.finish());
        let thoughts = found.iter().map(|found| found.thoughts.as_str()).collect();
        (thoughts, found.iter().map(|found| found.answer.as_str()).collect())
    }

    #[test]
    fn thoughts_are_told_from_the_answer_however_the_text_is_cut() {
        use Thinking::{MayCome, Over, UnderWay};
        for (thinking, text, thoughts, answer) in [
            (MayCome, "<think>\nHm é.\n\nSo.\n</think>\n\nYes. ", "Hm é.\n\nSo.", "Yes. "),
            (MayCome, "\n<think>Hm.</think>Yes.", "Hm.", "Yes."),
            (MayCome, " <b>Yes.</b>\n", "", " <b>Yes.</b>\n"),
            (MayCome, "<think>\n\n</think>\n\nYes.", "", "Yes."),
            (MayCome, "<thin", "", "<thin"),
            (MayCome, " \n", "", " \n"),
            // Only what comes first is thought.
            (MayCome, "Yes. <think>Hm.</think>", "", "Yes. <think>Hm.</think>"),
            (MayCome, "<think>a</think>b</think><think>c", "a", "b</think><think>c"),
            (UnderWay, "Hm.\n</think>\n\nYes.", "Hm.", "Yes."),
            (UnderWay, "\n<think>\nHm.</think>Yes.", "Hm.", "Yes."),
            (UnderWay, "</think>Yes.", "", "Yes."),
            // Cut off before they are closed, in the middle of the mark too.
            (MayCome, "<think>\nHm. I <3 it ", "Hm. I <3 it", ""),
            (UnderWay, "Hm. </thi", "Hm. </thi", ""),
            (UnderWay, "Hm.</think>\n", "Hm.", ""),
            (Over, "<think>Hm.</think> Yes.", "", "<think>Hm.</think> Yes."),
        ] {
            for letters in 1..20 {
                let expected = (thoughts.to_owned(), answer.to_owned());
                assert_eq!(run(thinking, text, letters), expected, "{text:?} by {letters}");
            }
        }
    }

    #[test]
    fn thoughts_come_as_soon_as_they_can_be_no_mark() {
        let mut finder = ThoughtFinder::new(Thinking::UnderWay);
        let thoughts: Vec<String> =
            ["Hm", " <", "b", " ", "</think"].map(|text| finder.push(text).thoughts).into();
        assert_eq!(thoughts, ["Hm", "", " <b", "", ""]);
    }
}
