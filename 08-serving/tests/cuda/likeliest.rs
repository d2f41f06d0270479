//! Tokens that the device finds, and whose logits stay there.

use crate::world::{
    SEED, VOCAB, assert_same, engine, engine_on, executor, executor_of, serve_requests, tokens,
};
use cuda_kernels::{Address, DeviceResult, Gpu, Interpreter, forward_gpu};
use kv_cache::CachedExecutor;
use naive_decode::{
    Executor, Likeliest, Pass, Result, Sampling, Span, Want, argmax, random_tensors,
};
use serving::engine::{Constraint, EngineOptions, EngineRequest, Rules, TokenSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Two prompts, of one of which every row is wanted: more rows than go through the head at a time.
fn prompts() -> Pass {
    let spans = vec![
        Span::new(0, 0, &tokens(1, 70), Want::All),
        Span::new(1, 0, &tokens(2, 9), Want::Last),
    ];
    Pass { spans }
}

#[test]
fn they_are_what_argmax_says_of_the_logits() {
    // Three of each four are enough as tokens, and of the step one of two.
    let step = || Pass {
        spans: vec![Span::new(0, 70, &[5], Want::Last), Span::new(1, 9, &[6], Want::Last)],
    };
    let passes = [(prompts(), 71), (step(), 2)];
    let (mut plain, mut found) = (executor(320, 80), executor(320, 80));
    for executor in [&mut plain, &mut found] {
        executor.cache_mut().open();
        executor.cache_mut().open();
    }
    for (pass, wanted) in passes {
        let right = plain.execute(&pass).unwrap();
        let is_enough: Vec<bool> = (0..wanted).map(|row| row % 4 != 1).collect();
        let Likeliest { tokens, logits } = found.likeliest(&pass, &is_enough).unwrap();
        assert_eq!((right.nrows(), tokens.len()), (wanted, wanted));
        let mut others = logits.outer_iter();
        for (row, (right, token)) in right.outer_iter().zip(tokens).enumerate() {
            match is_enough[row] {
                true => assert_eq!(token, Some(argmax(&right.to_vec()).unwrap()), "row {row}"),
                false => assert_eq!((token, others.next()), (None, Some(right)), "row {row}"),
            }
        }
        assert!(others.next().is_none());
    }
    let said = found.likeliest(&step(), &[true]).unwrap_err().to_string();
    assert_eq!(said, "rows of which a token is enough is 1, expected 2, one for each wanted row");
}

#[test]
fn a_row_without_a_likeliest_token_has_its_logits_brought_back() {
    let tensors = |name: &str, shape: &[usize]| -> Result<Vec<f32>> {
        let mut numbers = random_tensors(SEED)(name, shape)?;
        if name.contains("lm_head") {
            numbers[7 * shape[1]] = f32::NAN;
        }
        Ok(numbers)
    };
    let mut executor = executor_of(Interpreter::new(), 320, 80, &tensors);
    executor.cache_mut().open();
    executor.cache_mut().open();
    let Likeliest { tokens, logits } = executor.likeliest(&prompts(), &[true; 71]).unwrap();
    assert_eq!(tokens, [None; 71]);
    // Whoever comes to such a row is told what is wrong with it.
    let error = argmax(&logits.row(70).to_vec()).unwrap_err().to_string();
    assert_eq!(error, "score of token 7 is NaN, expected a number below infinity");
    assert_eq!(logits.nrows(), 71);
}

/// A device that counts the bytes that are read from it.
struct Counting(Interpreter, Arc<AtomicUsize>);

impl Gpu for Counting {
    forward_gpu!(0: is_hopper alloc write copy prepare launch record replay finish);

    fn read(&mut self, from: Address, bytes: usize, to: &mut dyn FnMut(&[u8])) -> DeviceResult<()> {
        self.1.fetch_add(bytes, Ordering::Relaxed);
        self.0.read(from, bytes, to)
    }
}

/// Every second token may come.
struct Even;

impl Constraint for Even {
    fn mask(&mut self) -> Result<Option<TokenSet>> {
        Ok(Some(TokenSet::from_words(vec![0x5555_5555; 2])))
    }

    fn accept(&mut self, token: u32) -> Result<()> {
        assert_eq!(token % 2, 0);
        Ok(())
    }
}

/// No token comes twice in a row, nor are there any from 40 on.
fn no_twice() -> Arc<Rules> {
    let mut allowed = TokenSet::none(VOCAB as usize);
    (0..40).for_each(|token| allowed.insert(token));
    let forbidden = (0..VOCAB).map(|token| vec![token; 2]).collect();
    Arc::new(Rules { allowed: Some(allowed), forbidden })
}

/// All ways to choose a token, side by side: greedy, drawn, with a penalty, with a bias, in a form, with tokens struck out, such as may not
/// end yet, and one that wants to know of its prompt's tokens.
fn requests(logprobs: Option<usize>) -> Vec<EngineRequest> {
    let ask = |seed: u32, sampling: Sampling| {
        let request = EngineRequest::new(tokens(seed, 4).repeat(4), 12);
        EngineRequest { logprobs, sampling, ..request }
    };
    let greedy = Sampling::default;
    vec![
        ask(1, greedy()),
        ask(2, Sampling { temperature: 1.0, seed: 7, ..greedy() }),
        ask(3, Sampling { repetition_penalty: 1.3, ..greedy() }),
        ask(4, Sampling { logit_bias: vec![(5, 1.0), (9, f32::NEG_INFINITY)], ..greedy() }),
        EngineRequest { constraint: Some(Box::new(Even)), ..ask(5, greedy()) },
        EngineRequest { rules: Some(no_twice()), ..ask(9, greedy()) },
        EngineRequest { min_tokens: 6, end_tokens: (0..VOCAB / 2).collect(), ..ask(6, greedy()) },
        EngineRequest { prompt_logprobs: Some(0), ..ask(7, greedy()) },
    ]
}

#[test]
fn an_answer_has_the_same_tokens_whether_its_logits_are_brought_back_or_not() {
    for draft in [0, 3] {
        let change = |options: &mut EngineOptions| options.draft = draft;
        let mut right = serve_requests(&mut engine(640, change), requests(Some(0)));
        let found = serve_requests(&mut engine(640, change), requests(None));
        for token in right.iter_mut().flat_map(|answer| &mut answer.tokens) {
            assert!(token.logprob.take().is_some() && token.rank.take().is_some());
        }
        assert_same(&found, &right, "without logits");
        let scored = found.last().unwrap();
        assert!(scored.prompt == right.last().unwrap().prompt && scored.prompt.len() == 15);
        // In company that wants an embedding, everybody's logits come back.
        let embeds = || vec![EngineRequest::embedding(tokens(8, 12))];
        let company = embeds().into_iter().chain(requests(None));
        let mut found = serve_requests(&mut engine(640, change), company);
        let right_embedding =
            serve_requests(&mut engine(640, change), embeds()).remove(0).embedding;
        assert!(!right_embedding.is_empty() && found.remove(0).embedding == right_embedding);
        assert_same(&found, &right, "beside an embedding");
    }
}

#[test]
fn logits_that_nobody_needs_stay_on_the_device() {
    let read = |requests: Vec<EngineRequest>| {
        let bytes = Arc::new(AtomicUsize::new(0));
        let gpu = Counting(Interpreter::new(), Arc::clone(&bytes));
        let mut engine = engine_on(gpu, 640, |options| options.draft = 0);
        let before = bytes.load(Ordering::Relaxed);
        let answers = serve_requests(&mut engine, requests);
        let tokens: usize = answers.iter().map(|answer| answer.tokens.len()).sum();
        (bytes.load(Ordering::Relaxed) - before, tokens)
    };
    let greedy = |seed: u32| EngineRequest::new(tokens(seed, 20), 12);
    let (bytes, count) = read(vec![greedy(1), greedy(2)]);
    assert_eq!((bytes, count), (24 * size_of::<u64>(), 24), "a number for each token");
    let logits = VOCAB as usize * size_of::<f32>();
    let (bytes, _) = read(vec![EngineRequest { logprobs: Some(0), ..greedy(1) }]);
    assert_eq!(bytes, 12 * logits);
    // Side by side, each has what it needs.
    let drawn = Sampling { temperature: 0.7, ..Sampling::default() };
    let (bytes, _) = read(vec![greedy(1), EngineRequest { sampling: drawn, ..greedy(2) }]);
    assert!(bytes >= 12 * logits && bytes <= 12 * (logits + 2 * size_of::<u64>()), "{bytes}");
}
