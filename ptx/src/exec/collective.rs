//! What the lanes of a warp do together: shuffles, votes, matches, reductions.

use super::block::Block;
use super::memory::combine;
use super::warp::Warp;
use super::{Lanes, lanes};
use crate::error::{FaultKind, Problem};
use crate::isa::{Op, Shuffle, Vote};

impl<'a> Block<'a> {
    /// That every lane here names exactly the lanes that are here; lanes that have returned may be named.
    pub(super) fn check_members(
        &self,
        warp: &Warp<'a>,
        mask: u32,
        members: &Lanes,
    ) -> Result<(), Problem> {
        for lane in lanes(mask) {
            let named = members[lane] as u32;
            if named >> lane & 1 == 0 {
                let text = format!("the lane is not among the lanes {named:#010x} that it names");
                return Err(Problem::new(FaultKind::Divergence, text).at(lane));
            }
            let missing = named & warp.live() & !mask;
            if missing != 0 {
                let text = format!(
                    "lanes {missing:#010x} are named in the member mask {named:#010x} and are not here"
                );
                return Err(Problem::new(FaultKind::Divergence, text).at(lane));
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
                let yes = warp.condition(*a) & mask;
                let holds = match vote {
                    Vote::All => yes == mask,
                    Vote::Any => yes != 0,
                    Vote::Uniform => yes == mask || yes == 0,
                };
                warp.put_pred(*dst, mask, if holds { u32::MAX } else { 0 });
            }
            Op::Ballot { dst, a, members } => {
                let members = warp.value(*members, &self.grid);
                self.check_members(warp, mask, &members)?;
                let yes = warp.condition(*a) & mask;
                warp.put(*dst, mask, &[yes.into(); 32]);
            }
            Op::ActiveMask { dst } => warp.put(*dst, mask, &[mask.into(); 32]),
            Op::Match { all, ty, dst, a, members } => {
                let members = warp.value(*members, &self.grid);
                self.check_members(warp, mask, &members)?;
                let a = warp.value(*a, &self.grid).map(|a| a & ty.mask());
                let same = |lane: usize| {
                    lanes(mask).filter(|&l| a[l] == a[lane]).fold(0u32, |m, l| m | 1 << l)
                };
                let mut found = [0; 32];
                for lane in lanes(mask) {
                    let same = same(lane);
                    found[lane] = u64::from(if all.is_some() && same != mask { 0 } else { same });
                }
                warp.put(*dst, mask, &found);
                if let Some(Some(pred)) = all {
                    let holds = lanes(mask).next().is_some_and(|lane| same(lane) == mask);
                    warp.put_pred(*pred, mask, if holds { u32::MAX } else { 0 });
                }
            }
            Op::Reduce { combine: how, ty, dst, a, members } => {
                let members = warp.value(*members, &self.grid);
                self.check_members(warp, mask, &members)?;
                let a = warp.value(*a, &self.grid);
                let found =
                    lanes(mask).map(|lane| a[lane]).reduce(|x, y| combine(*how, *ty, x, y, 0));
                warp.put(*dst, mask, &[found.unwrap_or(0); 32]);
            }
            Op::Elect { dst, leader, members } => {
                let members = warp.value(*members, &self.grid);
                self.check_members(warp, mask, &members)?;
                // The ISA leaves open which one; here it is the first.
                let first = mask.trailing_zeros();
                if let Some(dst) = dst {
                    warp.put(*dst, mask, &[first.into(); 32]);
                }
                warp.put_pred(*leader, mask, 1 << first);
            }
            _ => {}
        }
        Ok(())
    }
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
