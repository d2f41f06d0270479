//! Prompts that another engine reads: the same tokens, whatever comes of it.

use crate::world::{
    Answer, Asked, Dice, assert_as_alone, assert_empty, crowd, engine, options, run, serve,
};
use flash_attention::tile_attention::KvType;
use naive_decode::Element;
use paged_cache::offload::Key;
use prefix_radix::Salt;
use serving::engine::{
    BlocksOf, Courier, Engine, EngineOptions, EngineRequest, Exchange, FinishReason, Prefiller,
    Step, Wanted,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Somebody who was asked, until what is wanted is not wanted any more.
pub(crate) struct Pending {
    pub(crate) wanted: Wanted,
    pub(crate) courier: Courier,
    pub(crate) is_wanted: std::sync::Weak<()>,
}

/// Keeps what it is asked for until the test does something about it.
#[derive(Clone, Default)]
pub(crate) struct Desk {
    asked: Arc<Mutex<Vec<Pending>>>,
    is_away: bool,
}

impl Prefiller for Desk {
    fn begin(&self, wanted: Wanted, courier: Courier) -> Option<Box<dyn Send>> {
        if self.is_away {
            return None;
        }
        let guard = Arc::new(());
        let is_wanted = Arc::downgrade(&guard);
        self.asked.lock().unwrap().push(Pending { wanted, courier, is_wanted });
        Some(Box::new(guard))
    }
}

impl Desk {
    pub(crate) fn len(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    pub(crate) fn take(&self) -> Pending {
        self.asked.lock().unwrap().remove(0)
    }
}

const MODEL: [u8; 32] = [3; 32];

/// An engine that reads prompts for others.
pub(crate) fn reader(options: EngineOptions) -> Engine {
    let exchange = Some(Exchange { model: MODEL, prefiller: None });
    engine(EngineOptions { exchange, rows: 32, ..options })
}

/// An engine whose prompts are read elsewhere.
pub(crate) fn writer(desk: &Desk, options: EngineOptions) -> Engine {
    let prefiller = Some(Arc::new(desk.clone()) as Arc<dyn Prefiller>);
    engine(EngineOptions { exchange: Some(Exchange { model: MODEL, prefiller }), ..options })
}

/// A request of which `writer` knows the first fifteen blocks, and no more.
pub(crate) fn begins_known(writer: &mut Engine) -> Asked {
    let first = Asked::new(Dice(4).tokens(60), 3);
    serve(writer, std::slice::from_ref(&first));
    Asked::new([&first.prompt[..], &Dice(7).tokens(80)].concat(), 8)
}

/// Another request, for which a pool of 220 tokens lets go of what the one before began with.
pub(crate) fn push_out_what_is_known(writer: &mut Engine) {
    serve(writer, &[Asked::new(Dice(8).tokens(60), 150)]);
}

/// Has an engine read a prompt, and gives the blocks that are wanted of it.
pub(crate) fn read(reader: &mut Engine, wanted: &Wanted) -> HashMap<Key, Vec<u8>> {
    let request = EngineRequest::reading(wanted.tokens.clone());
    let mut answer = Answer::of(reader.submit(request).unwrap());
    let text: Arc<[u32]> = wanted.tokens.clone().into();
    let mut blocks: Vec<Vec<u8>> = Vec::new();
    let mut came_early = 0;
    loop {
        let from = wanted.known + blocks.len();
        let (request, text, salt) = (answer.ticket.id(), text.clone(), Salt::NONE);
        let mut coming = reader.blocks_of(BlocksOf { request, salt, text, from, most: 8 });
        let next = loop {
            if let Ok(next) = coming.try_recv() {
                break next;
            }
            reader.step().unwrap();
            reader.check_integrity().unwrap();
            answer.read();
        };
        assert!(next.len() <= 8);
        came_early += next.len() * usize::from(answer.end.is_none());
        if next.is_empty() {
            break;
        }
        blocks.extend(next);
    }
    // Blocks are given out before the next pass, and are seen here after it.
    let block = wanted.tokens.len() / (wanted.known + wanted.names.len());
    let asked = wanted.names.len() * block;
    assert!(came_early * block + 64 >= asked, "{came_early} blocks of {asked} tokens");
    assert_eq!(answer.reason(), FinishReason::Length);
    assert!(answer.tokens.is_empty());
    wanted.names.iter().copied().zip(blocks).collect()
}

/// Hands all in, and steps until they are done; what is asked elsewhere is seen to while there is nothing else to do.
fn serve_beside(
    writer: &mut Engine,
    desk: &Desk,
    asked: &[Asked],
    mut see_to: impl FnMut(Pending),
) -> Vec<Answer> {
    let submit = |asked: &Asked| Answer::of(writer.submit(asked.request()).unwrap());
    let mut answers: Vec<Answer> = asked.iter().map(submit).collect();
    loop {
        let step = writer.step().unwrap();
        writer.check_integrity().unwrap();
        answers.iter_mut().for_each(Answer::read);
        match step {
            Step::Ran(_) => {}
            Step::Idle(_) if desk.len() > 0 => see_to(desk.take()),
            Step::Idle(_) => return answers,
        }
    }
}

/// Long prompts that have nothing in common.
fn prompts(count: usize) -> Vec<Asked> {
    let mut dice = Dice(5);
    (0..count).map(|i| Asked::new(dice.tokens(70 + 9 * i), 10)).collect()
}

#[test]
fn what_another_has_read_is_as_if_it_were_read_here() {
    let types = [Element::F32, Element::Bf16].map(KvType::from);
    for kept in types.into_iter().chain([KvType::Bf16Fast, KvType::Int8]) {
        let options = EngineOptions { kept, ..options(900) };
        let (desk, asked) = (Desk::default(), [prompts(5), crowd(9, 8)].concat());
        let mut reader = reader(options.clone());
        let mut writer = writer(&desk, options.clone());
        let deliver = |pending: Pending| {
            let blocks = read(&mut reader, &pending.wanted);
            assert_eq!(blocks.len(), pending.wanted.names.len());
            pending.courier.deliver(blocks);
        };
        let answers = serve_beside(&mut writer, &desk, &asked, deliver);
        let here = serve(&mut engine(options), &asked);
        for (answer, here) in answers.iter().zip(&here) {
            assert_eq!(answer.tokens, here.tokens, "{kept}");
        }
        if let KvType::Exact(_) = kept {
            assert_as_alone(&asked, &answers, "read elsewhere");
        }
        let (wrote, lent) = (writer.state().counters, reader.state().counters);
        // Whole blocks of four, and never the whole prompt: 68, 76, 84, 96 and 104 of the first five.
        assert!(wrote.brought_tokens >= 68 + 76 + 84 + 96 + 104, "{kept}: {wrote:?}");
        assert_eq!(wrote.brought_bytes, lent.lent_bytes);
        assert_eq!(answers[0].usage().cached_tokens, 0, "what was read for it was not known");
        assert_empty(&writer);
        assert_empty(&reader);
    }
}

#[test]
fn whole_blocks_travel_and_never_the_last_token() {
    let desk = Desk::default();
    let options = || {
        let options = options(900);
        EngineOptions { block: 16, pool_bytes: 4 * options.pool_bytes, ..options }
    };
    let (mut reader, mut writer) = (reader(options()), writer(&desk, options()));
    let prompt = Dice(8).tokens(100);
    let asked = [Asked::new(prompt.clone(), 4)];
    serve_beside(&mut writer, &desk, &asked, |pending| {
        pending.courier.deliver(read(&mut reader, &pending.wanted));
    });
    let brought = writer.state().counters.brought_tokens;
    assert_eq!((brought, prompt.len()), (96, 100));
}

#[test]
fn what_does_not_come_is_read_here() {
    let asked = prompts(4);
    let away = Desk { is_away: true, ..Desk::default() };
    let answers = serve(&mut writer(&away, options(900)), &asked);
    assert_as_alone(&asked, &answers, "nobody there");

    type SeeTo = fn(Wanted, Courier, HashMap<Key, Vec<u8>>);
    let ways: [(&str, SeeTo, u64); 4] = [
        ("dropped", |_, courier, _| drop(courier), 0),
        ("empty", |_, courier, _| courier.deliver(HashMap::new()), 0),
        (
            "the first five blocks",
            |wanted, courier, mut blocks| {
                wanted.names[5..].iter().for_each(|name| drop(blocks.remove(name)));
                courier.deliver(blocks);
            },
            4 * 20,
        ),
        (
            "blocks of another size",
            |_, courier, mut blocks| {
                blocks.values_mut().for_each(|block| block.truncate(1));
                courier.deliver(blocks);
            },
            0,
        ),
    ];
    for (what, way, brought) in ways {
        let desk = Desk::default();
        let mut reader = reader(options(900));
        let mut writer = writer(&desk, options(900));
        let answers = serve_beside(&mut writer, &desk, &asked, |pending| {
            let blocks = read(&mut reader, &pending.wanted);
            way(pending.wanted, pending.courier, blocks);
        });
        assert_as_alone(&asked, &answers, what);
        assert_eq!(writer.state().counters.brought_tokens, brought, "{what}");
        assert_empty(&writer);
    }
}

#[test]
fn others_run_while_a_prompt_is_read_elsewhere() {
    let desk = Desk::default();
    let mut writer = writer(&desk, options(900));
    let [long, short] = [Asked::new(Dice(1).tokens(90), 5), Asked::new(Dice(2).tokens(20), 30)];
    let mut waits = Answer::of(writer.submit(long.request()).unwrap());
    let mut runs = Answer::of(writer.submit(short.request()).unwrap());
    run(&mut writer, std::slice::from_mut(&mut runs));
    assert_eq!(runs.tokens, short.alone());
    waits.read();
    assert!(waits.cached.is_none() && desk.len() == 1, "it still waits");
    drop(desk.take());
    run(&mut writer, std::slice::from_mut(&mut waits));
    assert_eq!(waits.tokens, long.alone());
}

#[test]
fn whoever_waits_may_go_or_run_out_of_time() {
    let desk = Desk::default();
    let mut writer = writer(&desk, options(900));
    let [a, b] = [1, 2].map(|seed| Asked::new(Dice(seed).tokens(90), 5));
    let gone = writer.submit(a.request()).unwrap();
    let soon = Instant::now() + Duration::from_secs(2);
    let late = writer.submit(EngineRequest { deadline: Some(soon), ..b.request() }).unwrap();
    let mut late = Answer::of(late);
    let Step::Idle(Some(alarm)) = writer.step().unwrap() else { panic!("nothing is to be run") };
    assert_eq!(alarm, soon);
    let pending = [desk.take(), desk.take()];
    assert!(pending.iter().all(|pending| pending.is_wanted.strong_count() == 1));
    drop(gone);
    std::thread::sleep(soon.saturating_duration_since(Instant::now()));
    run(&mut writer, std::slice::from_mut(&mut late));
    assert_eq!(late.reason(), FinishReason::Deadline);
    assert!(pending.iter().all(|pending| pending.is_wanted.strong_count() == 0));
    assert_eq!(writer.state().counters.cancelled, 1);
    // Whoever was asked comes too late, and finds nobody.
    pending.into_iter().for_each(|pending| pending.courier.deliver(HashMap::new()));
    assert!(matches!(writer.step().unwrap(), Step::Idle(None)));
    assert_empty(&writer);
}

#[test]
fn answers_to_one_prompt_have_it_read_once() {
    let desk = Desk::default();
    let mut reader = reader(options(900));
    let mut writer = writer(&desk, options(900));
    let prompt = Dice(4).tokens(100);
    // The last goes on after most of it.
    let longer = [&prompt[..90], &Dice(6).tokens(4)].concat();
    let asked = [prompt.clone(), prompt.clone(), prompt, longer].map(|p| Asked::new(p, 8));
    let mut times = 0;
    let answers = serve_beside(&mut writer, &desk, &asked, |pending| {
        times += 1;
        pending.courier.deliver(read(&mut reader, &pending.wanted));
    });
    assert_as_alone(&asked, &answers, "one prompt");
    assert_eq!(times, 1);
    // The second turn: what is known here is not asked for.
    let next = Asked::new([&asked[0].prompt[..], &Dice(7).tokens(80)].concat(), 8);
    let answers = serve_beside(&mut writer, &desk, std::slice::from_ref(&next), |pending| {
        assert_eq!((pending.wanted.known, pending.wanted.names.len()), (25, 19));
        pending.courier.deliver(read(&mut reader, &pending.wanted));
    });
    assert_as_alone(&[next], &answers, "the second turn");
    assert_eq!(answers[0].usage().cached_tokens, 100);
}

#[test]
fn whoever_has_only_the_beginning_in_common_asks_for_itself() {
    let desk = Desk::default();
    let mut writer = writer(&desk, options(900));
    let shared = Dice(4).tokens(80);
    let ask = |seed, own| {
        let asked = Asked::new([&shared[..], &Dice(seed).tokens(own)].concat(), 3);
        Answer::of(writer.submit(asked.request()).unwrap())
    };
    let _first = ask(5, 100);
    // Of 80 and 40 most is on its way, of 80 and 100 it is not.
    let _answers = [ask(6, 40), ask(7, 100)];
    writer.step().unwrap();
    assert_eq!(desk.len(), 2);
}

/// The beginning after which others were to come is gone when they come: none of them is of use.
#[test]
fn what_came_and_could_not_be_used_is_not_counted() {
    let desk = Desk::default();
    let mut reader = reader(options(900));
    let mut writer = writer(&desk, options(220));
    let next = begins_known(&mut writer);
    let mut waits = [Answer::of(writer.submit(next.request()).unwrap())];
    run(&mut writer, &mut waits);
    let pending = desk.take();
    assert_eq!((pending.wanted.known, pending.wanted.names.len()), (15, 19));
    push_out_what_is_known(&mut writer);
    pending.courier.deliver(read(&mut reader, &pending.wanted));
    run(&mut writer, &mut waits);
    assert_as_alone(&[next], &waits, "without its beginning");
    let counters = writer.state().counters;
    assert_eq!((counters.brought_tokens, counters.brought_bytes), (0, 0));
}

#[test]
fn short_prompts_and_those_that_must_be_run_are_read_here() {
    let desk = Desk::default();
    let mut writer = writer(&desk, options(900));
    let short = Asked::new(Dice(4).tokens(64), 3);
    let scored = Asked::new(Dice(5).tokens(100), 3);
    let scored = EngineRequest { prompt_logprobs: Some(0), ..scored.request() };
    let embedded = EngineRequest::embedding(Dice(6).tokens(100));
    let requests = [short.request(), scored];
    let mut answers = requests.map(|request| Answer::of(writer.submit(request).unwrap()));
    run(&mut writer, &mut answers);
    assert!(answers.iter().all(|answer| answer.end.is_some()));
    assert_eq!(desk.len(), 0);
    // An embedding's prompt may come from elsewhere, all but its last token.
    let mut embedding = Answer::of(writer.submit(embedded).unwrap());
    run(&mut writer, std::slice::from_mut(&mut embedding));
    assert_eq!(desk.len(), 1);
}

#[test]
fn a_request_to_read_writes_nothing_and_an_exchange_needs_prefixes() {
    let mut plain = engine(options(900));
    let asks = EngineRequest { max_tokens: 3, ..EngineRequest::reading(vec![1, 2, 3]) };
    let refused = plain.submit(asks).err().unwrap().to_string();
    assert!(refused.contains("expected alone, with max_tokens 0"), "{refused}");
    assert!(matches!(plain.step().unwrap(), Step::Idle(None)));
    let exchange = Some(Exchange { model: MODEL, prefiller: None });
    let options = EngineOptions { exchange, prefixes: false, ..options(900) };
    let refused = Engine::new(crate::world::model(), options).err().unwrap().to_string();
    assert!(refused.contains("an exchange of keys and values"), "{refused}");
}

#[test]
fn a_pool_that_is_full_reads_what_it_has_no_room_for() {
    let desk = Desk::default();
    let mut reader = reader(options(900));
    // Room for little more than one of them.
    let mut writer = writer(&desk, options(140));
    let asked = prompts(4);
    let answers = serve_beside(&mut writer, &desk, &asked, |pending| {
        pending.courier.deliver(read(&mut reader, &pending.wanted));
    });
    assert_as_alone(&asked, &answers, "a small pool");
    assert!(writer.state().counters.brought_tokens > 0);
    assert_empty(&writer);
}
