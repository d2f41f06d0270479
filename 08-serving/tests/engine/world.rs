//! A small model, requests, what each answers alone, and an engine stepped by hand.

use flash_attention::FlashCache;
use flash_attention::tile_attention::KvType;
use naive_decode::{
    Config, Element, Isa, LoadOptions, Model, Pass, Request, Result, Sampler, Sampling, Settings,
    Span, Want, argmax, generate,
};
use paged_cache::{Behind, Layout};
use serving::engine::{
    Engine, EngineOptions, EngineRequest, Event, FinishReason, PassRecord, Step, Ticket,
    TokenEvent, Usage,
};
use speculative::{DraftTree, FromText, Proposer};
use std::sync::{Arc, OnceLock};
use std::thread::sleep;
use std::time::{Duration, Instant};

pub(crate) const VOCAB: u32 = 61;
pub(crate) const CONTEXT: usize = 256;

/// A model that has learned nothing: its text falls into loops, and lookups guess some of it.
pub(crate) fn model() -> Arc<Model> {
    static MODEL: OnceLock<Arc<Model>> = OnceLock::new();
    let make = || {
        let json = r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 16, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 24,
            "vocab_size": 61, "rms_norm_eps": 1e-5, "max_position_embeddings": 256,
            "tie_word_embeddings": true}"#;
        let config = Config::from_json("config.json", json.as_bytes()).unwrap();
        let (context, kv_element) = (Some(CONTEXT), Element::Bf16);
        let options = LoadOptions { context, kv_element, isa: Isa::best() };
        Arc::new(Model::random(config, 7, options).unwrap())
    };
    MODEL.get_or_init(make).clone()
}

/// Numbers that look random and are always the same.
pub(crate) struct Dice(pub(crate) u32);

impl Dice {
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (self.0 >> 8) % end
    }

    pub(crate) fn tokens(&mut self, count: usize) -> Vec<u32> {
        (0..count).map(|_| self.below(VOCAB)).collect()
    }
}

/// What a test asks for; requests of it can be made again and again.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) prompt: Vec<u32>,
    pub(crate) sampling: Sampling,
    pub(crate) tokens: usize,
    pub(crate) end_tokens: Vec<u32>,
    pub(crate) priority: i32,
}

impl Asked {
    pub(crate) fn new(prompt: Vec<u32>, tokens: usize) -> Self {
        let sampling = Sampling::default();
        Asked { prompt, sampling, tokens, end_tokens: Vec::new(), priority: 0 }
    }

    pub(crate) fn request(&self) -> EngineRequest {
        EngineRequest {
            sampling: self.sampling.clone(),
            end_tokens: self.end_tokens.clone(),
            priority: self.priority,
            ..EngineRequest::new(self.prompt.clone(), self.tokens)
        }
    }

    /// What rung 02 answers, to this request alone.
    pub(crate) fn alone(&self) -> Vec<u32> {
        let settings = Settings { capacity: CONTEXT, prefill_chunk: None, threads: None };
        let mut decoder = (kv_cache::CONTIGUOUS.start)(model(), settings).unwrap();
        let sampler = Sampler::new(self.sampling.clone()).unwrap();
        let (prompt, tokens) = (self.prompt.clone(), self.tokens);
        let request = Request { prompt, tokens, end_tokens: self.end_tokens.clone() };
        let steps = generate(&mut *decoder, sampler, request).unwrap();
        steps.map(|step| step.unwrap().token).collect()
    }

    /// The same to a greedy request in the fast mode of attention, with nothing kept from one token to the next.
    pub(crate) fn alone_in_fast_mode(&self) -> Vec<u32> {
        let (model, mut text) = (model(), self.prompt.clone());
        for _ in 0..self.tokens {
            let mut cache = FlashCache::with_kept(&model, KvType::Bf16Fast, text.len(), 1).unwrap();
            let pass = Pass::one(Span::new(0, 0, &text, Want::Last));
            let logits = model.forward(&pass, &mut cache).unwrap();
            text.push(argmax(logits.row(0).as_slice().unwrap()).unwrap());
        }
        text.split_off(self.prompt.len())
    }
}

/// Requests of all kinds: greedy, sampled, filtered and penalised, short and long, some that begin alike.
pub(crate) fn crowd(seed: u32, count: usize) -> Vec<Asked> {
    let mut dice = Dice(seed);
    let shared = dice.tokens(40);
    let mut ask = |i: usize| {
        let mut prompt = if dice.below(3) == 0 { shared.clone() } else { Vec::new() };
        let length = 1 + dice.below(50) as usize;
        prompt.extend(dice.tokens(length));
        let sampling = match i % 4 {
            0 => Sampling::default(),
            1 => Sampling { temperature: 1.0, seed: i as u64, ..Sampling::default() },
            2 => Sampling {
                temperature: 0.7,
                top_p: 0.9,
                top_k: Some(20),
                presence_penalty: 0.4,
                frequency_penalty: 0.2,
                seed: 1000 + i as u64,
                ..Sampling::default()
            },
            _ => Sampling { repetition_penalty: 1.3, ..Sampling::default() },
        };
        let end_tokens = if dice.below(2) == 0 { vec![dice.below(VOCAB)] } else { Vec::new() };
        let tokens = 1 + dice.below(60) as usize;
        Asked { sampling, end_tokens, ..Asked::new(prompt, tokens) }
    };
    (0..count).map(&mut ask).collect()
}

/// A pool for so many tokens in blocks of four; everything on.
pub(crate) fn options(pool_tokens: usize) -> EngineOptions {
    let model = model();
    let layout = Layout::new(&model, 4, model.kv_element.into(), Behind::Kept).unwrap();
    EngineOptions {
        pool_bytes: pool_tokens.div_ceil(4) * layout.block_bytes(),
        block: 4,
        ..EngineOptions::for_model(&model).unwrap()
    }
}

pub(crate) fn engine(options: EngineOptions) -> Engine {
    Engine::new(model(), options).unwrap()
}

/// A request that has been handed in, and what has come of it.
pub(crate) struct Answer {
    pub(crate) ticket: Ticket,
    pub(crate) tokens: Vec<u32>,
    pub(crate) events: Vec<TokenEvent>,
    pub(crate) prompt: Option<Vec<TokenEvent>>,
    pub(crate) embedding: Option<Vec<f32>>,
    pub(crate) cached: Option<usize>,
    pub(crate) end: Option<Result<(FinishReason, Usage)>>,
}

impl Answer {
    pub(crate) fn of(ticket: Ticket) -> Self {
        let (tokens, events) = (Vec::new(), Vec::new());
        Answer { ticket, tokens, events, prompt: None, embedding: None, cached: None, end: None }
    }

    /// Reads all that is there.
    pub(crate) fn read(&mut self) {
        while self.read_one() {}
    }

    /// Reads one event, if there is one.
    pub(crate) fn read_one(&mut self) -> bool {
        let Ok(event) = self.ticket.try_recv() else { return false };
        assert!(self.end.is_none(), "nothing comes after the end: {event:?}");
        match event {
            Event::Started { cached_tokens } => {
                assert_eq!(self.cached.replace(cached_tokens), None);
                assert!(self.tokens.is_empty());
            }
            Event::Prompt(prompt) => {
                assert!(self.prompt.is_none() && self.tokens.is_empty());
                self.prompt = Some(prompt);
            }
            Event::Embedding(hidden) => {
                assert!(self.cached.is_some() && self.embedding.replace(hidden).is_none());
            }
            Event::Token(token) => {
                self.tokens.push(token.token);
                self.events.push(token);
            }
            Event::Finished { reason, usage } => self.end = Some(Ok((reason, usage))),
            Event::Failed(error) => self.end = Some(Err(error)),
        }
        true
    }

    pub(crate) fn usage(&self) -> Usage {
        self.end.as_ref().unwrap().as_ref().unwrap().1
    }

    pub(crate) fn reason(&self) -> FinishReason {
        self.end.as_ref().unwrap().as_ref().unwrap().0
    }
}

/// Steps until nothing is left to do, reading as it goes; everything must hold after each step.
pub(crate) fn run(engine: &mut Engine, answers: &mut [Answer]) -> Vec<PassRecord> {
    let mut records = Vec::new();
    let began = Instant::now();
    loop {
        let step = engine.step().unwrap();
        engine.check_integrity().unwrap();
        answers.iter_mut().for_each(Answer::read);
        match step {
            Step::Ran(record) => records.push(record),
            // Nothing runs until somebody else has found what may come next, or read what the file has.
            Step::Idle(_) if engine.state().paused + engine.state().fetching > 0 => {
                assert!(began.elapsed() < Duration::from_secs(60), "nobody finds it");
                sleep(Duration::from_millis(1));
            }
            Step::Idle(_) => return records,
        }
        assert!(records.len() < 100_000, "the engine goes on for ever");
    }
}

/// Hands all of them in at once, and runs until they are done.
pub(crate) fn serve(engine: &mut Engine, asked: &[Asked]) -> Vec<Answer> {
    let submit = |asked: &Asked| Answer::of(engine.submit(asked.request()).unwrap());
    let mut answers: Vec<Answer> = asked.iter().map(submit).collect();
    run(engine, &mut answers);
    answers
}

/// Every answer is what the request has alone.
pub(crate) fn assert_as_alone(asked: &[Asked], answers: &[Answer], place: &str) {
    for (i, (asked, answer)) in asked.iter().zip(answers).enumerate() {
        assert_eq!(answer.tokens, asked.alone(), "request {i}, {place}: {asked:?}");
        let ended = asked.end_tokens.contains(answer.tokens.last().unwrap());
        let expected = if ended { FinishReason::Stop } else { FinishReason::Length };
        assert_eq!(answer.reason(), expected, "request {i}, {place}");
        let usage = answer.usage();
        assert_eq!(usage.generated_tokens, answer.tokens.len());
        assert_eq!(usage.prompt_tokens, asked.prompt.len());
    }
}

/// Waits for something that the engine's thread will do by itself.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        sleep(Duration::from_millis(1));
    }
}

/// Nobody holds a block any more, but the prefix cache.
pub(crate) fn assert_empty(engine: &Engine) {
    let held = engine.pool().prefixes().cache().held().len();
    assert_eq!(engine.pool().pool().blocks().used(), held);
    assert_eq!(engine.pool().pool().open_sequences(), 0);
}

/// Proposes all kinds of things, most of them wrong.
pub(crate) struct Wild(pub(crate) Dice);

impl FromText for Wild {}

impl Proposer for Wild {
    fn name(&self) -> &'static str {
        "wild guesses"
    }

    fn propose(&mut self, context: &[u32], depth: usize, _: &mut Sampler) -> Result<DraftTree> {
        let mut tree = DraftTree::empty();
        for _ in 0..1 + self.0.below(2) {
            let length = 1 + self.0.below(depth as u32) as usize;
            // What came before comes often again in this model's loops.
            let chain = match self.0.below(3) {
                0 => self.0.tokens(length),
                n => {
                    let back = 1 + (n as usize + self.0.below(6) as usize).min(context.len() - 1);
                    let start = context.len() - back;
                    (0..length).map(|i| context[start + i % back]).collect()
                }
            };
            tree.add_chain(None, &chain);
        }
        Ok(tree)
    }
}
