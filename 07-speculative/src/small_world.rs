//! Four tokens: small enough that every text of three comes often, and that its exact chance is known.
//!
//! Whether a rule of acceptance leaves the target's distribution as it is cannot be seen in one text. Here a
//! target and a draft say something different after every text, twenty thousand texts are written by speculation,
//! and their counts are held against what the target alone would write: chi-square over three tokens
//! *together*, since a rule can be right for each token and wrong for pairs.

use crate::accept::{Accepted, Rule};
use crate::proposers::Levels;
use crate::tree::{DraftTree, Node};
use naive_decode::break_it::noise;
use naive_decode::{Logits, Result, Sampler, Sampling};
use ndarray::Array2;
use std::collections::BTreeMap;

const VOCAB: usize = 4;

/// Tokens of a text, without its prompt.
pub const LENGTH: usize = 3;

const TEXTS: usize = 20_000;

/// Chi-square over the number of degrees of freedom is above this in two of a thousand tries if there are 16 of them, in
/// fewer than one of a thousand from 20 on, and in fewer than one of a hundred thousand from 38 on. There are 63 at most;
/// samplers that leave tokens out have fewer.
pub const BOUND: f64 = 2.3;

/// Logits after a text: always the same, and different for every text and speaker.
fn logits(speaker: u64, text: &[u32]) -> Vec<f32> {
    let seed = text.iter().fold(speaker + 1, |seed, &token| seed * 31 + u64::from(token) + 1);
    noise(seed, VOCAB).into_iter().map(|number| 2.5 * number).collect()
}

const TARGET: u64 = 1;
const DRAFT: u64 = 2;

/// How a tree is made.
#[derive(Debug, Clone, Copy)]
pub enum Draft {
    /// Drawn from the draft, without replacement, so many children behind each node by depth.
    Drawn(&'static [usize]),
    /// Named: the draft's likeliest, so many behind each node by depth.
    Named(&'static [usize]),
}

/// Chains and trees, drawn and named.
pub const DRAFTS: [Draft; 7] = [
    Draft::Drawn(&[1]),
    Draft::Drawn(&[1, 1, 1]),
    Draft::Drawn(&[3]),
    Draft::Drawn(&[2, 2]),
    Draft::Drawn(&[4, 1, 2]),
    Draft::Named(&[1, 1]),
    Draft::Named(&[3, 2]),
];

/// The tokens of a tree from the text to a node, the node's included.
fn tokens(tree: &DraftTree, node: usize) -> Vec<u32> {
    tree.path(node).into_iter().map(|node| tree.nodes()[node].token).collect()
}

/// What a draft proposes behind a text; grown as a draft model's trees are.
fn tree(draft: Draft, text: &[u32], sampler: &mut Sampler) -> Result<DraftTree> {
    let (Draft::Drawn(widths) | Draft::Named(widths)) = draft;
    let levels = Levels { context: text, depth: widths.len(), room: usize::MAX, widths };
    let grow = |sampler: &mut Sampler| {
        levels.grow(logits(DRAFT, text), sampler, |tree, level| {
            Ok(rows(DRAFT, text, tree, level.iter().copied().map(Some)))
        })
    };
    match draft {
        Draft::Drawn(_) => grow(sampler),
        Draft::Named(_) => Ok(named(&grow(&mut Sampler::new(Sampling::default())?)?)),
    }
}

/// The same tokens, as if none had been drawn.
fn named(tree: &DraftTree) -> DraftTree {
    let mut named = DraftTree::empty();
    for node in tree.nodes() {
        named.add(Node { drawn_from: None, ..node.clone() });
    }
    named
}

/// What a speaker says after some nodes of a tree, or after the text itself: `[nodes, vocab]`.
fn rows(
    speaker: u64,
    text: &[u32],
    tree: &DraftTree,
    nodes: impl Iterator<Item = Option<usize>>,
) -> Logits {
    let after = |node: Option<usize>| {
        let path = node.map_or(Vec::new(), |node| tokens(tree, node));
        logits(speaker, &[text, &path].concat())
    };
    let rows: Vec<f32> = nodes.flat_map(after).collect();
    Array2::from_shape_vec((rows.len() / VOCAB, VOCAB), rows).expect("one row each")
}

/// Writes one text by speculation under a rule.
///
/// # Errors
/// If the sampler or the rule refuses.
pub fn write(rule: Rule, draft: Draft, sampler: &mut Sampler) -> Result<Vec<u32>> {
    let mut text = vec![0];
    while text.len() <= LENGTH {
        let tree = tree(draft, &text, sampler)?;
        let nodes = (0..tree.len()).map(Some);
        let rows = rows(TARGET, &text, &tree, std::iter::once(None).chain(nodes));
        let Accepted { path, next } = rule(sampler, &mut text, &tree, rows.view())?;
        text.extend(path.into_iter().map(|node| tree.nodes()[node].token));
        text.push(next);
    }
    Ok(text[1..=LENGTH].to_vec())
}

/// How far the texts that a rule writes are from the target's: [`chi_square`].
///
/// # Errors
/// As [`write()`].
pub fn distance(rule: Rule, draft: Draft, sampling: &Sampling) -> Result<f64> {
    let target = Sampler::new(sampling.clone())?.with_prompt_length(1);
    let mut sampler = target.clone();
    chi_square(
        TEXTS,
        || write(rule, draft, &mut sampler),
        |text| target.distribution(&logits(TARGET, text), text),
    )
}

/// How far the counts of so many texts behind the prompt `[0]` are from what the target would write: chi-square over the
/// number of degrees of freedom, about 1 if they are from it; infinite if a text came that the target cannot write.
///
/// `write` gives one text of [`LENGTH`] tokens after the other, and `target` what may follow a text, its prompt
/// included: `[vocab]`.
///
/// # Errors
/// What `write` and `target` refuse.
pub fn chi_square(
    texts: usize,
    mut write: impl FnMut() -> Result<Vec<u32>>,
    target: impl Fn(&[u32]) -> Result<Vec<f32>>,
) -> Result<f64> {
    let mut counts: BTreeMap<Vec<u32>, usize> = BTreeMap::new();
    for _ in 0..texts {
        *counts.entry(write()?).or_default() += 1;
    }
    let mut expected = vec![(vec![0u32], 1.0f64)];
    for _ in 0..LENGTH {
        let mut longer = Vec::new();
        for (text, chance) in &expected {
            longer.extend(target(text)?.into_iter().zip(0..).map(|(p, token): (f32, u32)| {
                ([&text[..], &[token]].concat(), chance * f64::from(p))
            }));
        }
        expected = longer;
    }
    // Texts that hardly ever come are counted together, as chi-square asks.
    let (mut cells, mut rare) = (Vec::new(), (0.0, 0.0));
    for (text, chance) in &expected {
        let found = counts.remove(&text[1..]).unwrap_or(0) as f64;
        let chance = chance * texts as f64;
        if chance == 0.0 && found > 0.0 {
            return Ok(f64::INFINITY);
        }
        match chance < 10.0 {
            true => rare = (rare.0 + found, rare.1 + chance),
            false => cells.push((found, chance)),
        }
    }
    // If all of them together hardly ever come, they go with the rarest of the others.
    let rarest = cells.iter_mut().min_by(|a, b| a.1.total_cmp(&b.1));
    match rarest.filter(|_| rare.1 < 10.0) {
        Some(cell) => *cell = (cell.0 + rare.0, cell.1 + rare.1),
        None => cells.push(rare),
    }
    let off = |(found, chance): &(f64, f64)| (found - chance) * (found - chance) / chance;
    let sum: f64 = cells.iter().map(off).sum();
    Ok(sum / (cells.len() as f64 - 1.0).max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chi-square of a thousand texts that begin with 0, 1 and 2 so often, where 983, 12 and 5 are expected to.
    fn found(counts: [usize; 3]) -> f64 {
        let begin = (0..).zip(counts).flat_map(|(first, count): (u32, usize)| vec![first; count]);
        let mut texts = begin.map(|first| vec![first, 0, 0]);
        let law = |text: &[u32]| -> Result<Vec<f32>> {
            Ok(match text.len() {
                1 => vec![0.983, 0.012, 0.005],
                _ => vec![1.0, 0.0, 0.0],
            })
        };
        chi_square(1000, || Ok(texts.next().expect("a thousand of them")), law).unwrap()
    }

    #[test]
    fn texts_that_hardly_ever_come_are_counted_too() {
        assert!(found([983, 12, 5]) < 0.01);
        let often = found([948, 12, 40]);
        assert!(often > 10.0 * BOUND, "{often}");
        let never = chi_square(9, || Ok(vec![1, 0, 0]), |_| Ok(vec![1.0, 0.0])).unwrap();
        assert_eq!(never, f64::INFINITY);
    }
}
