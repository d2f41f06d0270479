//! One step: look, decide, run, tell.

use super::Engine;
use super::arrivals::is_queued;
use super::choose::Outcome;
use super::form;
use super::member::{Member, Place};
use super::pass::{PassRows, SpanRows};
use super::policy::{Budget, Plan};
use super::record::{Kind, PassRecord, SpanRecord};
use super::state::PassRow;
use crate::say::tell;
use naive_decode::{Error, Pass, Result, Span};
use rayon::prelude::*;
use std::time::{Duration, Instant};

/// Numbers in a pass's logits from which on tokens are chosen on several threads.
const MANY: usize = 1 << 17;

/// How old a published snapshot may become while passes run.
const FRESH: Duration = Duration::from_millis(100);

/// Passes that a snapshot tells of.
const PASSES: usize = 96;

/// What a step came to.
#[derive(Debug)]
pub enum Step {
    /// A pass has run.
    Ran(PassRecord),
    /// There was nothing to run: nothing will change before somebody submits, reads or goes away, a form that is waited for
    /// is known, or this moment comes.
    Idle(Option<Instant>),
}

/// A decision that has been carried out as far as the pass itself.
struct Decided {
    plan: Plan,
    /// The places of the spans' requests among the members.
    indices: Vec<usize>,
    pass: Pass,
}

impl Engine {
    /// Steps until the last handle is gone and everything is done; sleeps when there is nothing to do.
    pub(super) fn run(mut self) {
        loop {
            match self.step() {
                Ok(Step::Ran(_)) => {}
                Ok(Step::Idle(until)) => {
                    if !self.inbox.sleep(until) {
                        return;
                    }
                }
                // A broken invariant, or a device that is gone. Nobody is left without an answer.
                Err(error) => return self.give_up(&error),
            }
        }
    }

    // ANCHOR: step
    /// Looks who has come and gone, decides what the next pass does, runs it, and tells everyone what came of
    /// it.
    ///
    /// # Errors
    /// If the engine's own invariants do not hold, or its device has failed. What is wrong with one request goes to its ticket.
    pub fn step(&mut self) -> Result<Step> {
        self.look()?;
        self.guess();
        let began = Instant::now();
        let mut decided = self.decide()?;
        if decided.pass.spans.is_empty() {
            self.save(true);
            // Before it is told what is left to do: what is written meanwhile is told of at the next look.
            let next_save = self.next_save();
            self.tell(true);
            let next = [next_save, self.next_read(), self.next_alarm()];
            return Ok(Step::Idle(next.into_iter().flatten().min()));
        }
        let executed = Instant::now();
        let mut rows = self.execute(&decided.pass, &decided.indices)?;
        let took = executed.elapsed();
        let outcomes = self.choose(&decided, &mut rows, took);
        let spans = self.take_in(&mut decided, outcomes)?;
        let record = self.record(decided, spans, began, took);
        self.tell(false);
        self.save(false);
        Ok(Step::Ran(record))
    }
    // ANCHOR_END: step

    // ANCHOR: decide
    /// Asks the policy, and carries out all but the pass.
    ///
    /// How many blocks the prefix cache can let go of is an estimate: one whose continuation is in use stays. Where
    /// that turns out to be too few, the policy is asked again, with what there really is, about those who are
    /// inside. Each time somebody gives up a place, and one alone always fits.
    fn decide(&mut self) -> Result<Decided> {
        let budget = Budget { rows: self.options.rows, running: self.options.running };
        let mut carried_out = Plan::default();
        for attempt in 0..self.members.len() + 2 {
            let view = self.view(attempt > 0)?;
            let plan = self.options.policy.schedule(&view, budget);
            plan.preempt.iter().try_for_each(|&id| self.preempt(id))?;
            plan.admit.iter().try_for_each(|&id| self.admit(id))?;
            for member in &mut self.members {
                let planned = plan.spans.iter().find(|span| span.id == member.id);
                member.plan_guesses(planned.map_or(0, |span| span.guesses));
            }
            carried_out.preempt.extend(&plan.preempt);
            carried_out.admit.extend(&plan.admit);
            carried_out.spans = plan.spans;
            let (indices, spans) = self.spans(&carried_out)?.into_iter().unzip();
            let pass = Pass { spans };
            // Nothing to run is no answer while somebody inside could go on: nobody would ask again. But whoever waits for the
            // form of somebody's answer is asked again once that is known.
            let waits = |member: &Member| member.is_running() && member.is_paused();
            let is_stuck = attempt > 0
                && pass.spans.is_empty()
                && self.members.iter().any(Member::goes_on)
                && !self.members.iter().any(waits);
            if !is_stuck && self.pool.has_room(&pass)? {
                return Ok(Decided { plan: carried_out, indices, pass });
            }
        }
        let free = self.pool.pool().blocks().free();
        Err(Error::invalid("blocks free for a pass", free, "as many as the plan counted on"))
    }
    // ANCHOR_END: decide

    /// Chooses tokens for everyone in a pass. The requests have nothing in common here, so threads share them
    /// out.
    fn choose(
        &mut self,
        decided: &Decided,
        rows: &mut PassRows,
        took: Duration,
    ) -> Vec<Result<Outcome>> {
        let numbers = rows.len();
        let mut members: Vec<Option<&mut Member>> = self.members.iter_mut().map(Some).collect();
        let spans = decided.pass.spans.iter().zip(&decided.indices).zip(rows.by_span());
        let jobs: Vec<_> = spans
            .map(|((span, &index), rows)| {
                (members[index].take().expect("a request has one span"), span, rows)
            })
            .collect();
        let until = Instant::now() + form::patience(took, jobs.len());
        let choose = |(member, span, rows): (&mut Member, &Span, Result<SpanRows>)| {
            rows.and_then(|rows| member.take_in(span, &rows, until))
        };
        match numbers >= MANY && jobs.len() > 1 {
            true => jobs.into_par_iter().map(choose).collect(),
            false => jobs.into_iter().map(choose).collect(),
        }
    }

    /// What came of everyone's rows goes to the pool, the prefix cache and the counters.
    fn take_in(
        &mut self,
        decided: &mut Decided,
        outcomes: Vec<Result<Outcome>>,
    ) -> Result<Vec<SpanRecord>> {
        let mut records = Vec::new();
        let mut ends = Vec::new();
        for ((span, &index), outcome) in
            decided.pass.spans.iter().zip(&decided.indices).zip(outcomes)
        {
            let member = &mut self.members[index];
            let outcome = match outcome {
                Ok(outcome) => outcome,
                Err(error) => {
                    ends.push((index, Err(error)));
                    continue;
                }
            };
            let Place::Inside(session) = &mut member.place else { continue };
            self.pool.advance(session, &outcome.tokens, &outcome.slots)?;
            let kind = match member.guessing.tree.len() {
                0 if span.start < member.prompt || span.rows() > 1 => Kind::Prefill,
                0 => Kind::Decode,
                _ => Kind::Verify,
            };
            if kind == Kind::Prefill {
                self.pool.remember(session)?;
            }
            member.count(&outcome);
            self.counters.generated_tokens += outcome.chosen as u64;
            self.counters.drafts += u64::from(outcome.guessed > 0);
            self.counters.drafted_tokens += outcome.guessed as u64;
            self.counters.accepted_tokens += outcome.came_true as u64;
            if let Some(reason) = outcome.end {
                ends.push((index, Ok(reason)));
            }
            let (id, rows, tokens) = (member.id, span.rows(), outcome.chosen);
            records.push(SpanRecord { id, kind, rows, tokens });
        }
        // The last first: each removal moves those behind it.
        ends.sort_by_key(|(index, _)| std::cmp::Reverse(*index));
        for (index, end) in ends {
            match end {
                Ok(reason) => self.finish(index, reason)?,
                Err(error) => self.fail(index, error)?,
            }
        }
        Ok(records)
    }

    /// Notes a step that began then, of which the model took so long. What is learnt is of the model alone: blocks that
    /// were copied before the pass are no part of what a row costs.
    fn record(
        &mut self,
        decided: Decided,
        spans: Vec<SpanRecord>,
        began: Instant,
        took: Duration,
    ) -> PassRecord {
        let duration = began.elapsed();
        let rows = decided.pass.rows();
        let of = |kind| spans.iter().filter(|s| s.kind == kind).map(|s| s.rows).sum::<usize>();
        let prefill_rows = of(Kind::Prefill);
        let verified = spans.iter().filter(|span| span.kind == Kind::Verify).count();
        let start = began.saturating_duration_since(self.started);
        let Plan { admit: admitted, preempt: preempted, .. } = decided.plan;
        if self.passes.len() == PASSES {
            self.passes.pop_front();
        }
        self.passes.push_back(PassRow {
            start,
            duration,
            prefill_rows,
            decode_rows: of(Kind::Decode) + verified,
            draft_rows: of(Kind::Verify) - verified,
            tokens: spans.iter().map(|span| span.tokens).sum(),
            admitted: admitted.len(),
            preempted: preempted.len(),
        });
        let believed = self.times.observe(rows, took);
        self.costs.computed(prefill_rows, rows, believed);
        self.counters.passes += 1;
        self.counters.rows += rows as u64;
        PassRecord { start, duration, admitted, preempted, spans, blocks: self.block_counts() }
    }

    /// Publishes a snapshot if it is time to, and sends everyone's events: what has been received is counted.
    fn tell(&mut self, is_idle: bool) {
        let is_due = self.published.is_none_or(|published| published.elapsed() >= FRESH);
        if is_idle || is_due {
            let state = self.snapshot();
            self.inbox.publish(state);
            self.published = Some(Instant::now());
        }
        let waiting = self.members.iter().filter(|member| is_queued(member)).count();
        self.inbox.count(waiting, self.running());
        self.members.iter_mut().for_each(Member::tell);
        for (member, end) in self.ended.drain(..) {
            member.tell_end(end);
        }
        self.tell_listeners();
        let is_empty = self.members.is_empty() && self.is_saved();
        self.report_failure();
        self.inbox.report(is_empty, self.unsaved.is_put_away());
    }

    fn give_up(mut self, error: &Error) {
        tell!("the engine stops: {error}");
        let members = std::mem::take(&mut self.members);
        self.counters.failed += members.len() as u64;
        let last = self.snapshot();
        self.inbox.publish(last);
        for (member, end) in self.ended.drain(..) {
            member.tell_end(end);
        }
        for member in members {
            let error = match error {
                Error::Device { device, problem } => Error::device(device, problem),
                broken => Error::Defect { problem: broken.to_string() },
            };
            member.tell_end(super::Event::Failed(error));
        }
    }
}

impl Member {
    /// Keeps as many guesses as the plan has rows for, and notes whether guessing pays.
    fn plan_guesses(&mut self, planned: usize) {
        let guessing = &mut self.guessing;
        if guessing.tree.is_empty() {
            return;
        }
        let was_probe = guessing.probes;
        guessing.probes = match planned {
            0 => guessing.acceptance.probe() > 0,
            _ => {
                if !was_probe {
                    guessing.acceptance.paid();
                }
                false
            }
        };
        guessing.tree.truncate(planned);
    }

    fn count(&mut self, outcome: &Outcome) {
        if outcome.chosen > 0 && self.usage.first_token.is_none() {
            self.usage.first_token = Some(self.submitted.elapsed());
        }
        self.usage.drafted_tokens += outcome.guessed;
        self.usage.accepted_tokens += outcome.came_true;
        if outcome.guessed > 0 {
            self.guessing.acceptance.observe(outcome.judged, outcome.came_true);
        }
    }
}
