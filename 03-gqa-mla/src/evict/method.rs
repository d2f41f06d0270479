//! All methods by name.

use super::{Budget, Evict, EvictingCache, HeavyHitters, Keyformer, Random, Sinks, SnapKv};
use crate::sparse::{Pattern, SparseCache};
use kv_cache::KvCache;
use naive_decode::{Model, Result};

/// A cache of which several futures can be tried: eviction cannot be rolled back, so whoever asks
/// more than one question of a text asks each of a fork.
pub trait Fork: KvCache {
    /// An independent cache in the same state.
    fn fork(&self) -> Box<dyn Fork>;
}

impl<C: KvCache + Clone + 'static> Fork for C {
    fn fork(&self) -> Box<dyn Fork> {
        Box::new(self.clone())
    }
}

/// A way to keep or to read less, for a table of all of them.
#[derive(Clone, Copy)]
pub struct Method {
    /// As the field calls it.
    pub name: &'static str,
    /// Who proposed it, and where it is defined.
    pub paper: &'static str,
    /// A cache for one sequence of at most so many tokens, with a budget.
    pub make: fn(&Model, usize, Budget) -> Result<Box<dyn Fork>>,
}

/// The seed of whatever draws lots.
const SEED: u64 = 1;

/// Tokens in a block of the sparse pattern: NSA's are 32 to 64 for contexts of tens of thousands.
const BLOCK: usize = 16;

/// Every method of this crate that evicts, and the one that keeps all and reads so much of it.
pub fn methods() -> Vec<Method> {
    vec![
        Method {
            name: "random",
            paper: "none: what a method must beat",
            make: |model, capacity, budget| make(model, capacity, budget, Random { seed: SEED }),
        },
        Method {
            name: "window",
            paper: "window attention as in Xiao et al. 2023, §1",
            make: |model, capacity, budget| make(model, capacity, budget, Sinks::NONE),
        },
        Method {
            name: "sinks",
            paper: "StreamingLLM, Xiao et al. 2023, §3.2; positions of the text",
            make: |model, capacity, budget| make(model, capacity, budget, Sinks::FOUR),
        },
        Method {
            name: "H2O",
            paper: "Zhang et al. 2023, §4.1",
            make: |model, capacity, budget| make(model, capacity, budget, HeavyHitters::new()),
        },
        Method {
            name: "SnapKV",
            paper: "Li et al. 2024, §4",
            make: |model, capacity, budget| make(model, capacity, budget, SnapKv::new(16, 5)?),
        },
        Method {
            name: "Keyformer",
            paper: "Adnan et al. 2024, §3",
            make: |model, capacity, budget| make(model, capacity, budget, Keyformer::new(SEED, 64)),
        },
        Method {
            name: "NSA pattern",
            paper: "Yuan et al. 2025, §3.3, untrained; the budget is what is read, all is kept",
            make: |model, capacity, budget| {
                let pattern = Pattern::reading(budget.entries(capacity)?, capacity, BLOCK)?;
                Ok(Box::new(SparseCache::new(model, capacity, 1, pattern)?))
            },
        },
    ]
}

fn make<P: Evict + 'static>(
    model: &Model,
    capacity: usize,
    budget: Budget,
    policy: P,
) -> Result<Box<dyn Fork>> {
    Ok(Box::new(EvictingCache::new(model, capacity, 1, budget, policy)?))
}
