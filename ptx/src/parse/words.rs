//! The words of a mnemonic, taken one after another. What nobody took is a word that the interpreter does not know.

use crate::isa::{Round, Space, Type};

pub(super) struct Words<'a> {
    pub(super) name: &'a str,
    parts: Vec<Option<&'a str>>,
}

impl<'a> Words<'a> {
    pub(super) fn new(mnemonic: &'a str) -> Self {
        let mut parts = mnemonic.split('.');
        Self { name: parts.next().unwrap_or_default(), parts: parts.map(Some).collect() }
    }

    /// Whether the word is there; takes it.
    pub(super) fn take(&mut self, word: &str) -> bool {
        let found = self.parts.iter_mut().find(|part| **part == Some(word));
        found.and_then(Option::take).is_some()
    }

    /// Takes every one of the words that is there: those that change nothing here.
    pub(super) fn ignore(&mut self, words: &[&str]) {
        for word in words {
            self.take(word);
        }
    }

    /// What the first word that `known` knows means.
    pub(super) fn find<T>(&mut self, known: impl Fn(&'a str) -> Option<T>) -> Option<T> {
        let (index, found) =
            self.parts.iter().enumerate().find_map(|(i, part)| Some((i, known((*part)?)?)))?;
        self.parts[index] = None;
        Some(found)
    }

    /// As [`Self::find`] in a table.
    pub(super) fn one_of<T: Copy>(&mut self, table: &[(&str, T)]) -> Option<T> {
        self.find(|word| {
            table.iter().find(|(known, _)| *known == word).map(|(_, meaning)| *meaning)
        })
    }

    /// The next type, from the left.
    pub(super) fn ty(&mut self) -> Result<Type, String> {
        self.find(Type::parse)
            .ok_or_else(|| format!("`{}` needs a type here, such as `.f32`", self.name))
    }

    pub(super) fn space(&mut self) -> Option<Space> {
        self.one_of(&[
            ("global", Space::Global),
            ("shared", Space::Shared),
            ("shared::cta", Space::Shared),
            ("shared::cluster", Space::Shared),
            ("local", Space::Local),
            ("param", Space::Param),
            ("param::entry", Space::Param),
            ("const", Space::Const),
        ])
    }

    pub(super) fn round(&mut self) -> Option<Round> {
        self.one_of(&[
            ("rn", Round::Nearest),
            ("rna", Round::Away),
            ("rz", Round::Zero),
            ("rm", Round::Down),
            ("rp", Round::Up),
        ])
    }

    /// # Errors
    /// If a word is left over.
    pub(super) fn finish(self) -> Result<(), String> {
        match self.parts.iter().find_map(|part| *part) {
            None => Ok(()),
            Some(word) => {
                Err(format!("the interpreter does not know `.{word}` of `{}`", self.name))
            }
        }
    }
}
