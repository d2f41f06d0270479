//! Keys and values that only the file has are read while others run.
//!
//! A disk may take as long to send a prompt's keys and values as many passes take. So they are asked for when the request
//! comes; until they are here it waits, and others run; then it begins as after a hit in the prefix cache.

use super::Engine;
use super::member::Member;
use crate::say::tell;
use paged_cache::offload::Key;
use prefix_radix::Aside;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Prompts that are read at once: the next comes while one that is here waits for its turn. What has been read and is not
/// in the pool yet takes memory besides.
const AT_ONCE: usize = 2;

/// How long the disk is waited for. What it has not sent by then is computed.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a disk that was given up is asked for nothing.
const REST: Duration = Duration::from_secs(60);

/// When the engine looks again what has come, although it is rung for.
const LATER: Duration = Duration::from_millis(10);

/// How a request stands with the file.
#[derive(Default)]
pub(super) enum FromFile {
    /// It was not looked yet what the file has of it.
    #[default]
    Unseen,
    /// It has something, and reads for others first.
    InLine,
    /// It reads, or has read.
    Asked(Asked),
    /// It has nothing, or what it has was taken.
    Done,
}

/// What the file was asked for.
pub(super) struct Asked {
    aside: Aside,
    /// Tokens up to the end of the first block that it reads.
    tokens: usize,
    /// None once nothing more is waited for.
    until: Option<Instant>,
}

impl FromFile {
    /// Whether the request has to wait for it.
    pub(super) fn is_awaited(&self) -> bool {
        match self {
            FromFile::Unseen | FromFile::Done => false,
            FromFile::InLine => true,
            FromFile::Asked(asked) => asked.until.is_some(),
        }
    }
}

impl Engine {
    // ANCHOR: read_aside
    /// Has the file read what it has of those who wait, the first in rank first.
    pub(super) fn read_aside(&mut self) {
        if !self.pool.prefixes().reads_aside() {
            return;
        }
        let now = Instant::now();
        self.look_what_has_come(now);
        let rests = self.disk_rests_until.is_some_and(|until| now < until);
        let mut in_line = Vec::new();
        let mut under_way = Vec::new();
        for (index, member) in self.members.iter_mut().enumerate() {
            if let FromFile::Unseen = member.from_file
                && !member.is_running()
                && member.parked().is_none()
            {
                let has_some = !rests
                    && !member.reads_all()
                    && self.pool.prefixes().is_aside(member.salt, beginning(member));
                member.from_file = if has_some { FromFile::InLine } else { FromFile::Done };
            }
            match &member.from_file {
                FromFile::InLine if rests => member.from_file = FromFile::Done,
                FromFile::InLine => in_line.push((member.rank, index)),
                FromFile::Asked(_) => under_way.push((member.rank, index)),
                FromFile::Unseen | FromFile::Done => {}
            }
        }
        in_line.sort_unstable();
        for (rank, index) in in_line {
            // One that cannot come in yet gives way to whoever is before it, and reads again.
            let last = under_way.iter().copied().max().filter(|_| under_way.len() >= AT_ONCE);
            if last.is_some_and(|last| last < (rank, index)) {
                break;
            }
            if self.members.iter().any(|other| reads_the_same(other, &self.members[index])) {
                continue; // and is found in the pool when that one has come in
            }
            if let Some((_, last)) = last {
                under_way.retain(|&(_, index)| index != last);
                self.members[last].from_file = FromFile::InLine;
            }
            let member = &mut self.members[index];
            let prefixes = self.pool.prefixes_mut();
            member.from_file = match prefixes.read_aside(member.salt, beginning(member)) {
                Some((aside, known)) => {
                    under_way.push((rank, index));
                    let tokens = known + self.options.block;
                    FromFile::Asked(Asked { aside, tokens, until: Some(now + PATIENCE) })
                }
                // Another has brought it into the pool.
                None => FromFile::Done,
            };
        }
    }
    // ANCHOR_END: read_aside

    /// Lets those come in for whom all has come, and those who have waited for the disk too long, with what it has sent.
    fn look_what_has_come(&mut self, now: Instant) {
        for member in &mut self.members {
            let FromFile::Asked(asked) = &mut member.from_file else { continue };
            if asked.aside.is_over() {
                asked.until = None;
            } else if asked.until.is_some_and(|until| until <= now) {
                asked.until = None;
                self.disk_rests_until = Some(now + REST);
                tell!(
                    "keys and values did not come from the file within {} seconds: they are computed, and the file is asked \
                     for none in the next {}",
                    PATIENCE.as_secs(),
                    REST.as_secs()
                );
            }
        }
    }

    /// What the file has sent for a request that comes in.
    pub(super) fn take_from_file(&mut self, index: usize) -> HashMap<Key, Vec<u8>> {
        match std::mem::replace(&mut self.members[index].from_file, FromFile::Done) {
            FromFile::Asked(asked) => self.pool.prefixes_mut().take_read(asked.aside),
            FromFile::Unseen | FromFile::InLine | FromFile::Done => HashMap::new(),
        }
    }

    /// When to look again what has come, if anything is to.
    pub(super) fn next_read(&self) -> Option<Instant> {
        let mut awaited = self.members.iter().filter(|member| member.from_file.is_awaited());
        awaited.next().map(|_| Instant::now() + LATER)
    }
}

/// All that can be known of a text. Its last token is read in any case.
fn beginning(member: &Member) -> &[u32] {
    &member.text[..member.text.len() - 1]
}

/// Whether the file was asked for what another begins with, too.
fn reads_the_same(member: &Member, other: &Member) -> bool {
    let FromFile::Asked(Asked { tokens, .. }) = member.from_file else { return false };
    member.salt == other.salt && member.text.get(..tokens) == other.text.get(..tokens)
}

#[cfg(test)]
mod tests {
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
        let model =
            Model::embedded(DRAFT.name, DRAFT.config, DRAFT.weights, LoadOptions::default());
        let model = Arc::new(model.unwrap());
        let usual = EngineOptions::for_model(&model).unwrap();
        let mut engine = Engine::new(model, EngineOptions { block: BLOCK, ..usual }).unwrap();
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
    fn a_disk_that_does_not_answer_is_given_up() {
        let (mut engine, tier, answer) = told();
        let mut waits = engine.submit(request(1)).unwrap();
        assert!(!runs(&mut engine));
        tier.read(3, false);
        let FromFile::Asked(asked) = &mut engine.members[0].from_file else { panic!("it waits") };
        asked.until = Some(Instant::now());
        // What has come is of use, and what has not is computed.
        while runs(&mut engine) {}
        assert_eq!((tokens(&mut waits), tier.awaited()), ((Some(12), answer), 0));
        // For a while nothing is asked for.
        let mut next = engine.submit(request(40)).unwrap();
        while runs(&mut engine) {}
        assert_eq!((tokens(&mut next).0, tier.awaited()), (Some(0), 0));
        engine.disk_rests_until = Some(Instant::now());
        let mut last = engine.submit(request(80)).unwrap();
        assert!(!runs(&mut engine));
        assert_eq!((tokens(&mut last).0, tier.awaited()), (None, 1));
    }
}
