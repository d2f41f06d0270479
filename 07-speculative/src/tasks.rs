//! Texts to speculate on, of five kinds: how well a guess comes true depends on the text more than on anything else.

use embedded_models::recall::World;
use embedded_models::tales::tale;
use naive_decode::break_it::Bench;

/// A kind of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Facts, and questions about them.
    Recall,
    /// A tale that goes on as it likes.
    Prose,
    /// A tale that is written a second time, from the beginning.
    Retelling,
    /// A sheet of questions and answers that is written again, because one of the answers does not hold. Who goes on behind
    /// it begins a third.
    Edit,
    /// Code.
    Code,
}

/// Seeds of tales that training has never used start here, and those of [`Bench::tale`] end below.
const FIRST_TALE: u64 = embedded_models::recall::FIRST_HELD_OUT_SEED + 100;

/// Worlds of sheets are numbered from here, and those of [`Task::Recall`] end below.
const FIRST_SHEET: u64 = 100;

const CODE: [&str; 4] = [
    "## Example\n\n```\nfn main() {\n    let numbers = vec![1, 2, 3];\n    for number in &numbers {\n        println!(\"{}\", number);\n    }\n\n    let words = vec![\"one\", \"two\"];\n    for word in &words {\n",
    "The following code prints each value:\n\n```\nstruct Point {\n    x: i32,\n    y: i32,\n}\n\nimpl Point {\n    fn x(&self) -> i32 {\n        self.x\n    }\n\n    fn y(&self) -> i32 {\n",
    "```\nenum Shape {\n    Circle(f64),\n    Square(f64),\n}\n\nfn area(shape: Shape) -> f64 {\n    match shape {\n        Shape::Circle(r) => r * r,\n",
    "```\n#[test]\nfn one_and_one() {\n    assert_eq!(add(1, 1), 2);\n}\n\n#[test]\nfn two_and_two() {\n",
];

impl Task {
    /// All of them.
    pub const ALL: [Task; 5] = [Task::Recall, Task::Prose, Task::Retelling, Task::Edit, Task::Code];

    /// What it is called in tables.
    pub fn name(self) -> &'static str {
        match self {
            Task::Recall => "recall",
            Task::Prose => "prose",
            Task::Retelling => "retelling",
            Task::Edit => "edit",
            Task::Code => "code",
        }
    }

    /// A text to go on from. Training has seen none of them.
    pub fn prompt(self, number: u64) -> String {
        match self {
            Task::Recall => {
                let world = Bench::world(number, 5, 2);
                world.prompt().to_owned() + &world.question(0)
            }
            Task::Prose => Bench::tale(number),
            Task::Retelling => {
                let original = tale(FIRST_TALE + number).text;
                let sentences: Vec<&str> = original.split_inclusive(". ").take(10).collect();
                let again = sentences.concat();
                format!("{}\n\n{}", again.trim_end(), sentences[..2].concat().trim_end())
            }
            Task::Edit => {
                let world = World::held_out(FIRST_SHEET + number, 5, 0);
                // The fourth answer is the second's.
                let old = [0, 1, 2, 1, 4].into_iter().enumerate();
                let sheet =
                    old.map(|(i, told)| format!("{}{}.", world.question(i), world.answer(told)));
                format!("{}{}{}", world.prompt(), sheet.collect::<String>(), world.question(0))
            }
            Task::Code => CODE[number as usize % CODE.len()].to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Depth, Embedded, Nothing, Speculation, with_room_for_trees};
    use flash_attention::packed::Format;
    use naive_decode::{Request, Sampler, Sampling, Tokenizer};

    /// The edit is one that the embedded target can do: it writes the sheet again, and in most sheets what does not hold
    /// is mended.
    #[test]
    fn the_embedded_target_writes_the_sheet_again() {
        let target = Embedded::new(512, Format::Q8_0).unwrap().target;
        let tokenizer = Tokenizer::from_bytes("target", embedded_models::TARGET.tokenizer).unwrap();
        let mut mended = 0;
        for number in 0..3 {
            let prompt = tokenizer.encode(&Task::Edit.prompt(number)).unwrap();
            let length = prompt.len();
            let cache = with_room_for_trees(&target, target.context()).unwrap();
            let sampler = Sampler::new(Sampling::default()).unwrap();
            let request = Request { prompt, tokens: 192, end_tokens: Vec::new() };
            let depth = Depth::Fixed(0);
            let text = Speculation::new(target.clone(), cache, Nothing, sampler, depth, request);
            let mut text = text.unwrap();
            while text.advance().unwrap().is_some() {}
            let written = tokenizer.decode(&text.context()[length..]).unwrap();
            let world = World::held_out(FIRST_SHEET + number, 5, 0);
            let line = |name: usize, told: usize| {
                format!("The word of {} is{}.", world.facts[name].name, world.answer(told))
            };
            for answer in written.split("\nAnswer: ").skip(1).filter(|answer| answer.contains('.'))
            {
                let is_known = (0..5).any(|i| answer.starts_with(&line(i, i)));
                assert!(is_known || answer.starts_with(&line(3, 1)), "{answer} of {written}");
            }
            mended += usize::from(written.contains(&line(3, 3)));
        }
        assert_eq!(mended, 2);
    }
}
