//! Texts to speculate on, of four kinds: how well a guess comes true hangs on the text more than on anything else.

use embedded_models::tales::tale;
use naive_decode::break_it::Bench;

/// A kind of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Facts, and questions about them.
    Recall,
    /// A tale that goes on as it likes.
    Prose,
    /// A text that is written a second time, from the beginning.
    Edit,
    /// Code.
    Code,
}

/// Seeds of tales that training has never used start here, and those of [`Bench::tale`] end below.
const FIRST_TALE: u64 = embedded_models::recall::FIRST_HELD_OUT_SEED + 100;

const CODE: [&str; 4] = [
    "## Example\n\n```\nfn main() {\n    let numbers = vec![1, 2, 3];\n    for number in &numbers {\n        println!(\"{}\", number);\n    }\n\n    let words = vec![\"one\", \"two\"];\n    for word in &words {\n",
    "The following code prints each value:\n\n```\nstruct Point {\n    x: i32,\n    y: i32,\n}\n\nimpl Point {\n    fn x(&self) -> i32 {\n        self.x\n    }\n\n    fn y(&self) -> i32 {\n",
    "```\nenum Shape {\n    Circle(f64),\n    Square(f64),\n}\n\nfn area(shape: Shape) -> f64 {\n    match shape {\n        Shape::Circle(r) => r * r,\n",
    "```\n#[test]\nfn one_and_one() {\n    assert_eq!(add(1, 1), 2);\n}\n\n#[test]\nfn two_and_two() {\n",
];

impl Task {
    /// All of them.
    pub const ALL: [Task; 4] = [Task::Recall, Task::Prose, Task::Edit, Task::Code];

    /// What it is called in tables.
    pub fn name(self) -> &'static str {
        match self {
            Task::Recall => "recall",
            Task::Prose => "prose",
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
            Task::Edit => {
                let original = tale(FIRST_TALE + number).text;
                let sentences: Vec<&str> = original.split_inclusive(". ").take(10).collect();
                let again = sentences.concat();
                format!("{}\n\n{}", again.trim_end(), sentences[..2].concat().trim_end())
            }
            Task::Code => CODE[number as usize % CODE.len()].to_owned(),
        }
    }
}
