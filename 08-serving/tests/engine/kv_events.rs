//! KV events: whoever listens knows at every moment what the pool knows, whenever he has begun.

use crate::world::{Answer, Dice, crowd, engine, options};
use paged_cache::offload::Key;
use prefix_radix::{KvEvent, PrefixCache, Salt};
use serving::engine::{Engine, EngineOptions, EngineRequest, KvEvents, Step};
use std::collections::{BTreeSet, HashMap};
use tokio::sync::mpsc::error::TryRecvError;

const BLOCK: usize = 4;

/// Somebody who keeps a record of what he is told, as a router does.
struct Router {
    events: KvEvents,
    /// The text up to the end of each block.
    texts: HashMap<Key, Vec<u32>>,
    /// Blocks told of whose parent was not.
    orphans: usize,
}

impl Router {
    fn of(engine: &Engine) -> Self {
        Router { events: engine.kv_events(), texts: HashMap::new(), orphans: 0 }
    }

    /// Reads all that was told. Says whether there may be more.
    fn read(&mut self) -> bool {
        loop {
            match self.events.try_recv() {
                Ok(step) => step.iter().for_each(|event| self.hear(event)),
                Err(end) => return end == TryRecvError::Empty,
            }
        }
    }

    fn hear(&mut self, event: &KvEvent) {
        match event {
            KvEvent::Stored { parent, blocks, tokens } => {
                assert_eq!(blocks.len() * BLOCK, tokens.len());
                let before =
                    parent.map_or(Some(Vec::new()), |parent| self.texts.get(&parent).cloned());
                let Some(mut text) = before else {
                    self.orphans += blocks.len();
                    return;
                };
                for (&block, tokens) in blocks.iter().zip(tokens.chunks(BLOCK)) {
                    text.extend(tokens);
                    let before = self.texts.insert(block, text.clone());
                    assert_eq!(before, None, "a block is told of once");
                }
            }
            KvEvent::Removed { blocks } => {
                for block in blocks {
                    assert!(self.texts.remove(block).is_some(), "a block that was told of");
                }
            }
        }
    }

    #[track_caller]
    fn knows_what_is_known(&mut self, engine: &Engine) {
        assert!(self.read());
        let heard: BTreeSet<&[u32]> = self.texts.values().map(Vec::as_slice).collect();
        assert_eq!(heard.len(), self.texts.len(), "a text has one name");
        let mut known: BTreeSet<Vec<u32>> = BTreeSet::new();
        let mut above: Vec<Vec<u32>> = Vec::new();
        for branch in engine.pool().prefixes().cache().outline() {
            if branch.salt != Salt::NONE {
                continue;
            }
            above.truncate(branch.depth);
            let mut text = above.last().cloned().unwrap_or_default();
            for tokens in branch.tokens.chunks(BLOCK) {
                text.extend(tokens);
                known.insert(text.clone());
            }
            above.push(text);
        }
        assert_eq!(heard, known.iter().map(Vec::as_slice).collect());
    }
}

#[test]
fn routers_know_what_is_known() {
    // Little room: what is known leaves as others need the place, and requests are preempted.
    let mut engine = engine(EngineOptions { running: 6, rows: 64, ..options(220) });
    let mut dice = Dice(5);
    let mut routers = vec![Router::of(&engine)];
    let mut asked = crowd(11, 60).into_iter();
    let mut answers: Vec<Answer> = Vec::new();
    let (mut most, mut removed) = (0, 0);
    loop {
        if dice.below(8) < 3
            && let Some(asked) = asked.next()
        {
            let salt = match dice.below(4) {
                0 => Salt::of(b"ada"),
                _ => Salt::NONE,
            };
            let request = EngineRequest { salt, ..asked.request() };
            answers.push(Answer::of(engine.submit(request).unwrap()));
        }
        if dice.below(20) == 0 && !answers.is_empty() {
            // Somebody goes away in the middle.
            answers.swap_remove(dice.below(answers.len() as u32) as usize);
        }
        if dice.below(25) == 0 {
            routers.push(Router::of(&engine));
        }
        let step = engine.step().unwrap();
        answers.iter_mut().for_each(Answer::read);
        let before = routers[0].texts.len();
        for router in &mut routers {
            router.knows_what_is_known(&engine);
            assert_eq!(router.orphans, 0);
        }
        most = most.max(routers[0].texts.len());
        removed += before.saturating_sub(routers[0].texts.len());
        if matches!(step, Step::Idle(_)) && asked.len() == 0 {
            break;
        }
    }
    let statistics = engine.pool().prefixes().cache().statistics();
    assert!(most > 40 && removed > 40 && statistics.evicted > 100, "{most} {removed}");
    assert!(routers.len() > 5 && engine.state().counters.preemptions > 0);
}

#[test]
fn whoever_falls_behind_begins_anew() {
    let mut engine = engine(options(2000));
    let (mut slow, mut quick) = (Router::of(&engine), Router::of(&engine));
    let mut dice = Dice(1);
    for _ in 0..400 {
        let _answer = Answer::of(engine.submit(EngineRequest::new(dice.tokens(9), 1)).unwrap());
        while let Step::Ran(_) = engine.step().unwrap() {}
        quick.knows_what_is_known(&engine);
    }
    assert!(!slow.read(), "he was let go of");
    let mut again = Router::of(&engine);
    engine.step().unwrap();
    again.knows_what_is_known(&engine);
    drop(engine);
    assert!(!again.read(), "it ends with the engine");
}

#[test]
fn an_engine_without_prefixes_has_nothing_to_tell() {
    let mut engine = engine(EngineOptions { prefixes: false, ..options(400) });
    let mut router = Router::of(&engine);
    let _answer = Answer::of(engine.submit(EngineRequest::new(vec![1; 30], 4)).unwrap());
    while let Step::Ran(_) = engine.step().unwrap() {}
    router.knows_what_is_known(&engine);
    assert!(router.texts.is_empty());
}
