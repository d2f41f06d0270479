//! What the policy is shown.

use super::Engine;
use super::arrivals::is_queued;
use super::member::{Member, Place};
use super::places::finds;
use super::policy::{State, View};
use super::request::Limits;
use naive_decode::Result;
use paged_cache::BlockId;
use std::ops::Range;

/// How many of those who come in next are looked up in the prefix cache. Of others nothing is taken to be known until their
/// turn comes: one that begins like them waits a pass at most in vain.
const LOOKED_UP: usize = 8;

/// Events that a pass may send besides tokens that were guessed, the end included.
const OTHER_EVENTS: usize = 4;

impl Engine {
    /// Everything that the next decision depends on. `is_exact`: the prefix cache has just shown that it can
    /// let go of nothing more, so only those inside and blocks that are free are counted.
    pub(super) fn view(&mut self, is_exact: bool) -> Result<State> {
        self.count_holders();
        let seen = |member: &&Member| !is_exact || member.is_running();
        let mut requests: Vec<View> = self.members.iter().filter(seen).map(Member::view).collect();
        if !is_exact {
            self.look_up(&mut requests);
            let known = requests.iter().flat_map(|view| &view.common);
            known.for_each(|&block| self.holders.note_awaited(BlockId(block)));
        }
        let (pool, holders) = (self.pool.pool(), &self.holders);
        for (view, member) in requests.iter_mut().zip(self.members.iter().filter(seen)) {
            if let Some(session) = member.session() {
                let tables = pool.tables(session.sequence())?;
                view.places = tables.held().count();
                let common = tables.held().filter(|block| holders.is_common(*block));
                view.common = common.map(|block| block.0).collect();
                view.guesses = member.chances();
                view.probes = member.guessing.probes;
            }
        }
        let (free, block) = (pool.blocks().free(), self.options.block);
        let cached = if is_exact { 0 } else { pool.blocks().used() - holders.held() };
        Ok(State { requests, free, cached, block, times: self.times.clone() })
    }

    // ANCHOR: look_up
    /// What is known of the texts of those who will come in next, and who is about to make more known.
    ///
    /// Requests that begin alike often come together (several answers to one question). The first of them reads
    /// the prompt; the others wait until it has, and find it.
    fn look_up(&self, views: &mut [View]) {
        let mut waiting: Vec<usize> = (0..views.len())
            .filter(|&i| is_queued(&self.members[i]) && !views[i].is_stalled)
            .collect();
        if waiting.is_empty() {
            return; // nobody asks what others read
        }
        waiting.sort_unstable_by_key(|&i| views[i].rank);
        let reads = |view: &View| view.is_running && !view.is_stalled && view.pending() > 1;
        let known = |i: usize| (i, self.known(&self.members[i]).len() * self.options.block);
        // Whoever reads a prompt or is about to, and how many tokens of it are known.
        let mut reading: Vec<(usize, usize)> =
            (0..views.len()).filter(|&i| reads(&views[i])).map(known).collect();
        let mut next = 0;
        for i in waiting {
            let member = &self.members[i];
            let ahead = |&&(other, known): &&_| self.is_behind(member, &self.members[other], known);
            if let Some(&(other, _)) = reading.iter().find(ahead) {
                views[i].behind = Some(views[other].id);
                continue;
            }
            if next == self.options.running {
                break; // no more than that come in at once
            }
            let mut tokens = 0;
            if next < LOOKED_UP {
                let known = self.known(member);
                tokens = known.len() * self.options.block;
                if finds(member, tokens) {
                    views[i].held = tokens;
                    views[i].common = known.iter().map(|block| block.0).collect();
                }
            }
            reading.push((i, tokens));
            next += 1;
        }
    }
    // ANCHOR_END: look_up

    /// The blocks of what the pool knows of a text. Its last token is read in any case.
    pub(super) fn known(&self, member: &Member) -> Vec<BlockId> {
        self.pool.known(member.salt, &member.text[..member.text.len() - 1])
    }

    /// Whether a text goes on like another beyond the first `known` tokens, by a block at least: then it has only to wait to
    /// find that block.
    fn is_behind(&self, member: &Member, other: &Member, known: usize) -> bool {
        let more = known + self.options.block;
        // Texts of which the same is known differ most often right behind it.
        let is_alike = |range: Range<usize>| {
            other.text.get(range.clone()).is_some_and(|tokens| tokens == &member.text[range])
        };
        self.options.prefixes
            && !member.reads_all()
            && member.parked().is_none()
            && other.salt == member.salt
            && member.text.len() > more
            && is_alike(known..more)
            && is_alike(0..known)
    }

    /// Guesses behind every text that has one row left to run.
    pub(super) fn guess(&mut self) {
        let (draft, Limits { context, vocabulary, .. }) = (self.options.draft, self.limits());
        for member in &mut self.members {
            let most = member.most_guesses().min(draft);
            member.guessing.tree.truncate(0);
            if most > 0 {
                let proposer = &mut member.guessing.proposer;
                let guessed = proposer.propose(&member.text, most, &mut self.guesser);
                // One that cannot guess costs the guess, and nothing else.
                let mut tree = guessed.unwrap_or_default();
                tree.cut_unknown(vocabulary);
                // The policy says how many of the first are worth a row.
                tree.sort_by_depth();
                // A tree with branches takes more slots than it is deep.
                tree.truncate(context - member.text.len());
                member.guessing.tree = tree;
            }
        }
    }
}

impl Member {
    /// What the policy sees of it, but for what takes a look at the pool.
    fn view(&self) -> View {
        let held = match &self.place {
            Place::Waiting => 0,
            Place::Inside(session) => session.text().len(),
            Place::Parked(parked) => parked.tokens(),
        };
        View {
            id: self.id,
            rank: self.rank,
            priority: self.priority,
            is_running: self.is_running(),
            is_stalled: self.is_stalled()
                || self.elsewhere.is_awaited()
                || self.from_file.is_awaited(),
            is_paused: self.is_paused(),
            text: self.text.len(),
            held,
            longest: self.longest(),
            places: 0,
            common: Vec::new(),
            behind: None,
            guesses: Vec::new(),
            probes: false,
        }
    }

    /// Tokens that may be guessed: not past the end of the text, and no more than its reader has room for.
    fn most_guesses(&self) -> usize {
        if !self.goes_on() || self.held() + 1 < self.text.len() {
            return 0;
        }
        let left = self.max_tokens.saturating_sub(self.generated() + 1);
        left.min(self.outlet.room().saturating_sub(OTHER_EVENTS))
    }

    /// For each guess, the chance that it and those before it come true.
    fn chances(&self) -> Vec<f64> {
        let by_depth: Vec<f64> = self.guessing.acceptance.chances().collect();
        let depths = self.guessing.tree.depths().into_iter();
        depths.map(|depth| by_depth.get(depth - 1).copied().unwrap_or(0.0)).collect()
    }
}
