//! Answers of a given form: masks, followed while the model runs.

use crate::world::{
    Answer, Asked, Dice, VOCAB, Wild, assert_as_alone, assert_empty, engine, eventually, model,
    options, run,
};
use naive_decode::{Error, Result, Sampling};
use serving::engine::policy::{Budget, Continuous, Plan, PlannedSpan, Policy, State};
use serving::engine::{
    Constraint, Engine, EngineHandle, EngineOptions, EngineRequest, FinishReason, Kind, Step,
    TokenSet,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Even and odd tokens in turn.
pub(crate) struct InTurn {
    wants_odd: bool,
}

impl InTurn {
    pub(crate) const FROM_ODD: Self = InTurn { wants_odd: true };
}

impl Constraint for InTurn {
    fn mask(&mut self) -> Result<Option<TokenSet>> {
        let mut set = TokenSet::none(VOCAB as usize);
        (0..VOCAB).filter(|token| (token % 2 == 1) == self.wants_odd).for_each(|t| set.insert(t));
        Ok(Some(set))
    }

    fn accept(&mut self, token: u32) -> Result<()> {
        if (token % 2 == 1) != self.wants_odd {
            return Err(Error::invalid("a token", token, "the other kind"));
        }
        self.wants_odd = !self.wants_odd;
        Ok(())
    }
}

#[test]
fn a_constraint_holds_with_guesses_and_through_preemption() {
    let mut dice = Dice(15);
    let sampling = |seed| Sampling { temperature: 1.0, seed, ..Sampling::default() };
    let mut request = |seed| EngineRequest {
        sampling: sampling(seed),
        constraint: Some(Box::new(InTurn::FROM_ODD)),
        ..EngineRequest::new(dice.tokens(20), 100)
    };
    let proposer: serving::engine::MakeProposer = Arc::new(|| Box::new(Wild(Dice(1))));
    let mut engine = engine(EngineOptions { proposer, ..options(200) });
    let mut answers: Vec<Answer> =
        (0..4).map(|seed| Answer::of(engine.submit(request(seed)).unwrap())).collect();
    run(&mut engine, &mut answers);
    let counters = engine.state().counters;
    assert!(counters.preemptions > 0);
    // Whoever comes back finds what it has said itself. Nobody shares anything here.
    assert_eq!((counters.prefix_queries, counters.prefix_hits), (4 * 20, 0));
    for answer in &answers {
        assert_eq!(answer.tokens.len(), 100);
        let in_turn = |(i, token): (usize, &u32)| (token % 2 == 1) == (i % 2 == 0);
        assert!(answer.tokens.iter().enumerate().all(in_turn), "{:?}", answer.tokens);
    }
}

#[test]
fn a_constraint_that_gives_up_fails_alone() {
    struct GivesUp(usize);
    impl Constraint for GivesUp {
        fn mask(&mut self) -> Result<Option<TokenSet>> {
            match self.0 {
                0 => Ok(Some(TokenSet::none(model().config.vocab_size))),
                _ => Ok(None),
            }
        }
        fn accept(&mut self, _: u32) -> Result<()> {
            self.0 -= 1;
            Ok(())
        }
    }
    let said = fails_alone(&Asked::new(vec![1, 2, 3], 10), GivesUp(4));
    assert!(said.contains("number of tokens that may come next is 0"), "{said}");
}

/// What a request is told whose constraint fails before its fifth token. Another does not notice.
fn fails_alone(asked: &Asked, constraint: impl Constraint + 'static) -> String {
    let mut engine = engine(options(600));
    let requests = [asked.request(), constrained(asked, constraint)];
    let mut answers = requests.map(|request| Answer::of(engine.submit(request).unwrap()));
    run(&mut engine, &mut answers);
    assert_eq!(answers[1].tokens, asked.alone()[..4]);
    assert_as_alone(std::slice::from_ref(asked), &answers[..1], "beside one that fails");
    assert_empty(&engine);
    answers[1].end.take().unwrap().unwrap_err().to_string()
}

/// Asked what may come next for the third time, it says so and waits for somebody to let it go on.
struct Gated {
    form: InTurn,
    asked: usize,
    arrives: Sender<()>,
    gate: Receiver<()>,
}

/// Who lets a form go on: hears that it has come to the gate, and opens it.
struct Keeper {
    arrived: Receiver<()>,
    opens: Sender<()>,
}

impl Gated {
    fn new() -> (Keeper, Self) {
        let ((arrives, arrived), (opens, gate)) = (channel(), channel());
        (Keeper { arrived, opens }, Gated { form: InTurn::FROM_ODD, asked: 0, arrives, gate })
    }
}

impl Constraint for Gated {
    fn mask(&mut self) -> Result<Option<TokenSet>> {
        self.asked += 1;
        if self.asked == 3 {
            let _ = self.arrives.send(());
            let _ = self.gate.recv();
        }
        self.form.mask()
    }

    fn accept(&mut self, token: u32) -> Result<()> {
        self.form.accept(token)
    }
}

fn constrained(asked: &Asked, constraint: impl Constraint + 'static) -> EngineRequest {
    EngineRequest { constraint: Some(Box::new(constraint)), ..asked.request() }
}

/// What a form takes by itself in an engine of its own.
fn in_turn(asked: &Asked) -> Vec<u32> {
    let mut engine = engine(options(600));
    let request = constrained(asked, InTurn::FROM_ODD);
    let mut answers = [Answer::of(engine.submit(request).unwrap())];
    run(&mut engine, &mut answers);
    std::mem::take(&mut answers[0].tokens)
}

/// Steps until something holds.
fn until(engine: &mut Engine, answers: &mut [Answer], holds: impl Fn(&Engine, &[Answer]) -> bool) {
    let began = Instant::now();
    while !holds(engine, answers) {
        engine.step().unwrap();
        engine.check_integrity().unwrap();
        answers.iter_mut().for_each(Answer::read);
        assert!(began.elapsed() < Duration::from_secs(20), "it never holds");
    }
}

#[test]
fn a_form_that_takes_long_keeps_nobody_else_waiting() {
    let [plain, held] = [Asked::new(vec![1, 2, 3], 100), Asked::new(vec![4, 5, 6], 40)];
    let mut engine = engine(options(600));
    let (keeper, gated) = Gated::new();
    let requests = [plain.request(), constrained(&held, gated)];
    let mut answers = requests.map(|request| Answer::of(engine.submit(request).unwrap()));
    until(&mut engine, &mut answers, |_, answers| answers[0].end.is_some());
    assert_as_alone(&[plain], &answers[..1], "beside one whose form takes long");
    assert!(answers[1].tokens.len() <= 2 && answers[1].end.is_none());
    // On a busy machine its first tokens may have taken as long as the other's hundred.
    until(&mut engine, &mut answers, |_, _| keeper.arrived.try_recv().is_ok());
    // At most its last row is run once more. Then nobody asks again and again.
    let ran = (0..5).filter(|_| matches!(engine.step().unwrap(), Step::Ran(_))).count();
    assert!(ran <= 1, "{ran} passes in vain");
    assert!(matches!(engine.step().unwrap(), Step::Idle(None)));
    assert_eq!(engine.state().paused, 1);
    answers[1].read();
    assert_eq!(answers[1].tokens.len(), 2);
    keeper.opens.send(()).unwrap();
    run(&mut engine, &mut answers);
    assert_eq!(answers[1].tokens, in_turn(&held));
    assert_empty(&engine);
}

/// Once it is on: lets whoever waits in with all rows of the prompt, for which there is no room, and when it is asked again, about
/// those inside, has nobody run.
#[derive(Default)]
struct NoRoom {
    is_on: AtomicBool,
}

impl Policy for NoRoom {
    fn name(&self) -> &'static str {
        "no room"
    }

    fn schedule(&self, state: &State, budget: Budget) -> Plan {
        if !self.is_on.load(Relaxed) {
            return Continuous.schedule(state, budget);
        }
        let Some(view) = state.requests.iter().find(|view| !view.is_running) else {
            return Plan::default();
        };
        let spans = vec![PlannedSpan { id: view.id, rows: view.pending(), guesses: 0 }];
        Plan { admit: vec![view.id], spans, ..Plan::default() }
    }
}

#[test]
fn whoever_has_no_room_beside_one_that_waits_for_its_form_waits_too() {
    // Twenty blocks of four, of which one who waits for a form holds two and the other will need all.
    let policy = Arc::<NoRoom>::default();
    let options = EngineOptions { policy: policy.clone(), draft: 0, ..options(80) };
    let mut engine = engine(options);
    let [held, long] = [Asked::new(vec![4, 5, 6], 20), Asked::new(Dice(31).tokens(78), 2)];
    let (keeper, gated) = Gated::new();
    let mut answers = vec![Answer::of(engine.submit(constrained(&held, gated)).unwrap())];
    until(&mut engine, &mut answers, |_, _| keeper.arrived.try_recv().is_ok());
    for _ in 0..3 {
        engine.step().unwrap();
    }
    assert_eq!(engine.state().paused, 1);
    answers.push(Answer::of(engine.submit(long.request()).unwrap()));
    policy.is_on.store(true, Relaxed);
    assert!(matches!(engine.step().unwrap(), Step::Idle(None)));
    policy.is_on.store(false, Relaxed);
    keeper.opens.send(()).unwrap();
    run(&mut engine, &mut answers);
    assert_eq!(answers[0].tokens, in_turn(&held));
    assert_as_alone(&[long], &answers[1..], "once the other has gone on");
    assert_empty(&engine);
}

#[test]
fn an_engine_that_sleeps_is_woken_when_it_is_known_what_may_come_next() {
    let handle = EngineHandle::start(engine(options(600))).unwrap();
    let held = Asked::new(vec![4, 5, 6], 40);
    let (keeper, gated) = Gated::new();
    let mut answer = Answer::of(handle.submit(constrained(&held, gated)).unwrap());
    eventually("it comes to the gate", || keeper.arrived.try_recv().is_ok());
    eventually("it goes on without it", || handle.state().paused == 1);
    sleep(Duration::from_millis(20));
    keeper.opens.send(()).unwrap();
    eventually("it is woken", || {
        answer.read();
        answer.end.is_some()
    });
    assert_eq!(answer.tokens, in_turn(&held));
}

#[test]
fn whoever_waits_for_a_form_may_run_out_of_time_or_go_away() {
    let mut engine = engine(options(600));
    let held = Asked::new(vec![4, 5, 6], 40);
    let deadline = Some(Instant::now() + Duration::from_millis(60));
    for (deadline, end) in [(deadline, Some(FinishReason::Deadline)), (None, None)] {
        let (_keeper, gated) = Gated::new();
        let request = EngineRequest { deadline, ..constrained(&held, gated) };
        let mut answers = vec![Answer::of(engine.submit(request).unwrap())];
        match end {
            Some(end) => {
                until(&mut engine, &mut answers, |_, answers| answers[0].end.is_some());
                assert_eq!(answers[0].reason(), end);
            }
            None => {
                until(&mut engine, &mut answers, |engine, _| engine.state().paused == 1);
                answers.clear();
                engine.step().unwrap();
            }
        }
        assert_empty(&engine);
    }
}

/// Takes longer at some tokens than anybody waits for.
struct Slow {
    form: InTurn,
    dice: Dice,
}

impl Constraint for Slow {
    fn mask(&mut self) -> Result<Option<TokenSet>> {
        if self.dice.below(4) == 0 {
            sleep(Duration::from_millis(8));
        }
        self.form.mask()
    }

    fn accept(&mut self, token: u32) -> Result<()> {
        self.form.accept(token)
    }
}

#[test]
fn forms_that_are_known_late_change_when_tokens_come_and_never_which() {
    let mut dice = Dice(16);
    let asked: Vec<Asked> = (0..4)
        .map(|seed| {
            // Those that draw none fall into loops, which lookups guess.
            let temperature = (seed % 2) as f32;
            let sampling = Sampling { temperature, seed, ..Sampling::default() };
            Asked { sampling, ..Asked::new(dice.tokens(20), 60) }
        })
        .collect();
    let right: Vec<Vec<u32>> = asked.iter().map(in_turn).collect();
    // With room for all, and with so little that they push each other out.
    for tokens in [600, 160] {
        for draft in [0, 4] {
            let mut engine = engine(EngineOptions { draft, ..options(tokens) });
            let slow = |seed| Slow { form: InTurn::FROM_ODD, dice: Dice(seed) };
            let mut answers: Vec<Answer> = (1..)
                .zip(&asked)
                .map(|(seed, asked)| {
                    Answer::of(engine.submit(constrained(asked, slow(seed))).unwrap())
                })
                .collect();
            let records = run(&mut engine, &mut answers);
            let in_vain = records.iter().flat_map(|record| &record.spans);
            let in_vain = in_vain.filter(|span| span.kind != Kind::Prefill && span.tokens == 0);
            assert!(in_vain.count() > 0, "was any late?");
            for (answer, right) in answers.iter().zip(&right) {
                assert_eq!(&answer.tokens, right, "{tokens} tokens, {draft} guesses");
            }
            let counters = engine.state().counters;
            assert_eq!(counters.preemptions > 0, tokens == 160);
            assert_eq!(counters.accepted_tokens > 0, draft > 0);
            assert_empty(&engine);
        }
    }
}

#[test]
fn a_constraint_that_panics_fails_alone() {
    struct Panics(usize);
    impl Constraint for Panics {
        fn mask(&mut self) -> Result<Option<TokenSet>> {
            self.0 = self.0.checked_sub(1).expect("so many times");
            Ok(None)
        }

        fn accept(&mut self, _: u32) -> Result<()> {
            Ok(())
        }
    }
    let said = fails_alone(&Asked::new(vec![1, 2, 3], 10), Panics(4));
    assert!(said.contains("a constraint panicked"), "{said}");
}
