//! Text to modules. Every statement is read once; what the interpreter does not know is an error that names the line.

mod body;
mod cursor;
mod decode;
mod lexer;
mod module;
mod names;
mod operand;
mod words;

pub(crate) use module::module;
pub(crate) use names::Register;

/// A statement in one line, shortened where it is long: what errors and traces show.
pub(crate) fn one_line(text: &str) -> String {
    const MOST: usize = 160;
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if line.len() > MOST {
            let cut = (0..=MOST).rev().find(|&at| line.is_char_boundary(at)).unwrap_or(0);
            line.truncate(cut);
            line.push_str(" ...");
            break;
        }
    }
    line
}
