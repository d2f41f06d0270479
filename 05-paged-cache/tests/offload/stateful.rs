//! Any sequence of operations: a tier keeps exactly what a map of names to bytes says, as the map forgets
//! what was used longest ago, and its integrity holds after each.

use super::{get, key, open, options};
use paged_cache::offload::{FileTier, HostTier, Tier};
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

const NAMES: u64 = 12;
const BLOCK: usize = 10;
const BUDGET: usize = 40;
const SLOTS: usize = 5;

#[derive(Debug, Clone)]
enum Operation {
    /// A name, bytes, how many of them; too many or none at all are refused.
    Put(u64, u8, usize),
    Get(u64),
    Remove(u64),
    /// Of the file: closed, and opened by the next process.
    Reopen,
}

fn operation() -> impl Strategy<Value = Operation> {
    let name = 0..NAMES;
    let length = prop_oneof![20 => 1..=BLOCK, 1 => Just(0usize), 1 => Just(BUDGET + 1)];
    prop_oneof![
        6 => (name.clone(), any::<u8>(), length).prop_map(|(n, fill, l)| Operation::Put(n, fill, l)),
        4 => name.clone().prop_map(Operation::Get),
        2 => name.prop_map(Operation::Remove),
        1 => Just(Operation::Reopen),
    ]
}

/// What a tier should hold: under each name its bytes, when it was used, when it was written.
#[derive(Default)]
struct Model {
    blocks: HashMap<u64, (Vec<u8>, usize, usize)>,
    clock: usize,
}

impl Model {
    fn tick(&mut self) -> usize {
        self.clock += 1;
        self.clock
    }

    /// Keeps the bytes, then forgets the oldest until `fits`.
    fn put(&mut self, name: u64, bytes: Vec<u8>, fits: impl Fn(&Self) -> bool) {
        let now = self.tick();
        self.blocks.insert(name, (bytes, now, now));
        while !fits(self) {
            let oldest = *self.blocks.iter().min_by_key(|(_, (_, used, _))| *used).unwrap().0;
            self.blocks.remove(&oldest);
        }
    }

    fn get(&mut self, name: u64) -> Option<Vec<u8>> {
        let now = self.tick();
        let (bytes, used, _) = self.blocks.get_mut(&name)?;
        *used = now;
        Some(bytes.clone())
    }

    fn reopen(&mut self) {
        for (_, used, written) in self.blocks.values_mut() {
            *used = *written;
        }
    }

    fn bytes(&self) -> usize {
        self.blocks.values().map(|(bytes, ..)| bytes.len()).sum()
    }
}

/// Applies an operation to both; `longest` is the longest block that the tier takes.
fn apply(
    tier: &mut dyn Tier,
    model: &mut Model,
    operation: &Operation,
    longest: usize,
    fits: impl Fn(&Model) -> bool,
) {
    match *operation {
        Operation::Put(name, fill, length) => {
            let bytes = vec![fill; length];
            let taken = tier.put(key(name), &bytes).is_ok();
            assert_eq!(taken, (1..=longest).contains(&length));
            if taken {
                model.put(name, bytes, fits);
            }
        }
        Operation::Get(name) => assert_eq!(get(tier, key(name)), model.get(name)),
        Operation::Remove(name) => {
            let was_there = model.blocks.remove(&name).is_some();
            assert_eq!(tier.remove(key(name)).unwrap(), was_there);
        }
        Operation::Reopen => {}
    }
    for name in 0..NAMES {
        let expected = model.blocks.contains_key(&name);
        assert_eq!(tier.contains(key(name)), expected, "name {name}");
    }
}

/// Reads everything that is there aside: as the model has it, and unharmed by what is written meanwhile.
fn read_aside(tier: &mut FileTier, model: &Model, rings: &Receiver<()>) {
    let names: Vec<u64> = (0..NAMES).filter(|name| model.blocks.contains_key(name)).collect();
    let keys: Vec<_> = names.iter().map(|&name| key(name)).collect();
    let reading = tier.read_aside(&keys).unwrap();
    rings.recv().unwrap();
    let (found, problem) = tier.take_read(reading);
    assert!(problem.is_none(), "{problem:?}");
    assert_eq!(found.len(), names.len());
    for name in names {
        assert_eq!(found[&key(name)], model.blocks[&name].0, "name {name}");
    }
}

/// Reads everything: the bytes too must be the model's.
fn compare(tier: &mut dyn Tier, model: &mut Model) {
    for name in 0..NAMES {
        assert_eq!(get(tier, key(name)), model.get(name), "name {name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn memory_is_what_a_map_says(operations in prop::collection::vec(operation(), 50..150)) {
        let (mut tier, mut model) = (HostTier::new(BUDGET), Model::default());
        for operation in &operations {
            apply(&mut tier, &mut model, operation, BUDGET, |model| model.bytes() <= BUDGET);
            tier.check_integrity().unwrap();
            assert_eq!((tier.len(), tier.bytes()), (model.blocks.len(), model.bytes()));
        }
        compare(&mut tier, &mut model);
    }

    #[test]
    fn a_file_is_what_a_map_says(operations in prop::collection::vec(operation(), 50..150)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("blocks");
        let options = options(BLOCK, SLOTS);
        for writes_behind in [false, true] {
            let (to, rings) = channel();
            let open = || {
                let to = to.clone();
                let tier = open(&path, &options).reading_aside(Arc::new(move || _ = to.send(())));
                match writes_behind {
                    // Room for a block or two that are not written.
                    true => tier.unwrap().writing_behind(BLOCK * 3 / 2).unwrap(),
                    false => tier.unwrap(),
                }
            };
            let (mut tier, mut model) = (open(), Model::default());
            for operation in &operations {
                if matches!(operation, Operation::Reopen) {
                    drop(tier);
                    tier = open();
                    model.reopen();
                }
                apply(&mut tier, &mut model, operation, BLOCK, |model| model.blocks.len() <= SLOTS);
                read_aside(&mut tier, &model, &rings);
                tier.check_integrity().unwrap();
                assert_eq!((tier.len(), tier.damaged()), (model.blocks.len(), 0));
            }
            compare(&mut tier, &mut model);
            (0..NAMES).for_each(|name| _ = tier.remove(key(name)).unwrap());
        }
    }
}
