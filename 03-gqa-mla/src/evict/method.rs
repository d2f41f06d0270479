//! All methods by name.

use super::{Budget, EvictingCache, Evict, HeavyHitters, Keyformer, Random, Sinks, SnapKv};
use kv_cache::KvCache;
use naive_decode::{Model, Result};

/// A way to keep less, for a table of all of them.
#[derive(Clone, Copy)]
pub struct Method {
    /// As the field calls it.
    pub name: &'static str,
    /// Who proposed it, and where it is defined.
    pub paper: &'static str,
    /// A cache for one sequence of at most so many tokens, with a budget.
    pub make: fn(&Model, usize, Budget) -> Result<Box<dyn KvCache>>,
}

/// The seed of whatever draws lots.
const SEED: u64 = 1;

/// Every eviction method of this crate.
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
    ]
}

fn make<P: Evict + 'static>(
    model: &Model,
    capacity: usize,
    budget: Budget,
    policy: P,
) -> Result<Box<dyn KvCache>> {
    Ok(Box::new(EvictingCache::new(model, capacity, 1, budget, policy)?))
}
