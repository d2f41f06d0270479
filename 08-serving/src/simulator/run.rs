//! The run: the engine's own policy decides, pass after pass, and a clock moves on by what each pass would take.

use super::deployment::{Deployment, Speculation};
use super::model::SpanWork;
use super::outcome::{Outcome, RequestOutcome, Totals};
use super::request::Simulated;
use crate::engine::policy::{Plan, PlannedSpan, State};
use crate::load::sizes::Size;
use naive_decode::{Error, Result};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use speculative::PassTimes;
use std::collections::VecDeque;
use std::time::Duration;

/// Passes of a run, at most: some minutes of computing.
const MOST_PASSES: usize = 10_000_000;

/// Seconds after which a run is given up: more than thirty years.
const MOST_SECONDS: f64 = 1e9;

/// What comes in.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// The requests, in order of arrival.
    pub sizes: Vec<Size>,
    /// Clients of which each asks the next request as soon as it has its answer, whenever that was to come; none:
    /// requests come when their sizes say.
    pub clients: Option<usize>,
    /// Seed of what guesses come true.
    pub seed: u64,
}

// ANCHOR: simulate
/// Runs a workload to its end.
///
/// # Errors
/// Numbers that nothing can be computed with, weights that do not fit, a request that never could, or a run
/// without an end in sight.
pub fn simulate(deployment: &Deployment, workload: &Workload) -> Result<Outcome> {
    let mut run = Run::new(deployment, workload)?;
    while run.arrive()? {
        let state = run.state();
        let plan = deployment.policy.schedule(&state, deployment.budget);
        run.carry_out(&plan)?;
    }
    Ok(run.outcome())
}
// ANCHOR_END: simulate

struct Run<'a> {
    deployment: &'a Deployment,
    workload: &'a Workload,
    /// Requests that have not come yet.
    coming: VecDeque<Size>,
    /// Requests that have come and are not done; in order of rank, since all have the same priority.
    inside: Vec<Simulated>,
    done: Vec<RequestOutcome>,
    blocks: usize,
    free: usize,
    window: Option<usize>,
    times: PassTimes,
    luck: ChaCha8Rng,
    now: f64,
    totals: Totals,
}

impl<'a> Run<'a> {
    fn new(deployment: &'a Deployment, workload: &'a Workload) -> Result<Self> {
        deployment.check()?;
        let blocks = deployment.blocks()?;
        let longest = deployment.longest()?;
        if let Some(size) = workload.sizes.iter().find(|size| size.prompt + size.answer > longest) {
            let what = "tokens of a prompt and its answer";
            let expected = format!("at most the {longest} that there is room for");
            return Err(Error::invalid(what, size.prompt + size.answer, expected));
        }
        if workload.sizes.iter().any(|size| size.prompt == 0 || size.answer == 0) {
            return Err(Error::invalid("tokens of a prompt or an answer", 0, "at least 1"));
        }
        if workload.clients == Some(0) {
            return Err(Error::invalid("clients", 0, "at least 1"));
        }
        let mut key = [0; 32];
        key[..8].copy_from_slice(&workload.seed.to_le_bytes());
        Ok(Run {
            deployment,
            workload,
            coming: workload.sizes.iter().copied().collect(),
            inside: Vec::new(),
            done: Vec::new(),
            blocks,
            free: blocks,
            window: deployment.model.forgets_after(),
            times: PassTimes::default(),
            luck: ChaCha8Rng::from_seed(key),
            now: 0.0,
            totals: Totals::default(),
        })
    }

    /// Lets in who has come by now; if nobody is there, waits for the next. Whether anything is left to do.
    fn arrive(&mut self) -> Result<bool> {
        if self.totals.passes >= MOST_PASSES || self.now > MOST_SECONDS {
            let found = format!("{} passes and {:.0} seconds", self.totals.passes, self.now);
            let expected =
                format!("done within {MOST_PASSES} passes and {MOST_SECONDS:.0} seconds");
            return Err(Error::invalid("the run", found, expected));
        }
        while let Some(next) = self.coming.front() {
            let at = match self.workload.clients {
                Some(clients) if self.inside.len() >= clients => break,
                Some(_) => self.now,
                None => next.at.as_secs_f64(),
            };
            if at > self.now {
                if !self.inside.is_empty() {
                    break;
                }
                self.now = at;
            }
            let id = (self.done.len() + self.inside.len()) as u64;
            let draft = self.deployment.speculation.draft;
            self.inside.push(Simulated::new(id, *next, at, draft));
            self.coming.pop_front();
        }
        Ok(!self.inside.is_empty())
    }

    /// What the policy is shown: who is inside, and of those who wait as many as could come in at once. They
    /// come in by rank, so the others make no difference.
    fn state(&self) -> State {
        let speculation = self.deployment.speculation;
        let view = |request: &Simulated| request.view(speculation);
        let running = self.inside.iter().filter(|request| request.is_running);
        let waiting = self.inside.iter().filter(|request| !request.is_running);
        let requests =
            running.chain(waiting.take(self.deployment.budget.running)).map(view).collect();
        let times = match speculation.draft {
            0 => PassTimes::default(), // nobody asks
            _ => self.times.clone(),
        };
        State { requests, free: self.free, cached: 0, block: self.deployment.block, times }
    }

    // ANCHOR: carry_out
    /// What the engine does with a plan, without a model: the clock moves on by the pass's time.
    fn carry_out(&mut self, plan: &Plan) -> Result<()> {
        for &id in &plan.preempt {
            let request = self.find(id)?;
            let places = request.places;
            request.preempt();
            self.free += places;
            self.totals.preemptions += 1;
        }
        let now = self.now;
        for &id in &plan.admit {
            let request = self.find(id)?;
            request.is_running = true;
            request.started.get_or_insert(now);
        }
        let draft = self.deployment.speculation.draft;
        for request in self.inside.iter_mut().filter(|request| request.is_running) {
            let planned = plan.spans.iter().find(|span| span.id == request.id);
            request.plan_guesses(planned.map_or(0, |span| span.guesses), draft);
        }
        if plan.spans.is_empty() {
            return Err(Error::invalid("rows of a pass", 0, "at least 1 while requests wait"));
        }
        self.take_blocks(plan)?;
        self.now += self.seconds(plan)?;
        plan.spans.iter().try_for_each(|span| self.advance(span))?;
        self.leave();
        Ok(())
    }
    // ANCHOR_END: carry_out

    fn find(&mut self, id: u64) -> Result<&mut Simulated> {
        let found = self.inside.iter_mut().find(|request| request.id == id);
        found.ok_or_else(|| Error::invalid("a request in the plan", id, "one that is not done"))
    }

    /// Blocks for all rows of a pass, guesses included.
    fn take_blocks(&mut self, plan: &Plan) -> Result<()> {
        let block = self.deployment.block;
        for span in &plan.spans {
            let request = self.find(span.id)?;
            let tokens = request.held - request.forgotten + span.rows + span.guesses;
            let taken = tokens.div_ceil(block).saturating_sub(request.places);
            request.places += taken;
            let free = self.free;
            self.free = free.checked_sub(taken).ok_or_else(|| {
                Error::invalid(
                    "blocks of a plan",
                    taken,
                    format!("at most the {free} that are free"),
                )
            })?;
        }
        self.totals.peak_blocks = self.totals.peak_blocks.max(self.blocks - self.free);
        Ok(())
    }

    /// How long the pass takes, with the guesses that went before it.
    fn seconds(&mut self, plan: &Plan) -> Result<f64> {
        let mut spans = Vec::with_capacity(plan.spans.len());
        let mut last_rows = Vec::new();
        for span in &plan.spans {
            let request = self.find(span.id)?;
            let ends = request.held + span.rows == request.text;
            let logits = if ends { 1 + span.guesses } else { 0 };
            spans.push(SpanWork { cached: request.held, rows: span.rows + span.guesses, logits });
            if span.guesses > 0 {
                last_rows.push(SpanWork { cached: request.held, rows: 1, logits: 1 });
            }
        }
        let Deployment { model, pass_time, speculation, .. } = self.deployment;
        let seconds = pass_time.seconds(&model.work(spans));
        if !(0.0..=MOST_SECONDS).contains(&seconds) {
            let expected = format!("0 to {MOST_SECONDS:.0}");
            return Err(Error::invalid("seconds of a pass", seconds, expected));
        }
        self.times.observe(plan.rows(), Duration::from_secs_f64(seconds));
        let drafted = plan.spans.iter().map(|span| span.guesses).max().unwrap_or(0);
        let drafting = match last_rows.is_empty() || speculation.cost == 0.0 {
            true => 0.0,
            false => drafted as f64 * speculation.cost * pass_time.seconds(&model.work(last_rows)),
        };
        self.totals.passes += 1;
        self.totals.rows += plan.rows();
        self.totals.spans += plan.spans.len();
        self.totals.busy += seconds + drafting;
        Ok(seconds + drafting)
    }

    /// What one request's rows came to.
    fn advance(&mut self, span: &PlannedSpan) -> Result<()> {
        let (now, window, block) = (self.now, self.window, self.deployment.block);
        let speculation = self.deployment.speculation;
        let came_true = match span.guesses {
            0 => 0,
            guesses => lucky(&mut self.luck, guesses, speculation),
        };
        let request = self.find(span.id)?;
        let before = request.places;
        request.held += span.rows;
        if request.held == request.text {
            // The guesses that came true have been run; the last token has not.
            request.text += 1 + came_true;
            request.held += came_true;
            request.saw(span.guesses, came_true);
            request.first_token.get_or_insert(now);
        }
        let after = request.settle(block, window);
        let generated = request.generated();
        debug_assert!(generated <= request.size.answer, "{generated} tokens");
        self.free += before - after;
        self.totals.drafted += span.guesses;
        self.totals.accepted += came_true;
        Ok(())
    }

    /// Who is done goes, and its blocks are free.
    fn leave(&mut self) {
        let now = self.now;
        for request in self.inside.extract_if(.., |request| request.is_done()) {
            self.free += request.places;
            self.done.push(RequestOutcome {
                prompt: request.size.prompt,
                answer: request.generated(),
                came: request.came,
                started: request.started.unwrap_or(now),
                first_token: request.first_token.unwrap_or(now),
                finished: now,
                preemptions: request.preemptions,
            });
        }
    }

    fn outcome(self) -> Outcome {
        debug_assert_eq!(self.free, self.blocks, "every block came back");
        Outcome::new(self.deployment, self.done, self.totals)
    }
}

/// Guesses that come true, one after the other, until one does not.
fn lucky(luck: &mut ChaCha8Rng, guesses: usize, speculation: Speculation) -> usize {
    let mut draw = || (luck.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    (0..guesses).take_while(|_| draw() < speculation.acceptance).count()
}
