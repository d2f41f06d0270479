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
        let model =
            Model::embedded(DRAFT.name, DRAFT.config, DRAFT.weights, LoadOptions::default());
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
        let mut hurries =
            engine.submit(EngineRequest { deadline: soon(8), ..request(40) }).unwrap();
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
            let urgent = [40, 80].map(|first| {
                engine.submit(EngineRequest { priority: 1, ..request(first) }).unwrap()
            });
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
}
