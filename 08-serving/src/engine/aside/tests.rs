use super::*;
use crate::engine::{EngineOptions, EngineRequest, Event, Step, Ticket};
use embedded_models::DRAFT;
use naive_decode::{LoadOptions, Model, Result};
use paged_cache::offload::{Reader, Reading, Tier};
use prefix_radix::{Chain, RadixTree, Tiered};
use std::sync::{Arc, Mutex, MutexGuard};

const BLOCK: usize = 4;

/// A tier that reads when it is told to.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Inside>>);

#[derive(Default)]
struct Inside {
    kept: HashMap<Key, Vec<u8>>,
    asked: Vec<(Vec<Key>, Reader)>,
    waits_since: Option<Instant>,
}

impl Told {
    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap()
    }

    /// How many readings it was asked for that somebody waits for.
    fn awaited(&self) -> usize {
        self.inside().asked.iter().filter(|(_, reader)| reader.is_awaited()).count()
    }

    /// Reads the first blocks of what it was asked for first, and says whether that is all.
    fn read(&self, blocks: usize, is_over: bool) {
        let mut inside = self.inside();
        let (keys, reader) = inside.asked.remove(0);
        for &key in &keys[..blocks] {
            reader.give(key, inside.kept[&key].clone());
        }
        if !is_over {
            inside.asked.insert(0, (keys, reader));
        }
    }
}

impl Tier for Told {
    fn put(&mut self, key: Key, bytes: &[u8]) -> Result<()> {
        self.inside().kept.insert(key, bytes.to_vec());
        Ok(())
    }

    fn get(&mut self, _: Key, _: &mut Vec<u8>) -> Result<bool> {
        panic!("the engine waits for the disk");
    }

    fn contains(&self, key: Key) -> bool {
        self.inside().kept.contains_key(&key)
    }

    fn remove(&mut self, key: Key) -> Result<bool> {
        Ok(self.inside().kept.remove(&key).is_some())
    }

    fn outlives_process(&self) -> bool {
        true
    }

    fn reads_aside(&self) -> bool {
        true
    }

    fn waits_since(&self) -> Option<Instant> {
        self.inside().waits_since
    }

    fn read_aside(&mut self, keys: &[Key]) -> Option<Reading> {
        let (reading, reader) = Reading::begin(Arc::new(|| ()));
        self.inside().asked.push((keys.to_vec(), reader));
        Some(reading)
    }
}

fn request(first: u32) -> EngineRequest {
    EngineRequest::new((first..first + 30).collect(), 8)
}

/// An engine over such a tier, which alone has what is known of texts that begin with 1, 40 and 80; and what the first was
/// answered.
fn told() -> (Engine, Told, Vec<u32>) {
    told_in(32)
}

/// The same with so many places.
fn told_in(running: usize) -> (Engine, Told, Vec<u32>) {
    let model = Model::embedded(DRAFT.name, DRAFT.config, DRAFT.weights, LoadOptions::default());
    let model = Arc::new(model.unwrap());
    let usual = EngineOptions::for_model(&model).unwrap();
    let options = EngineOptions { block: BLOCK, running, ..usual };
    let mut engine = Engine::new(model, options).unwrap();
    let (tier, chain) = (Told::default(), Chain::new(b"told"));
    let cache = Box::new(RadixTree::new(BLOCK, chain).unwrap());
    *engine.pool.prefixes_mut() = Tiered::new(cache, chain, vec![Box::new(tier.clone())]);
    let answers: Vec<_> = [1, 40, 80]
        .map(|first| {
            let mut ticket = engine.submit(request(first)).unwrap();
            while !matches!(engine.step().unwrap(), Step::Idle(_)) {}
            tokens(&mut ticket)
        })
        .into();
    engine.pool.put_away(1000);
    assert_eq!((engine.pool.pool().blocks().used(), tier.inside().kept.len()), (0, 27));
    (engine, tier, answers[0].1.clone())
}

/// How much of a prompt was known, if it has started, and the tokens so far.
fn tokens(ticket: &mut Ticket) -> (Option<usize>, Vec<u32>) {
    let (mut known, mut tokens) = (None, Vec::new());
    while let Ok(event) = ticket.try_recv() {
        match event {
            Event::Started { cached_tokens } => known = Some(cached_tokens),
            Event::Token(token) => tokens.push(token.token),
            _ => {}
        }
    }
    (known, tokens)
}

/// Whether a step has run something.
fn runs(engine: &mut Engine) -> bool {
    let step = engine.step().unwrap();
    engine.check_integrity().unwrap();
    matches!(step, Step::Ran(_))
}

#[test]
fn others_run_while_the_disk_reads() {
    let (mut engine, tier, answer) = told();
    let mut waits = engine.submit(request(1)).unwrap();
    assert!(matches!(engine.step().unwrap(), Step::Idle(Some(_))), "it looks again");
    let mut other = engine.submit(request(200)).unwrap();
    while runs(&mut engine) {}
    assert_eq!((tokens(&mut other).1.len(), tokens(&mut waits)), (8, (None, vec![])));
    tier.read(7, true);
    while runs(&mut engine) {}
    assert_eq!(tokens(&mut waits), (Some(28), answer.clone()));
    let got = engine.pool.prefixes().tier_statistics()[0].got;
    assert_eq!((got, tier.inside().asked.len()), (7, 0));
    // What is in the pool is asked of nobody.
    let mut again = engine.submit(request(1)).unwrap();
    while runs(&mut engine) {}
    assert_eq!(tokens(&mut again), (Some(28), answer));
}

#[test]
fn two_are_read_for_at_once_and_those_alike_once() {
    let (mut engine, tier, answer) = told();
    let mut first = engine.submit(request(1)).unwrap();
    let mut alike = engine.submit(request(1)).unwrap();
    let [mut second, mut third] = [40, 80].map(|first| engine.submit(request(first)).unwrap());
    assert!(!runs(&mut engine));
    assert_eq!(tier.awaited(), 2);
    // One that goes away makes room for the next.
    tier.read(7, true);
    drop(std::mem::replace(&mut second, engine.submit(request(300)).unwrap()));
    while runs(&mut engine) {}
    assert_eq!(
        (tokens(&mut first), tokens(&mut alike)),
        ((Some(28), answer.clone()), (Some(28), answer))
    );
    assert_eq!((tokens(&mut second).0, tier.awaited()), (Some(0), 1));
    tier.inside().asked.retain(|(_, reader)| reader.is_awaited());
    tier.read(7, true);
    while runs(&mut engine) {}
    assert_eq!(tokens(&mut third).0, Some(28));
}

#[test]
fn whoever_is_first_in_rank_is_read_for_first() {
    let (mut engine, tier, _) = told();
    let _waits = [1, 40].map(|first| engine.submit(request(first)).unwrap());
    assert!(!runs(&mut engine));
    let mut urgent = engine.submit(EngineRequest { priority: 1, ..request(80) }).unwrap();
    assert!(!runs(&mut engine));
    // The second of the two is called off, and is read for again.
    assert_eq!(tier.awaited(), 2);
    tier.inside().asked.retain(|(_, reader)| reader.is_awaited());
    tier.inside().asked.reverse();
    tier.read(7, true);
    while runs(&mut engine) {}
    assert_eq!((tokens(&mut urgent).0, tier.awaited()), (Some(28), 2));
}

#[test]
fn what_is_read_for_one_is_anothers_who_is_before_it() {
    let (mut engine, tier, _) = told();
    let mut low = engine.submit(request(1)).unwrap();
    assert!(!runs(&mut engine));
    let mut urgent = engine.submit(EngineRequest { priority: 1, ..request(1) }).unwrap();
    assert!(!runs(&mut engine));
    assert_eq!(tier.awaited(), 1, "it is read once");
    tier.read(7, true);
    // The urgent one begins with it, and the other finds it in the pool.
    while tokens(&mut urgent).0.is_none() {
        assert_eq!(tokens(&mut low).0, None);
        assert!(runs(&mut engine));
    }
    while runs(&mut engine) {}
    assert_eq!(tokens(&mut low).0, Some(28));
}

#[test]
fn what_goes_from_the_pool_while_a_request_waits_is_asked_for() {
    let (mut engine, tier, answer) = told();
    let mut first = engine.submit(request(1)).unwrap();
    assert!(!runs(&mut engine));
    tier.read(7, true);
    while runs(&mut engine) {}
    assert_eq!(tokens(&mut first).1, answer);
    let mut waits = engine.submit(request(1)).unwrap();
    engine.look().unwrap();
    assert!(!engine.members[0].from_file.is_awaited(), "all is in the pool");
    engine.pool.put_away(1000);
    assert!(!runs(&mut engine));
    assert!(engine.members[0].from_file.is_awaited());
    tier.read(7, true);
    while runs(&mut engine) {}
    assert_eq!(tokens(&mut waits), (Some(28), answer));
}

#[test]
fn what_does_not_come_in_time_is_computed() {
    let (mut engine, tier, answer) = told();
    let soon = |seconds| Some(Instant::now() + Duration::from_secs(seconds));
    let mut waits = engine.submit(EngineRequest { deadline: soon(60), ..request(1) }).unwrap();
    let mut hurries = engine.submit(EngineRequest { deadline: soon(8), ..request(40) }).unwrap();
    let mut in_line = engine.submit(request(80)).unwrap();
    assert!(!runs(&mut engine));
    let Stage::Asked(asked) = &engine.members[1].from_file.stage else { panic!("it waits") };
    let left = asked.until - Instant::now();
    assert!((2..=4).contains(&left.as_secs()), "half of its time: {left:?}");
    // What has come is of use.
    tier.inside().asked[0].1.begins();
    tier.read(3, false);
    let later = Instant::now() + PATIENCE;
    for member in &mut engine.members {
        match &mut member.from_file.stage {
            Stage::Asked(asked) => asked.look(later),
            Stage::InLine(until) => *until = Instant::now(),
            Stage::Idle => panic!("it waits"),
        }
    }
    while runs(&mut engine) {}
    assert_eq!(tokens(&mut waits), (Some(12), answer));
    assert_eq!((tokens(&mut hurries).0, tokens(&mut in_line).0), (Some(0), Some(0)));
    assert_eq!(tier.awaited(), 0);
}

#[test]
fn whoever_waits_for_a_place_has_patience() {
    let (mut engine, tier, _) = told_in(1);
    let mut runner = engine.submit(request(200)).unwrap();
    assert!(runs(&mut engine));
    let mut waits = [1, 40, 80].map(|first| engine.submit(request(first)).unwrap());
    assert!(runs(&mut engine));
    tier.read(7, true);
    tier.read(7, true);
    // However long it takes: what the third begins with is read when the first has come in.
    for _ in 0..3 {
        let Stage::InLine(until) = &mut engine.members[3].from_file.stage else {
            panic!("two are read for")
        };
        *until = Instant::now();
        assert!(runs(&mut engine));
    }
    while tier.awaited() == 0 {
        assert!(runs(&mut engine));
    }
    tier.read(7, true);
    while runs(&mut engine) {}
    assert_eq!(tokens(&mut runner).0, Some(0));
    assert_eq!(waits.each_mut().map(|waits| tokens(waits).0), [Some(28); 3]);
}

#[test]
fn what_is_called_off_counts_for_nothing() {
    let (mut engine, tier, _) = told();
    let mut low = engine.submit(request(1)).unwrap();
    assert!(!runs(&mut engine));
    for _ in 0..MOST_ASKED {
        let urgent = [40, 80]
            .map(|first| engine.submit(EngineRequest { priority: 1, ..request(first) }).unwrap());
        assert!(!runs(&mut engine));
        assert!(matches!(engine.members[0].from_file.stage, Stage::InLine(_)));
        drop(urgent);
        assert!(!runs(&mut engine));
        tier.inside().asked.retain(|(_, reader)| reader.is_awaited());
    }
    assert_eq!(engine.members[0].from_file.asked, 1, "of those, one is under way");
    tier.read(7, true);
    while runs(&mut engine) {}
    assert_eq!(tokens(&mut low).0, Some(28));
}

#[test]
fn a_disk_that_does_not_answer_is_waited_for_by_nobody() {
    let (mut engine, tier, answer) = told();
    let mut waits = engine.submit(request(1)).unwrap();
    assert!(!runs(&mut engine));
    tier.read(3, false);
    tier.inside().waits_since = Some(Instant::now() - SILENCE);
    while runs(&mut engine) {}
    assert_eq!((tokens(&mut waits), tier.awaited()), ((Some(12), answer), 0));
    // Nor is it asked.
    let mut next = engine.submit(request(40)).unwrap();
    while runs(&mut engine) {}
    assert_eq!((tokens(&mut next).0, tier.awaited()), (Some(0), 0));
    // Until it answers.
    tier.inside().waits_since = None;
    let mut last = engine.submit(request(80)).unwrap();
    assert!(!runs(&mut engine));
    assert_eq!((tokens(&mut last).0, tier.awaited()), (None, 1));
}
