//! Strings that end an answer.

/// Strings that end a text, and the part of the text that could still become one.
///
/// Tokens cut text anywhere: ` END` may come as ` E` and `ND`. Whoever looks for it in each token by itself
/// misses it; whoever sends ` E` at once has leaked half of it. So the end of the text is held back as long as
/// some stop string may begin there, and no longer. What comes out does not depend on how the text was cut:
/// the stop string that is complete first ends it, and of two that are complete at the same letter the longer.
#[derive(Debug, Clone)]
pub struct Stops {
    stops: Vec<String>,
    /// Whether the stop string is part of the text.
    included: bool,
    /// Shorter than the longest stop string: the beginning of one, or nothing.
    held: String,
    /// Bytes of it in which no stop string may end.
    passed: usize,
}

/// What a piece of text comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// What can be sent.
    pub text: String,
    /// The stop string that ended the text; nothing may follow.
    pub stop: Option<String>,
}

impl Stops {
    /// Looks for `stops`; empty ones are never found. `included`: the one that is found belongs to the text.
    pub fn new(stops: Vec<String>, included: bool) -> Self {
        let stops = stops.into_iter().filter(|stop| !stop.is_empty()).collect();
        Stops { stops, included, held: String::new(), passed: 0 }
    }

    // ANCHOR: push
    /// Takes more text; gives what cannot be part of a stop string any more.
    pub fn push(&mut self, text: &str) -> Cut {
        self.held += text;
        if let Some((start, stop)) = self.first() {
            let end = start + if self.included { stop.len() } else { 0 };
            let stop = Some(stop.clone());
            self.held.truncate(end);
            return Cut { text: std::mem::take(&mut self.held), stop };
        }
        Cut { text: self.harmless(), stop: None }
    }
    // ANCHOR_END: push

    /// Takes text in which no stop string may end yet, though one may begin; gives what cannot be part of any.
    pub fn pass(&mut self, text: &str) -> String {
        self.held += text;
        self.passed = self.held.len();
        self.harmless()
    }

    /// What is held, up to where a stop string may begin.
    fn harmless(&mut self) -> String {
        let keep = self.stops.iter().map(|stop| overlap(&self.held, stop)).max().unwrap_or(0);
        let gone = self.held.len() - keep;
        self.passed = self.passed.saturating_sub(gone);
        self.held.drain(..gone).collect()
    }

    /// Ends the text: what was held back is no stop string after all.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }

    /// Where the stop string that is complete first begins.
    fn first(&self) -> Option<(usize, &String)> {
        let find = |stop: &String| {
            let from = (self.passed + 1).saturating_sub(stop.len());
            let from = (from..).find(|&at| self.held.is_char_boundary(at))?;
            Some(from + self.held[from..].find(stop)?)
        };
        let found = self.stops.iter().filter_map(|stop| Some((find(stop)?, stop)));
        found.min_by_key(|(start, stop)| (start + stop.len(), *start))
    }
}

/// Bytes at the end of `text` that `stop` begins with, short of all of `stop`.
pub fn overlap(text: &str, stop: &str) -> usize {
    let begins = |length: &usize| {
        let at = text.len() - length;
        text.is_char_boundary(at) && stop.starts_with(&text[at..])
    };
    (1..stop.len().min(text.len() + 1)).rev().find(begins).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(stops: &[&str], included: bool, pieces: &[&str]) -> (Vec<String>, Option<String>) {
        let mut found = Stops::new(stops.iter().map(|s| (*s).to_owned()).collect(), included);
        let mut texts = Vec::new();
        for piece in pieces {
            let cut = found.push(piece);
            texts.push(cut.text);
            if cut.stop.is_some() {
                return (texts, cut.stop);
            }
        }
        texts.push(found.finish());
        (texts, None)
    }

    #[test]
    fn a_stop_string_in_pieces_never_leaks() {
        let (texts, stop) = run(&[" END"], false, &["on", "ce E", "N", "D of"]);
        assert_eq!((texts.concat().as_str(), stop.as_deref()), ("once", Some(" END")));
        let (texts, _) = run(&[" END"], true, &["on", "ce E", "N", "D of"]);
        assert_eq!(texts.concat(), "once END");
    }

    #[test]
    fn what_does_not_become_one_is_sent_at_the_first_letter_that_shows_it() {
        let (texts, stop) = run(&["abc"], false, &["xa", "b", "ab", "d", "a"]);
        assert_eq!(texts, ["x", "", "ab", "abd", "", "a"]);
        assert_eq!(stop, None);
    }

    #[test]
    fn one_that_begins_again_inside_itself_is_found() {
        let (texts, stop) = run(&["aab"], false, &["a", "a", "a", "b"]);
        assert_eq!((texts.concat().as_str(), stop.is_some()), ("a", true));
    }

    #[test]
    fn the_first_to_be_complete_ends_the_text_and_of_two_the_longer() {
        assert_eq!(run(&["long stop", "st"], false, &["a long stop"]).0.concat(), "a long ");
        assert_eq!(run(&["c", "abc"], false, &["xabc"]).0.concat(), "x");
    }

    #[test]
    fn where_none_may_end_one_may_begin() {
        let run = |stops: &[&str], passed: &[&str], pieces: &[&str]| {
            let stops = stops.iter().map(|stop| (*stop).to_owned()).collect();
            let mut found = Stops::new(stops, false);
            let mut text: String = passed.iter().map(|piece| found.pass(piece)).collect();
            for piece in pieces {
                let cut = found.push(piece);
                text += &cut.text;
                if cut.stop.is_some() {
                    return (text, cut.stop);
                }
            }
            (text + &found.finish(), None)
        };
        let ended = |text: &str, stop: &str| (text.to_owned(), Some(stop.to_owned()));
        assert_eq!(run(&["END"], &["the E", "N"], &["D."]), ended("the ", "END"));
        assert_eq!(run(&["END"], &["END E", "ND"], &["END"]), ended("END END", "END"));
        // One that has ended in time, inside another that has not.
        assert_eq!(run(&["abc", "xabcy"], &["xabc"], &["yz"]), ended("", "xabcy"));
        assert_eq!(run(&["abc", "xabcy"], &["xabc"], &["zabc"]), ended("xabcz", "abc"));
        assert_eq!(run(&["éé"], &["éé"], &["é", "é"]), ended("é", "éé"));
        assert_eq!(run(&["aa"], &["b"], &["a"]), ("ba".to_owned(), None));
    }

    proptest! {
        /// However a text is cut, the same comes out: what comes of it letter by letter.
        #[test]
        fn cuts_do_not_matter(
            text in "[abé]{0,24}",
            stops in prop::collection::vec("[abé]{0,4}", 0..4),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
            included: bool,
        ) {
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let letters: Vec<String> = text.chars().map(String::from).collect();
            let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(letters.len() + 1)).collect();
            at.extend([0, letters.len()]);
            at.sort_unstable();
            let pieces: Vec<String> = at.windows(2).map(|w| letters[w[0]..w[1]].concat()).collect();
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let (whole, stop) = run(&stops, included, &letters);
            let (parts, same) = run(&stops, included, &pieces);
            prop_assert_eq!(whole.concat(), parts.concat());
            prop_assert_eq!(&stop, &same);
            // Against looking at the whole text at once.
            let found = stops.iter().filter(|s| !s.is_empty());
            let ends = found.filter_map(|s| Some((text.find(s)? + s.len(), text.find(s)?)));
            let expected = match ends.min() {
                None => text.clone(),
                Some((end, start)) => text[..if included { end } else { start }].to_owned(),
            };
            prop_assert_eq!(whole.concat(), expected);
        }
    }
}
