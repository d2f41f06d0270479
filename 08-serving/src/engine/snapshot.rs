//! From the engine to its [`EngineState`].

use super::Engine;
use super::arrivals::is_queued;
use super::member::{Member, Place};
use super::state::{BlockCounts, Cell, EngineState, PrefixRow, RequestRow, Stage};
use paged_cache::{BlockId, Tables};

/// Blocks up to which each is shown.
const CELLS: usize = 4096;

/// Nodes of the prefix tree that are shown.
const PREFIXES: usize = 256;

impl Engine {
    /// What it looks like now. However large the pool is, this takes no longer than there are requests with their
    /// blocks, and things to show.
    pub(super) fn snapshot(&mut self) -> EngineState {
        let blocks = self.block_counts();
        let mut requests: Vec<&Member> = self.members.iter().collect();
        requests.sort_by_key(|member| (!member.is_running(), member.rank));
        let count = |which: fn(&Member) -> bool| self.members.iter().filter(|m| which(m)).count();
        EngineState {
            running: count(Member::is_running),
            waiting: count(is_queued),
            stalled: count(Member::is_stalled),
            paused: count(Member::is_paused),
            fetching: count(|member| member.from_file.is_awaited()),
            draining: false, // the inbox knows
            blocks,
            cells: self.cells(),
            requests: requests.into_iter().map(|member| self.request_row(member)).collect(),
            prefixes: self.prefix_rows(),
            passes: self.passes.iter().copied().collect(),
            counters: self.counters,
        }
    }

    pub(super) fn block_counts(&mut self) -> BlockCounts {
        self.count_holders();
        let blocks = self.pool.pool().blocks();
        BlockCounts {
            total: blocks.count(),
            tokens: self.options.block,
            free: blocks.free(),
            cached: blocks.used() - self.holders.held(),
            shared: self.holders.shared(blocks),
        }
    }

    /// By what [`Engine::block_counts`] has counted.
    fn cells(&self) -> Vec<Cell> {
        let blocks = self.pool.pool().blocks();
        if blocks.count() > CELLS {
            return Vec::new();
        }
        let cell = |block| match (blocks.references(block), self.holders.of(block)) {
            (0, _) => Cell::Free,
            (_, 0) => Cell::Cached,
            (1, _) => Cell::Used,
            _ => Cell::Shared,
        };
        (0..blocks.count() as u32).map(|index| cell(BlockId(index))).collect()
    }

    fn request_row(&self, member: &Member) -> RequestRow {
        let tables = member.session().and_then(|s| self.pool.pool().tables(s.sequence()).ok());
        let numbers = |tables: &Tables| tables.held().map(|block| block.0).collect();
        RequestRow {
            id: member.id,
            stage: member.stage(),
            priority: member.priority,
            prompt_tokens: member.prompt,
            cached_tokens: member.usage.cached_tokens,
            generated_tokens: member.generated(),
            max_tokens: member.max_tokens,
            held_tokens: member.held(),
            blocks: tables.map(numbers).unwrap_or_default(),
            preemptions: member.usage.preemptions,
        }
    }

    fn prefix_rows(&self) -> Vec<PrefixRow> {
        let branches = self.pool.prefixes().cache().outline().take(PREFIXES);
        branches
            .map(|branch| PrefixRow {
                depth: branch.depth,
                tokens: branch.tokens.len(),
                blocks: branch.blocks.iter().map(|block| block.0).collect(),
                used: branch.used,
            })
            .collect()
    }
}

impl Member {
    fn stage(&self) -> Stage {
        match &self.place {
            _ if self.is_stalled() => Stage::Stalled,
            Place::Inside(_) if self.held() + 1 == self.text.len() && self.generated() > 0 => {
                Stage::Decode
            }
            Place::Inside(_) => Stage::Prefill,
            _ if self.has_started => Stage::Preempted,
            _ => Stage::Waiting,
        }
    }
}
