//! What the lanes of a warp do together: shuffles, votes, matches, reductions.

use super::block::Block;
use super::combine::combine;
use super::warp::Warp;
use super::{Lanes, lanes};
use crate::error::{FaultKind, Problem};
use crate::isa::{Op, Shuffle, Vote};

impl<'a> Block<'a> {
    /// That every lane here names itself and others that are here and name the same; lanes that have returned may be named.
    pub(super) fn check_members(
        &self,
        warp: &Warp<'a>,
        mask: u32,
        members: &Lanes,
    ) -> Result<(), Problem> {
        for (lane, group) in groups(mask, members) {
            let named = members[lane] as u32;
            let wrong = |text: String| Err(Problem::new(FaultKind::Divergence, text).at(lane));
            if named >> lane & 1 == 0 {
                return wrong(format!(
                    "the lane is not among the lanes {named:#010x} that it names"
                ));
            }
            let missing = named & warp.live() & !mask;
            if missing != 0 {
                return wrong(format!(
                    "lanes {missing:#010x} are named in the member mask {named:#010x} and are not here"
                ));
            }
            if let Some(other) = lanes(group).find(|&other| members[other] as u32 != named) {
                let others = members[other] as u32;
                return wrong(format!(
                    "the lane names the lanes {named:#010x}; lane {other}, one of them, names {others:#010x}"
                ));
            }
        }
        Ok(())
    }

    pub(super) fn collective(
        &mut self,
        warp: &mut Warp<'a>,
        op: &Op,
        mask: u32,
    ) -> Result<(), Problem> {
        match op {
            Op::Shuffle { how, dst, valid, a, lane, clamp, members } => {
                let members = warp.value(*members, &self.grid);
                self.check_members(warp, mask, &members)?;
                let (a, by) = (warp.value(*a, &self.grid), warp.value(*lane, &self.grid));
                let clamp = warp.value(*clamp, &self.grid);
                let (mut found, mut inside) = (a, 0);
                for lane in lanes(mask) {
                    let (source, valid) =
                        source(*how, lane as u32, by[lane] as u32, clamp[lane] as u32);
                    let present = members[lane] as u32 & mask;
                    if present >> source & 1 == 0 {
                        let text = format!(
                            "reads from lane {source}, which does not take part; lanes {present:#010x} do"
                        );
                        return Err(Problem::new(FaultKind::Divergence, text).at(lane));
                    }
                    found[lane] = a[source as usize];
                    inside |= u32::from(valid) << lane;
                }
                warp.put(*dst, mask, &found);
                if let Some(valid) = valid {
                    warp.put_pred(*valid, mask, inside);
                }
            }
            Op::Vote { vote, dst, a, members } => {
                let members = warp.value(*members, &self.grid);
                self.check_members(warp, mask, &members)?;
                let condition = warp.condition(*a);
                for (_, group) in groups(mask, &members) {
                    let yes = condition & group;
                    let holds = match vote {
                        Vote::All => yes == group,
                        Vote::Any => yes != 0,
                        Vote::Uniform => yes == group || yes == 0,
                    };
                    warp.put_pred(*dst, group, if holds { u32::MAX } else { 0 });
                }
            }
            Op::Ballot { dst, a, members } => {
                let members = warp.value(*members, &self.grid);
                self.check_members(warp, mask, &members)?;
                let yes = warp.condition(*a);
                for (_, group) in groups(mask, &members) {
                    warp.put(*dst, group, &[(yes & group).into(); 32]);
                }
            }
            Op::ActiveMask { dst } => warp.put(*dst, mask, &[mask.into(); 32]),
            Op::Match { all, ty, dst, a, members } => {
                let members = warp.value(*members, &self.grid);
                self.check_members(warp, mask, &members)?;
                let a = warp.value(*a, &self.grid).map(|a| a & ty.mask());
                for (first, group) in groups(mask, &members) {
                    let same = |lane: usize| {
                        lanes(group).filter(|&l| a[l] == a[lane]).fold(0u32, |m, l| m | 1 << l)
                    };
                    let holds = same(first) == group;
                    let mut found = [0; 32];
                    for lane in lanes(group) {
                        found[lane] =
                            if all.is_some() && !holds { 0 } else { u64::from(same(lane)) };
                    }
                    warp.put(*dst, group, &found);
                    if let Some(Some(pred)) = all {
                        warp.put_pred(*pred, group, if holds { u32::MAX } else { 0 });
                    }
                }
            }
            Op::Reduce { combine: how, ty, dst, a, members } => {
                let members = warp.value(*members, &self.grid);
                self.check_members(warp, mask, &members)?;
                let a = warp.value(*a, &self.grid);
                for (_, group) in groups(mask, &members) {
                    let values = lanes(group).map(|lane| a[lane]);
                    let found = values.reduce(|x, y| combine(*how, *ty, x, y, 0));
                    warp.put(*dst, group, &[found.unwrap_or(0); 32]);
                }
            }
            Op::Elect { dst, leader, members } => {
                let members = warp.value(*members, &self.grid);
                self.check_members(warp, mask, &members)?;
                // The ISA leaves open which one; here it is the first.
                for (first, group) in groups(mask, &members) {
                    if let Some(dst) = dst {
                        warp.put(*dst, group, &[first as u64; 32]);
                    }
                    warp.put_pred(*leader, group, 1 << first);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// The groups of lanes that act together, each with its first lane: lanes that come to one instruction may name others.
fn groups(mask: u32, members: &Lanes) -> impl Iterator<Item = (usize, u32)> + '_ {
    let mut rest = mask;
    std::iter::from_fn(move || {
        let first = lanes(rest).next()?;
        let group = members[first] as u32 & mask;
        // A lane that does not name itself is refused, and is not met again.
        rest &= !(group | 1 << first);
        Some((first, group))
    })
}

/// From which lane a lane reads, and whether that lane is inside of its segment. `clamp` holds the segment's mask in bits
/// 8 to 12 and the last (or first) lane in bits 0 to 4.
fn source(how: Shuffle, lane: u32, by: u32, clamp: u32) -> (u32, bool) {
    let (by, segment) = (by & 31, clamp >> 8 & 31);
    let bound = clamp & 31;
    let (first, last) = (lane & segment, lane & segment | bound & !segment);
    let (source, valid) = match how {
        Shuffle::Up => (lane.wrapping_sub(by), lane as i32 - by as i32 >= last as i32),
        Shuffle::Down => (lane + by, lane + by <= last),
        Shuffle::Butterfly => (lane ^ by, lane ^ by <= last),
        Shuffle::Index => {
            let source = first | by & !segment;
            (source, source <= last)
        }
    };
    if valid { (source & 31, true) } else { (lane, false) }
}
