//! A real engine under the load of some clients, every step timed: what the simulator is calibrated with, and what
//! it is held against.

use crate::engine::{Engine, EngineRequest, Event, PassRecord, Step, Ticket};
use crate::simulator::RequestOutcome;
use anyhow::{Result, bail, ensure};
use std::time::Instant;

/// A text to continue, and for how many tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// The tokens to continue.
    pub prompt: Vec<u32>,
    /// Tokens to generate.
    pub answer: usize,
}

/// What an engine did.
#[derive(Debug, Clone)]
pub struct Driven {
    /// What each step did, and the seconds from its beginning to its end.
    pub steps: Vec<(PassRecord, f64)>,
    /// Each request, in the order in which they were done.
    pub requests: Vec<RequestOutcome>,
}

/// Runs tasks to their end. Each of so many clients submits the next one as soon as it has its answer.
///
/// # Errors
/// If the engine refuses a task or fails one.
pub fn drive(engine: &mut Engine, tasks: &[Task], clients: usize) -> Result<Driven> {
    ensure!(clients > 0, "clients is 0, expected at least 1");
    let began = Instant::now();
    let mut coming = tasks.iter();
    let mut asked: Vec<Asked> = Vec::new();
    let mut driven = Driven { steps: Vec::new(), requests: Vec::new() };
    loop {
        while asked.len() < clients
            && let Some(task) = coming.next()
        {
            let ticket = engine.submit(EngineRequest::new(task.prompt.clone(), task.answer))?;
            let now = began.elapsed().as_secs_f64();
            let outcome = RequestOutcome {
                prompt: task.prompt.len(),
                answer: 0,
                came: now,
                started: now,
                first_token: now,
                finished: now,
                preemptions: 0,
            };
            asked.push(Asked { ticket, outcome, is_done: false });
        }
        let start = Instant::now();
        let step = engine.step()?;
        let took = start.elapsed().as_secs_f64();
        let Step::Ran(record) = step else { break };
        driven.steps.push((record, took));
        let now = began.elapsed().as_secs_f64();
        asked.iter_mut().try_for_each(|asked| asked.read(now, now - took))?;
        let done = asked.extract_if(.., |asked| asked.is_done);
        driven.requests.extend(done.map(|asked| asked.outcome));
    }
    ensure!(asked.is_empty(), "{} requests were never finished", asked.len());
    Ok(driven)
}

/// A request under way.
struct Asked {
    ticket: Ticket,
    outcome: RequestOutcome,
    is_done: bool,
}

impl Asked {
    /// What has come of it by `now`, in a step that began at `start`.
    fn read(&mut self, now: f64, start: f64) -> Result<()> {
        while let Ok(event) = self.ticket.try_recv() {
            match event {
                Event::Started { .. } => self.outcome.started = start,
                Event::Token(_) => {
                    if self.outcome.answer == 0 {
                        self.outcome.first_token = now;
                    }
                    self.outcome.answer += 1;
                }
                Event::Finished { usage, .. } => {
                    self.outcome.finished = now;
                    self.outcome.preemptions = usage.preemptions;
                    self.is_done = true;
                }
                Event::Failed(error) => bail!(error),
                Event::Prompt(_) | Event::Embedding(_) => {}
            }
        }
        Ok(())
    }
}
