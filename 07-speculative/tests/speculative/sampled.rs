//! Sampled text has the target's distribution, over several tokens together.
//!
//! A world of a few tokens, in which target and draft say something different after every text: small enough
//! that every text of three tokens comes often, and its exact probability is known.

use naive_decode::break_it::noise;
use naive_decode::{Sampler, Sampling};
use ndarray::Array2;
use speculative::{Accepted, DraftTree, Node, accept};
use std::collections::BTreeMap;
use std::sync::Arc;

const VOCAB: usize = 4;
const LENGTH: usize = 3;
const TEXTS: usize = 20_000;

/// Logits after a text: always the same, and different for every text and speaker.
fn logits(speaker: u64, text: &[u32]) -> Vec<f32> {
    let seed = text.iter().fold(speaker + 1, |seed, &token| seed * 31 + u64::from(token) + 1);
    noise(seed, VOCAB).into_iter().map(|number| 2.5 * number).collect()
}

const TARGET: u64 = 1;
const DRAFT: u64 = 2;

/// How a tree is made.
#[derive(Debug, Clone, Copy)]
enum Draft {
    /// Drawn from the draft, without replacement, so many children behind each node by depth.
    Drawn(&'static [usize]),
    /// Named: the draft's likeliest, so many behind each node by depth.
    Named(&'static [usize]),
}

fn tree(draft: Draft, text: &[u32], sampler: &mut Sampler) -> DraftTree {
    let (Draft::Drawn(widths) | Draft::Named(widths)) = draft;
    let mut tree = DraftTree::empty();
    let mut level = vec![None];
    for &width in widths {
        let mut next = Vec::new();
        for parent in level {
            let path: Vec<u32> = parent
                .map_or(Vec::new(), |p| tree.path(p))
                .into_iter()
                .map(|n| tree.nodes()[n].token)
                .collect();
            let context = [text, &path].concat();
            let mut q = sampler.distribution(&logits(DRAFT, &context), &context).unwrap();
            for _ in 0..width {
                let (token, drawn_from) = match draft {
                    Draft::Drawn(_) if q.iter().all(|&q| q == 0.0) => break,
                    Draft::Drawn(_) => (sampler.draw(&q), Some(Arc::from(&q[..]))),
                    Draft::Named(_) => (naive_decode::argmax(&q).unwrap(), None),
                };
                next.push(Some(tree.add(Node { token, parent, drawn_from })));
                q[token as usize] = 0.0;
                let total: f32 = q.iter().sum();
                if total > 0.0 {
                    q.iter_mut().for_each(|q| *q /= total);
                }
            }
        }
        level = next;
    }
    tree
}

/// Something that decides what stays of a tree.
type Rule = fn(&mut Sampler, &mut Vec<u32>, &DraftTree, &Array2<f32>) -> Accepted;

fn exact(
    sampler: &mut Sampler,
    text: &mut Vec<u32>,
    tree: &DraftTree,
    rows: &Array2<f32>,
) -> Accepted {
    accept(sampler, text, tree, rows.view()).unwrap()
}

/// The rule with its best-known fault: what replaces a refused token is drawn from the target, not from the
/// residual.
fn no_residual(
    sampler: &mut Sampler,
    text: &mut Vec<u32>,
    tree: &DraftTree,
    rows: &Array2<f32>,
) -> Accepted {
    let before = text.len();
    let mut path: Vec<usize> = Vec::new();
    loop {
        let at = path.last().copied();
        let row = rows.row(at.map_or(0, |node| node + 1)).to_vec();
        let p = sampler.distribution(&row, text).unwrap();
        let kept = tree.children(at).find(|&child| {
            let node = &tree.nodes()[child];
            let token = node.token as usize;
            let q = node.drawn_from.as_ref().map_or(1.0, |q| q[token]);
            sampler.uniform() < f64::from(p[token] / q)
        });
        match kept {
            Some(child) => {
                text.push(tree.nodes()[child].token);
                path.push(child);
            }
            None => {
                text.truncate(before);
                return Accepted { path, next: sampler.draw(&p) };
            }
        }
    }
}

/// Writes one text by speculation.
fn write(rule: Rule, draft: Draft, sampler: &mut Sampler) -> Vec<u32> {
    let mut text = vec![0];
    while text.len() <= LENGTH {
        let tree = tree(draft, &text, sampler);
        let mut rows = logits(TARGET, &text);
        for node in 0..tree.len() {
            let path = tree.path(node).into_iter().map(|n| tree.nodes()[n].token);
            rows.extend(logits(TARGET, &text.iter().copied().chain(path).collect::<Vec<_>>()));
        }
        let rows = Array2::from_shape_vec((1 + tree.len(), VOCAB), rows).unwrap();
        let Accepted { path, next } = rule(sampler, &mut text, &tree, &rows);
        text.extend(path.into_iter().map(|node| tree.nodes()[node].token));
        text.push(next);
    }
    text[1..=LENGTH].to_vec()
}

/// How far the counts of all texts are from what the target would write: chi-square over the number of
/// degrees of freedom, about 1 if they are from it.
fn distance(rule: Rule, draft: Draft, sampling: &Sampling) -> f64 {
    let mut sampler = Sampler::new(sampling.clone()).unwrap().with_prompt_length(1);
    let mut counts: BTreeMap<Vec<u32>, usize> = BTreeMap::new();
    for _ in 0..TEXTS {
        *counts.entry(write(rule, draft, &mut sampler)).or_default() += 1;
    }
    let mut expected = vec![(vec![0u32], 1.0f64)];
    for _ in 0..LENGTH {
        let longer = expected.iter().flat_map(|(text, chance)| {
            let p = sampler.distribution(&logits(TARGET, text), text).unwrap();
            let more = p.into_iter().enumerate();
            let more = more
                .map(|(token, p)| ([&text[..], &[token as u32]].concat(), chance * f64::from(p)));
            more.collect::<Vec<_>>()
        });
        expected = longer.collect();
    }
    // Texts that hardly ever come are counted together, as chi-square asks.
    let (mut sum, mut cells, mut rare) = (0.0, 0.0, (0.0, 0.0));
    for (text, chance) in &expected {
        let (found, chance) =
            (counts.remove(&text[1..]).unwrap_or(0) as f64, chance * TEXTS as f64);
        if chance < 10.0 {
            rare = (rare.0 + found, rare.1 + chance);
            continue;
        }
        sum += (found - chance) * (found - chance) / chance;
        cells += 1.0;
    }
    assert!(counts.is_empty(), "texts that the target cannot write: {counts:?}");
    if rare.1 >= 10.0 {
        sum += (rare.0 - rare.1) * (rare.0 - rare.1) / rare.1;
        cells += 1.0;
    }
    sum / (cells - 1.0f64).max(1.0)
}

const DRAFTS: [Draft; 7] = [
    Draft::Drawn(&[1]),
    Draft::Drawn(&[1, 1, 1]),
    Draft::Drawn(&[3]),
    Draft::Drawn(&[2, 2]),
    Draft::Drawn(&[4, 1, 2]),
    Draft::Named(&[1, 1]),
    Draft::Named(&[3, 2]),
];

fn samplings() -> Vec<Sampling> {
    let base = Sampling { temperature: 1.0, seed: 5, ..Sampling::default() };
    vec![
        base.clone(),
        Sampling { temperature: 0.5, ..base.clone() },
        Sampling { temperature: 2.0, top_k: Some(3), ..base.clone() },
        Sampling { top_p: 0.8, ..base.clone() },
        Sampling { presence_penalty: 0.8, repetition_penalty: 1.4, ..base },
    ]
}

/// With 20 to 63 degrees of freedom, chi-square over their number is above this in fewer than one of a
/// hundred thousand tries; and the seeds are fixed.
const BOUND: f64 = 2.3;

#[test]
fn joint_distributions_are_the_targets() {
    for sampling in samplings() {
        for draft in DRAFTS {
            let found = distance(exact, draft, &sampling);
            assert!(found < BOUND, "{found}: {draft:?}, {sampling:?}");
        }
    }
}

#[test]
fn without_the_residual_the_distribution_is_another() {
    let sampling = Sampling { temperature: 1.0, seed: 5, ..Sampling::default() };
    for draft in DRAFTS {
        let found = distance(no_residual, draft, &sampling);
        assert!(found > 5.0 * BOUND, "{found}: {draft:?}");
    }
    // And greedy text shows nothing of it.
    let greedy = Sampling::default();
    for draft in DRAFTS {
        let text = |rule| write(rule, draft, &mut Sampler::new(greedy.clone()).unwrap());
        assert_eq!(text(no_residual), text(exact));
    }
}
