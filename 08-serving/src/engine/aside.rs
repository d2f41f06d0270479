//! Keys and values that only the file has are read while others run.
//!
//! A disk may take as long to send a prompt's keys and values as many passes take. So they are asked for while the request
//! waits for its place; until they are here others run; then it begins as after a hit in the prefix cache. As with all tiers,
//! nothing is relied on: what does not come in time is computed.

use super::Engine;
use super::member::Member;
use super::policy::Rank;
use crate::say::tell;
use paged_cache::offload::Key;
use prefix_radix::Aside;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Prompts that are read at once: the next comes while one that is here waits for its turn.
const AT_ONCE: usize = 2;

/// Bytes that are read for one of them: until it comes in they take memory besides the pool. What is behind them is computed.
const MOST_BYTES: usize = 512 << 20;

/// How often the file is asked for one request: what was known when it was asked may be gone when it comes in.
const MOST_ASKED: usize = 2;

/// How many of those who come in next are looked at anew each time: what the pool knew of them may have gone to the file.
const NEXT: usize = 8;

/// How long a request that could run waits for its turn, and then for what is read for it; no longer than half of the time that
/// it has.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long one block may take. Until it has come, the disk is asked for nothing more.
const SILENCE: Duration = Duration::from_secs(5);

/// When the engine looks again what has come, although it is rung for.
const LATER: Duration = Duration::from_millis(10);

/// How a request stands with the file.
#[derive(Default)]
pub(super) struct FromFile {
    /// Names of its blocks; none until it was looked at.
    names: Option<Vec<Key>>,
    asked: usize,
    stage: Stage,
    /// Whether nothing but room was wanting when this was looked at last.
    wants_room: bool,
}

#[derive(Default)]
enum Stage {
    /// Nothing is waited for.
    #[default]
    Idle,
    /// The file has something of it, and reads for others first; so long it waits.
    InLine(Instant),
    /// The file reads, or has read.
    Asked(Asked),
}

/// What the file was asked for.
struct Asked {
    aside: Aside,
    /// Tokens before the first that it reads.
    known: usize,
    /// So long it waits at most.
    until: Instant,
    /// Whether it still waits.
    is_awaited: bool,
}

impl FromFile {
    /// Whether the request has to wait for it.
    pub(super) fn is_awaited(&self) -> bool {
        match &self.stage {
            Stage::Idle => false,
            Stage::InLine(_) => true,
            Stage::Asked(asked) => asked.is_awaited,
        }
    }
}

impl Asked {
    /// Waits no longer where all is here, or it has taken too long.
    fn look(&mut self, now: Instant) {
        let began = self.aside.began();
        let is_late = began.is_some_and(|began| began + PATIENCE <= now) || self.until <= now;
        self.is_awaited &= !self.aside.is_over() && !is_late;
    }
}

impl Engine {
    // ANCHOR: read_aside
    /// Has the file read what it alone has of those who wait, the first in rank first.
    pub(super) fn read_aside(&mut self) {
        if !self.pool.prefixes().reads_aside() {
            return;
        }
        let now = Instant::now();
        self.look_at_the_disk(now);
        let mut queue: Vec<(Rank, usize)> = Vec::new();
        for (index, member) in self.members.iter_mut().enumerate() {
            if let Stage::Asked(asked) = &mut member.from_file.stage {
                asked.look(now);
            }
            let may_be_known = !member.reads_all() && member.parked().is_none();
            if !member.is_running() && may_be_known {
                queue.push((member.rank, index));
            }
        }
        queue.sort_unstable();
        // Whoever waits for a place anyway loses nothing by waiting for the file.
        let mut is_kept_out = self.running() >= self.options.running;
        for (place, &(_, index)) in queue.iter().enumerate() {
            self.look_at(index, place < NEXT, is_kept_out, now);
            // Nobody passes one for whom there was no room.
            let member = &mut self.members[index];
            let wants_room = member.wants_room();
            is_kept_out |=
                std::mem::replace(&mut member.from_file.wants_room, wants_room) && wants_room;
        }
        let with = |stage: fn(&Stage) -> bool| {
            let those =
                queue.iter().filter(|&&(_, index)| stage(&self.members[index].from_file.stage));
            those.copied().collect::<Vec<_>>()
        };
        let mut under_way = with(|stage| matches!(stage, Stage::Asked(_)));
        for (rank, index) in with(|stage| matches!(stage, Stage::InLine(_))) {
            let same = under_way.iter().position(|&(_, other)| self.reads_the_same(other, index));
            let last = under_way.iter().copied().max().filter(|_| under_way.len() >= AT_ONCE);
            match (same, last) {
                // It finds that in the pool, when the other has come in.
                (Some(same), _) if under_way[same].0 < rank => {}
                // What is read for the other is read for the one before it.
                (Some(same), _) => {
                    let (_, other) = std::mem::replace(&mut under_way[same], (rank, index));
                    self.members[index].from_file.stage = self.members[other].gives_way(now);
                    self.members[index].from_file.asked += 1;
                }
                (None, Some(last)) if last < (rank, index) => break,
                (None, last) => {
                    // One that cannot come in yet gives way to whoever is before it, and is read for again.
                    if let Some(last) = last {
                        under_way.retain(|&other| other != last);
                        self.members[last.1].gives_way(now);
                    }
                    if self.ask_the_file(index, now) {
                        under_way.push((rank, index));
                    }
                }
            }
        }
    }
    // ANCHOR_END: read_aside

    /// Whether the disk answers. Where it does not, nobody waits for it.
    fn look_at_the_disk(&mut self, now: Instant) {
        let since = self.pool.prefixes().waits_since();
        let is_silent = since.is_some_and(|since| since + SILENCE <= now);
        if is_silent && !self.disk_is_silent {
            tell!(
                "the file of keys and values has not been read for {} seconds: until it is, what it has is computed",
                SILENCE.as_secs()
            );
        }
        self.disk_is_silent = is_silent;
        for member in self.members.iter_mut().filter(|_| is_silent) {
            match &mut member.from_file.stage {
                Stage::Idle => {}
                Stage::InLine(_) => member.from_file.stage = Stage::Idle,
                Stage::Asked(asked) => asked.is_awaited = false,
            }
        }
    }

    /// Looks whether the file alone has something of a request that waits: at once, and again when it is about to come in.
    /// Whoever is kept out by others has its patience for later.
    fn look_at(&mut self, index: usize, is_next: bool, is_kept_out: bool, now: Instant) {
        let (member, prefixes) = (&mut self.members[index], self.pool.prefixes());
        let beginning = &member.text[..member.text.len() - 1];
        let until = member.until(now);
        let FromFile { names, asked, stage, .. } = &mut member.from_file;
        let is_new = names.is_none();
        let names = names.get_or_insert_with(|| prefixes.names(member.salt, beginning));
        match stage {
            Stage::InLine(waits_until) if is_kept_out => *waits_until = until,
            Stage::InLine(until) if *until <= now => {
                *asked = MOST_ASKED;
                *stage = Stage::Idle;
            }
            // What was read follows blocks that have gone since: all of it is read again.
            Stage::Asked(read) if is_next && !read.is_awaited && *asked < MOST_ASKED => {
                let known = prefixes.at_hand(member.salt, beginning, names) * self.options.block;
                if known < read.known {
                    *stage = Stage::InLine(until);
                }
            }
            Stage::Idle
                if (is_new || is_next)
                    && *asked < MOST_ASKED
                    && !self.disk_is_silent
                    && prefixes.is_aside(member.salt, beginning, names) =>
            {
                *stage = Stage::InLine(until);
            }
            _ => {}
        }
    }

    /// Asks the file for what it alone has of a request, and says whether there is anything.
    fn ask_the_file(&mut self, index: usize, now: Instant) -> bool {
        let member = &mut self.members[index];
        let (salt, until) = (member.salt, member.until(now));
        let beginning = &member.text[..member.text.len() - 1];
        let FromFile { names, asked, stage, .. } = &mut member.from_file;
        let names = names.as_deref().unwrap_or_default();
        let most = MOST_BYTES / self.pool.pool().layout().block_bytes();
        *asked += 1;
        let read = self.pool.read_aside(salt, beginning, names, most.max(1));
        let read = read.map(|(aside, known)| Asked { aside, known, until, is_awaited: true });
        *stage = read.map_or(Stage::Idle, Stage::Asked);
        matches!(stage, Stage::Asked(_))
    }

    /// Whether the file was asked for what another begins with, too.
    fn reads_the_same(&self, asked: usize, other: usize) -> bool {
        let (asked, other) = (&self.members[asked], &self.members[other]);
        let Stage::Asked(Asked { known, .. }) = asked.from_file.stage else { return false };
        let first = ..known + self.options.block;
        asked.salt == other.salt && asked.text.get(first) == other.text.get(first)
    }

    /// What the file has sent for a request that comes in.
    pub(super) fn take_from_file(&mut self, index: usize) -> HashMap<Key, Vec<u8>> {
        match std::mem::take(&mut self.members[index].from_file.stage) {
            Stage::Asked(asked) => self.pool.prefixes_mut().take_read(asked.aside),
            Stage::Idle | Stage::InLine(_) => HashMap::new(),
        }
    }

    /// When to look again what has come, if anything is to.
    pub(super) fn next_read(&self) -> Option<Instant> {
        let mut awaited = self.members.iter().filter(|member| member.from_file.is_awaited());
        awaited.next().map(|_| Instant::now() + LATER)
    }
}

impl Member {
    /// How long it may wait for the file from now on: half of its time is for computing what does not come.
    fn until(&self, now: Instant) -> Instant {
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(now) / 2);
        now + left.map_or(PATIENCE, |half| half.min(PATIENCE))
    }

    /// Whether nothing but room is wanting, if it has no place.
    fn wants_room(&self) -> bool {
        !self.is_stalled() && !self.elsewhere.is_awaited() && !self.from_file.is_awaited()
    }

    /// What is read for it is another's, or nobody's. It is in line again, as if nothing had been asked for.
    fn gives_way(&mut self, now: Instant) -> Stage {
        let waits = Stage::InLine(self.until(now));
        self.from_file.asked = self.from_file.asked.saturating_sub(1);
        std::mem::replace(&mut self.from_file.stage, waits)
    }
}

#[cfg(test)]
mod tests;
