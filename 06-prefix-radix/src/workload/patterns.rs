//! Five ways in which requests share.
//!
//! Instructions and examples of fixed length are whole blocks of 16. So what the tree finds inside a block, and hashed
//! blocks do not, shows only where texts part elsewhere: in the tree of thought.

use super::Request;
use super::texts::Texts;

/// A way in which requests share their beginnings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// One long instruction before everybody's question.
    SharedSystem,
    /// The same worked examples before each question of one kind; several kinds.
    FewShot,
    /// Conversations: each turn repeats all that was said before.
    Chat,
    /// Agents: long instructions and tools, then step after step, each with what a tool has answered.
    Agents,
    /// Several thoughts on from each of the best so far, and again from the best of those.
    TreeOfThought,
}

impl Pattern {
    /// All of them.
    pub const ALL: [Pattern; 5] = [
        Pattern::SharedSystem,
        Pattern::FewShot,
        Pattern::Chat,
        Pattern::Agents,
        Pattern::TreeOfThought,
    ];

    /// What it is called in tables.
    pub fn name(self) -> &'static str {
        match self {
            Pattern::SharedSystem => "shared system prompt",
            Pattern::FewShot => "few-shot",
            Pattern::Chat => "multi-turn chat",
            Pattern::Agents => "agent loop",
            Pattern::TreeOfThought => "tree of thought",
        }
    }

    /// Its requests, in the order in which they come in.
    pub fn requests(self, seed: u64) -> Vec<Request> {
        let mut texts = Texts::new(seed);
        match self {
            Pattern::SharedSystem => shared_system(seed, 100, 2_000, 200),
            Pattern::FewShot => few_shot(&mut texts, 24, 12),
            Pattern::Chat => conversations(&mut texts, 16, 8, [300, 60, 150]),
            Pattern::Agents => agents(&mut texts, 8, 12),
            Pattern::TreeOfThought => tree_of_thought(&mut texts, 6, 3, 3, 4),
        }
    }
}

/// An instruction of exactly `system` tokens before `users` questions of exactly `user` tokens.
pub fn shared_system(seed: u64, users: usize, system: usize, user: usize) -> Vec<Request> {
    let mut texts = Texts::new(seed);
    let system = texts.exactly(system);
    let request = |_| {
        let tokens = [system.clone(), texts.exactly(user)].concat();
        Request { after: None, tokens, answer: texts.about(150) }
    };
    (0..users).map(request).collect()
}

/// `kinds` sets of five examples, `questions` about each; kinds in random order.
fn few_shot(texts: &mut Texts, kinds: usize, questions: usize) -> Vec<Request> {
    let examples: Vec<Vec<u32>> = (0..kinds).map(|_| texts.exactly(5 * 160)).collect();
    let request = |_| {
        let kind = texts.below(kinds as u32) as usize;
        let tokens = [examples[kind].clone(), texts.about(80)].concat();
        Request { after: None, tokens, answer: texts.about(20) }
    };
    (0..kinds * questions).map(request).collect()
}

/// `count` conversations side by side, a turn of one and then of the next: about `opening` tokens to
/// begin with, then `turns` times so many of a question and so many of its answer.
fn conversations(
    texts: &mut Texts,
    count: usize,
    turns: usize,
    [opening, question, answer]: [usize; 3],
) -> Vec<Request> {
    let mut requests: Vec<Request> = Vec::new();
    for turn in 0..turns {
        for _ in 0..count {
            let after = (turn > 0).then(|| requests.len() - count);
            let mut tokens = texts.about(question);
            if turn == 0 {
                tokens.extend(texts.about(opening));
            }
            requests.push(Request { after, tokens, answer: texts.about(answer) });
        }
    }
    requests
}

/// `count` agents with the same instructions and tools. Whose step is next is random, as tools take their
/// time.
fn agents(texts: &mut Texts, count: usize, steps: usize) -> Vec<Request> {
    let instructions = texts.exactly(1_200);
    let mut last = vec![None; count];
    let mut left = vec![steps; count];
    let mut requests: Vec<Request> = Vec::new();
    while requests.len() < count * steps {
        let agent = texts.below(count as u32) as usize;
        if left[agent] == 0 {
            continue;
        }
        left[agent] -= 1;
        let after = last[agent].replace(requests.len());
        let tokens = match after {
            None => [instructions.clone(), texts.about(100)].concat(),
            Some(_) => texts.about(200),
        };
        requests.push(Request { after, tokens, answer: texts.about(80) });
    }
    requests
}

/// `problems` trees, one after the other: `width` thoughts on from each of the `best` of the level above,
/// `depth` levels deep.
fn tree_of_thought(
    texts: &mut Texts,
    problems: usize,
    width: usize,
    best: usize,
    depth: usize,
) -> Vec<Request> {
    let instructions = texts.exactly(400);
    let mut requests: Vec<Request> = Vec::new();
    for _ in 0..problems {
        let problem = [instructions.clone(), texts.about(150)].concat();
        let mut level = vec![None];
        for _ in 0..depth {
            let mut next = Vec::new();
            for &after in &level {
                for _ in 0..width {
                    let tokens = if after.is_none() { problem.clone() } else { texts.about(12) };
                    next.push(Some(requests.len()));
                    requests.push(Request { after, tokens, answer: texts.about(60) });
                }
            }
            // Which are best is for a judge to say; here it is any.
            while next.len() > best {
                next.remove(texts.below(next.len() as u32) as usize);
            }
            level = next;
        }
    }
    requests
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_and_a_seed_are_always_the_same_requests() {
        for pattern in Pattern::ALL {
            let requests = pattern.requests(1);
            assert_eq!(requests, pattern.requests(1));
            assert_ne!(requests, pattern.requests(2), "{}", pattern.name());
            for (i, request) in requests.iter().enumerate() {
                assert!(request.after.is_none_or(|after| after < i), "{}", pattern.name());
                assert!(!request.tokens.is_empty() && !request.answer.is_empty());
            }
        }
    }

    #[test]
    fn chats_and_agents_go_on_and_thoughts_branch() {
        let after = |pattern: Pattern| {
            let requests = pattern.requests(3);
            let mut times = vec![0; requests.len()];
            requests.iter().filter_map(|request| request.after).for_each(|i| times[i] += 1);
            (requests.iter().filter(|request| request.after.is_none()).count(), times)
        };
        let (roots, times) = after(Pattern::Chat);
        assert_eq!((roots, times.iter().max()), (16, Some(&1)));
        let (roots, times) = after(Pattern::Agents);
        assert_eq!((roots, times.iter().max()), (8, Some(&1)));
        let (roots, times) = after(Pattern::TreeOfThought);
        assert_eq!((roots, times.iter().max()), (18, Some(&3)));
    }
}
