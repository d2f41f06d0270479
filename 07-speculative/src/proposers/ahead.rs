//! Drafting on while the target verifies.
//!
//! A drafter has nothing to do while its target verifies, and the target nothing while it drafts. So the
//! drafter goes on as if all of its tokens were kept, guesses the token that the target adds to them, and begins the
//! next draft behind that. If all of it comes true, the next draft is there when the target is done; if not, it is
//! thrown away (speculative speculative decoding, Kumar et al. 2026).

use crate::proposer::{FromText, Proposer};
use crate::tree::{DraftTree, Node};
use naive_decode::{Error, Result, Sampler};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// Depths for which it is asked beforehand how many nodes a tree has; deeper ones are taken to go on as the last of them.
const DEPTHS: usize = 64;

/// How often a draft made ahead could be used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AheadCount {
    /// Drafts that were begun ahead.
    pub begun: usize,
    /// Those that came true.
    pub used: usize,
}

/// What the drafting thread is told.
enum Told {
    /// The target has run a prompt, from this token on.
    Prompt(Vec<u32>, usize),
    /// A draft is wanted.
    Question(Box<Question>),
}

/// What is asked of it.
struct Question {
    context: Vec<u32>,
    depth: usize,
    sampler: Sampler,
}

/// What it answers.
type Answer = Result<DraftTree>;

// ANCHOR: ahead
/// A proposer in a thread of its own, which works while the target does.
///
/// Its guess about the text to come is its own chain, and for the token that the target adds behind it one
/// more of its own, which is not proposed. Only chains can be gone on from; behind a tree of several branches
/// it waits.
pub struct Ahead {
    told: Option<Sender<Told>>,
    answers: Receiver<Answer>,
    thread: Option<JoinHandle<()>>,
    name: &'static str,
    /// What the proposer says of its trees' nodes, by depth: it cannot be asked while it drafts.
    nodes: Vec<usize>,
    /// The text that a draft is being made for, if any.
    guessed: Option<Vec<u32>>,
    count: AheadCount,
}
// ANCHOR_END: ahead

impl Ahead {
    /// Moves a proposer to a thread. It needs nothing but the text: there it cannot be told what the target says.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub fn new(mut inner: impl FromText + 'static) -> Result<Self> {
        let (told, heard) = channel::<Told>();
        let (answer, answers) = channel();
        let name = inner.name();
        let nodes = (0..=DEPTHS).map(|depth| inner.nodes(depth)).collect();
        let work = move || {
            for told in heard {
                let Question { context, depth, mut sampler } = match told {
                    Told::Prompt(prompt, start) => {
                        inner.read(&prompt, start);
                        if answer.send(Ok(DraftTree::empty())).is_err() {
                            return;
                        }
                        continue;
                    }
                    Told::Question(question) => *question,
                };
                if answer.send(inner.propose(&context, depth, &mut sampler)).is_err() {
                    return; // nobody waits any more
                }
            }
        };
        let thread = std::thread::Builder::new().name("draft".into()).spawn(work);
        let thread = thread.map_err(|error| Error::invalid("thread to draft in", error, "one"))?;
        Ok(Ahead {
            told: Some(told),
            answers,
            thread: Some(thread),
            name,
            nodes,
            guessed: None,
            count: AheadCount::default(),
        })
    }

    /// How often a draft made ahead could be used.
    pub fn count(&self) -> AheadCount {
        self.count
    }

    fn ask(&self, question: Question) -> Result<()> {
        let gone = || Error::invalid("drafting thread", "gone", "alive: it must have panicked");
        self.told
            .as_ref()
            .ok_or_else(gone)?
            .send(Told::Question(Box::new(question)))
            .map_err(|_| gone())
    }

    fn answer(&self) -> Answer {
        let gone = |_| Error::invalid("drafting thread", "gone", "alive: it must have panicked");
        self.answers.recv().map_err(gone)?
    }
}

/// A tree's tokens, if it is a chain.
fn chain_of(tree: &DraftTree) -> Option<Vec<u32>> {
    let in_line = |(index, node): (usize, &Node)| node.parent == index.checked_sub(1);
    let is_chain = tree.nodes().iter().enumerate().all(in_line);
    is_chain.then(|| tree.nodes().iter().map(|node| node.token).collect())
}

impl FromText for Ahead {}

impl Proposer for Ahead {
    fn name(&self) -> &'static str {
        self.name
    }

    fn nodes(&self, depth: usize) -> usize {
        let deeper = depth.saturating_sub(DEPTHS);
        let a_level = self.nodes[DEPTHS].saturating_sub(self.nodes[DEPTHS - 1]);
        self.nodes[depth.min(DEPTHS)].saturating_add(deeper.saturating_mul(a_level))
    }

    /// Waits until the drafter has read it: the target would only wait for the same cores.
    fn read(&mut self, prompt: &[u32], start: usize) {
        // A thread that is gone is said to be when a draft is wanted.
        if self.guessed.take().is_some() {
            let _ = self.answers.recv(); // what was made for another text
        }
        if let Some(told) = &self.told
            && told.send(Told::Prompt(prompt.to_vec(), start)).is_ok()
        {
            let _ = self.answers.recv();
        }
    }

    // ANCHOR: propose
    fn propose(
        &mut self,
        context: &[u32],
        depth: usize,
        sampler: &mut Sampler,
    ) -> Result<DraftTree> {
        if depth == 0 {
            return Ok(DraftTree::empty()); // what was begun ahead is looked at when a draft is wanted
        }
        // The drafter's random numbers are its own: whether a token is kept must not hang on how it was
        // drawn.
        let question = |context: &[u32], sampler: &mut Sampler| {
            let (context, sampler) = (context.to_vec(), sampler.fork());
            Question { context, depth: depth.saturating_add(1), sampler }
        };
        let guessed = self.guessed.take();
        let came_true = guessed.as_deref() == Some(context);
        if guessed.is_some() && !came_true {
            // What was made for another text, or went wrong with it.
            let _ = self.answers.recv();
        }
        self.count.used += usize::from(came_true);
        if !came_true {
            self.ask(question(context, sampler))?;
        }
        let mut tree = self.answer()?;
        if let Some(chain) = chain_of(&tree).filter(|chain| chain.len() > depth) {
            let next = [context, &chain[..=depth]].concat();
            self.ask(question(&next, sampler))?;
            self.guessed = Some(next);
            self.count.begun += 1;
        }
        // A level more than was asked for, to go on from.
        tree.cut_below(depth);
        Ok(tree)
    }
    // ANCHOR_END: propose
}

impl Drop for Ahead {
    fn drop(&mut self) {
        // Nothing more will be asked, so the thread ends once it has finished what it is at.
        self.told = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use naive_decode::Sampling;

    /// Says the text's length, and the numbers after it.
    struct Counts;

    impl FromText for Counts {}

    impl Proposer for Counts {
        fn name(&self) -> &'static str {
            "counts"
        }

        fn propose(&mut self, context: &[u32], depth: usize, _: &mut Sampler) -> Result<DraftTree> {
            let first = context.len() as u32;
            Ok(DraftTree::chain(&(first..first + depth as u32).collect::<Vec<_>>()))
        }
    }

    #[test]
    fn another_prompt_is_read_behind_a_draft_that_was_begun() {
        let mut ahead = Ahead::new(Counts).unwrap();
        let mut sampler = Sampler::new(Sampling::default()).unwrap();
        let mut tokens = |ahead: &mut Ahead, context: &[u32]| -> Vec<u32> {
            let tree = ahead.propose(context, 2, &mut sampler).unwrap();
            tree.nodes().iter().map(|node| node.token).collect()
        };
        assert_eq!(tokens(&mut ahead, &[7]), [1, 2]);
        ahead.read(&[8, 9], 0);
        assert_eq!(tokens(&mut ahead, &[8, 9, 6]), [3, 4]);
        assert_eq!(tokens(&mut ahead, &[8, 9, 6, 3, 4, 5]), [6, 7]);
        assert_eq!(ahead.count().used, 1);
    }

    /// Two chains as deep as is asked for.
    struct TwoBranches;

    impl FromText for TwoBranches {}

    impl Proposer for TwoBranches {
        fn name(&self) -> &'static str {
            "two branches"
        }

        fn propose(&mut self, _: &[u32], depth: usize, _: &mut Sampler) -> Result<DraftTree> {
            let mut tree = DraftTree::empty();
            for first in [0, 100] {
                tree.add_chain(None, &(first..first + depth as u32).collect::<Vec<_>>());
            }
            Ok(tree)
        }

        fn nodes(&self, depth: usize) -> usize {
            2 * depth
        }
    }

    #[test]
    fn a_tree_is_as_deep_as_was_asked_for() {
        let mut ahead = Ahead::new(TwoBranches).unwrap();
        let mut sampler = Sampler::new(Sampling::default()).unwrap();
        let tree = ahead.propose(&[7], 2, &mut sampler).unwrap();
        let tokens: Vec<u32> = tree.nodes().iter().map(|node| node.token).collect();
        assert_eq!(tokens, [0, 1, 100, 101]);
        assert!((0..tree.len()).all(|node| tree.path(node).len() <= 2));
        assert_eq!([0, 2, DEPTHS, DEPTHS + 9].map(|depth| ahead.nodes(depth)), [0, 4, 128, 146]);
    }

    /// The same numbers, behind short texts.
    struct CountsABit;

    impl FromText for CountsABit {}

    impl Proposer for CountsABit {
        fn name(&self) -> &'static str {
            "counts a bit"
        }

        fn propose(&mut self, context: &[u32], depth: usize, s: &mut Sampler) -> Result<DraftTree> {
            match context.len() <= 3 {
                true => Counts.propose(context, depth, s),
                false => Err(Error::invalid("tokens of a text", context.len(), "at most 3")),
            }
        }
    }

    #[test]
    fn what_goes_wrong_with_a_draft_for_another_text_is_nobodys_concern() {
        let mut ahead = Ahead::new(CountsABit).unwrap();
        let mut sampler = Sampler::new(Sampling::default()).unwrap();
        for context in [[7], [8]] {
            // The next draft is begun behind four tokens.
            assert_eq!(ahead.propose(&context, 2, &mut sampler).unwrap().len(), 2);
        }
        assert_eq!(ahead.count(), AheadCount { begun: 2, used: 0 });
        let said = ahead.propose(&[8, 1, 2, 3], 2, &mut sampler).unwrap_err().to_string();
        assert_eq!(said, "tokens of a text is 4, expected at most 3");
    }
}
