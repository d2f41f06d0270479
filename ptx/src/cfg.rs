//! Where lanes that part meet again: the immediate post-dominator of each branch.

use crate::isa::{Instruction, Op};

/// What stands for "after the kernel": lanes that never meet again.
pub(crate) const NEVER: usize = usize::MAX;

/// Where control may go from an instruction; `code.len()` is the kernel's end.
fn successors(code: &[Instruction], at: usize) -> [Option<usize>; 2] {
    let (next, end) = (at + 1, code.len());
    let guarded = code[at].guard.is_some();
    match code[at].op {
        Op::Branch { target, .. } if guarded => [Some(target.min(end)), Some(next)],
        Op::Branch { target, .. } => [Some(target.min(end)), None],
        Op::Exit | Op::Trap if guarded => [Some(end), Some(next)],
        Op::Exit | Op::Trap => [Some(end), None],
        _ => [Some(next), None],
    }
}

/// Fills in `reconverge` of every branch.
///
/// Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm", on the reversed graph.
pub(crate) fn set_reconvergence(code: &mut [Instruction]) {
    let end = code.len();
    let mut predecessors: Vec<Vec<usize>> = vec![Vec::new(); end + 1];
    for at in 0..end {
        for to in successors(code, at).into_iter().flatten() {
            predecessors[to].push(at);
        }
    }
    // Depth first from the end against the arrows; `order` is the post-order number.
    let (mut order, mut sequence) = (vec![None; end + 1], Vec::with_capacity(end + 1));
    let (mut seen, mut stack) = (vec![false; end + 1], vec![(end, 0)]);
    seen[end] = true;
    while let Some((at, child)) = stack.pop() {
        if let Some(&next) = predecessors[at].get(child) {
            stack.push((at, child + 1));
            if !std::mem::replace(&mut seen[next], true) {
                stack.push((next, 0));
            }
        } else {
            order[at] = Some(sequence.len());
            sequence.push(at);
        }
    }
    let mut dominator: Vec<Option<usize>> = vec![None; end + 1];
    dominator[end] = Some(end);
    let mut changed = true;
    while changed {
        changed = false;
        for &at in sequence.iter().rev().filter(|&&at| at != end) {
            let mut found: Option<usize> = None;
            for to in successors(code, at).into_iter().flatten() {
                if dominator[to].is_none() {
                    continue;
                }
                found = Some(match found {
                    None => to,
                    Some(other) => meet(other, to, &dominator, &order),
                });
            }
            if found.is_some() && dominator[at] != found {
                dominator[at] = found;
                changed = true;
            }
        }
    }
    for at in 0..end {
        let met = dominator[at].filter(|&met| met != end).unwrap_or(NEVER);
        if let Op::Branch { reconverge, .. } = &mut code[at].op {
            *reconverge = met;
        }
    }
}

/// The nearest point that both `a` and `b` come through.
fn meet(mut a: usize, mut b: usize, dominator: &[Option<usize>], order: &[Option<usize>]) -> usize {
    while a != b {
        let up = |at: usize| dominator[at].unwrap_or(at);
        if order[a] < order[b] { a = up(a) } else { b = up(b) }
    }
    a
}
