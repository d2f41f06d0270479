//! Everything at once: requests of all kinds and priorities come, are read, stall and go, in a pool that is too
//! small, and all that holds for one of them alone holds for all of them together.

use crate::world::{
    Answer, Asked, Dice, Wild, assert_as_alone, assert_empty, crowd, engine, options, run,
};
use proptest::prelude::*;
use serving::engine::{EngineOptions, MakeProposer, Refused};
use std::sync::Arc;

#[derive(Debug, Clone)]
enum Operation {
    /// The next request comes, with a priority.
    Submit(i32),
    /// So many passes.
    Steps(usize),
    /// Somebody reads all that is there for him.
    Read(usize),
    /// Everybody does.
    ReadAll,
    /// Somebody goes away.
    Leave(usize),
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => (-2i32..3).prop_map(Operation::Submit),
        6 => (1usize..12).prop_map(Operation::Steps),
        2 => any::<usize>().prop_map(Operation::Read),
        2 => Just(Operation::ReadAll),
        1 => any::<usize>().prop_map(Operation::Leave),
    ]
}

#[derive(Debug, Clone)]
struct Setting {
    pool: usize,
    running: usize,
    more_rows: usize,
    draft: usize,
    host_bytes: usize,
    prefixes: bool,
    is_wild: bool,
}

fn setting() -> impl Strategy<Value = Setting> {
    let host = prop::sample::select(vec![0usize, 1 << 13, 1 << 20]);
    // The longest request just fits.
    let sizes = (150usize..500, 1usize..7, 0usize..40, 0usize..5);
    (sizes, host, any::<bool>(), any::<bool>()).prop_map(
        |(sizes, host_bytes, prefixes, is_wild)| {
            let (pool, running, more_rows, draft) = sizes;
            Setting { pool, running, more_rows, draft, host_bytes, prefixes, is_wild }
        },
    )
}

impl Setting {
    fn options(&self) -> EngineOptions {
        let plain = options(self.pool);
        let wild: MakeProposer = Arc::new(|| Box::new(Wild(Dice(3))));
        EngineOptions {
            running: self.running,
            rows: self.running + self.more_rows,
            draft: self.draft,
            host_bytes: self.host_bytes,
            prefixes: self.prefixes,
            events: 12,
            queue: 10,
            proposer: if self.is_wild { wild } else { plain.proposer.clone() },
            ..plain
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn whatever_happens(
        seed in any::<u32>(),
        setting in setting(),
        operations in prop::collection::vec(operation(), 1..60),
    ) {
        let crowd = crowd(seed, operations.len());
        let mut coming = crowd.into_iter();
        let mut engine = engine(setting.options());
        let mut inside: Vec<(Asked, Answer)> = Vec::new();
        let (mut taken, mut gone) = (0, 0);
        for operation in operations {
            match operation {
                Operation::Submit(priority) => {
                    let asked = Asked { priority, ..coming.next().unwrap() };
                    match engine.submit(asked.request()) {
                        Ok(ticket) => {
                            taken += 1;
                            inside.push((asked, Answer::of(ticket)));
                        }
                        Err(Refused::Full { .. }) => {}
                        Err(refused) => panic!("{refused}"),
                    }
                }
                Operation::Steps(count) => {
                    for _ in 0..count {
                        engine.step().unwrap();
                        engine.check_integrity().unwrap();
                    }
                }
                Operation::ReadAll => inside.iter_mut().for_each(|(_, answer)| answer.read()),
                Operation::Read(who) if !inside.is_empty() => {
                    let who = who % inside.len();
                    inside[who].1.read();
                }
                Operation::Leave(who) if !inside.is_empty() => {
                    let (_, answer) = inside.swap_remove(who % inside.len());
                    gone += 1;
                    drop(answer);
                }
                Operation::Read(_) | Operation::Leave(_) => {}
            }
        }
        let (asked, mut answers): (Vec<Asked>, Vec<Answer>) = inside.into_iter().unzip();
        while answers.iter().any(|answer| answer.end.is_none()) {
            run(&mut engine, &mut answers);
        }
        run(&mut engine, &mut answers);
        assert_as_alone(&asked, &answers, "after all that");
        assert_empty(&engine);
        let counters = engine.state().counters;
        prop_assert_eq!(counters.submitted, taken);
        let ended = counters.stopped + counters.full_length;
        prop_assert_eq!(ended + counters.cancelled, taken);
        prop_assert!(counters.cancelled <= gone && counters.failed == 0);
    }
}
