//! A load through an engine, in real time.

use crate::engine::{
    BlockCounts, Engine, EngineRequest, Event, FinishReason, Limits, PassRecord, Step, Ticket,
    Usage,
};
use crate::load::Arrival;
use anyhow::{Result, bail};
use naive_decode::measurement::{MachineName, typed};
use serde::Serialize;
use std::time::{Duration, Instant};

/// What became of a load. All times are seconds from the beginning.
#[derive(Debug, Clone, Serialize)]
pub struct Timeline {
    /// What kind of file this is: "timeline".
    pub kind: &'static str,
    /// What it was timed on.
    pub machine: MachineName,
    /// How it was written.
    pub command: String,
    /// Who decided: "continuous", "static".
    pub policy: &'static str,
    /// What the engine could take.
    pub limits: Limits,
    /// The pool before the first pass.
    pub blocks: BlockCounts,
    /// Each request, in order of arrival.
    pub requests: Vec<RequestTimeline>,
    /// Each pass, in order.
    pub passes: Vec<PassRecord>,
}

/// One request. A time is none where the request never came so far.
#[derive(Debug, Clone, Serialize)]
pub struct RequestTimeline {
    /// Its number in the passes.
    pub id: u64,
    /// When it came.
    pub submitted: f64,
    /// When its first pass began.
    pub started: f64,
    /// When its first token was known.
    pub first_token: Option<f64>,
    /// When it was done.
    pub finished: f64,
    /// Why.
    pub reason: FinishReason,
    /// What it took.
    pub usage: Usage,
}

/// Runs a load to its end; gives each request's tokens too.
///
/// # Errors
/// A request that the engine refuses or fails.
pub fn run(mut engine: Engine, arrivals: &[Arrival]) -> Result<(Timeline, Vec<Vec<u32>>)> {
    let limits = engine.limits();
    let blocks = engine.state().blocks;
    let policy = engine.policy_name();
    let began = Instant::now();
    // Passes are timed on the engine's clock, which has begun before.
    let before = engine.elapsed();
    let mut coming = arrivals.iter().peekable();
    let mut followed: Vec<Followed> = Vec::new();
    let mut passes = Vec::new();
    loop {
        while let Some(arrival) = coming.next_if(|arrival| arrival.at <= began.elapsed()) {
            followed.push(Followed::submit(&engine, arrival, began.elapsed())?);
        }
        let step = engine.step()?;
        followed.iter_mut().try_for_each(Followed::read)?;
        match (step, coming.peek()) {
            (Step::Ran(mut record), _) => {
                record.start = record.start.saturating_sub(before);
                passes.push(record);
            }
            (Step::Idle(_), Some(next)) => {
                std::thread::sleep(next.at.saturating_sub(began.elapsed()));
            }
            (Step::Idle(_), None) => break,
        }
    }
    let requests = followed.iter().map(Followed::timeline).collect::<Result<_>>()?;
    let tokens = followed.into_iter().map(|followed| followed.tokens).collect();
    let command = format!("cargo ladder {}", typed(std::env::args().skip(1)));
    let machine = MachineName::this();
    let kind = "timeline";
    Ok((Timeline { kind, machine, command, policy, limits, blocks, requests, passes }, tokens))
}

/// A request under way.
struct Followed {
    ticket: Ticket,
    submitted: Duration,
    tokens: Vec<u32>,
    end: Option<(FinishReason, Usage)>,
}

impl Followed {
    fn submit(engine: &Engine, arrival: &Arrival, submitted: Duration) -> Result<Self> {
        let request = EngineRequest::new(arrival.prompt.clone(), arrival.tokens);
        let ticket = engine.submit(request)?;
        Ok(Followed { ticket, submitted, tokens: Vec::new(), end: None })
    }

    fn read(&mut self) -> Result<()> {
        while let Ok(event) = self.ticket.try_recv() {
            match event {
                Event::Token(token) => self.tokens.push(token.token),
                Event::Finished { reason, usage } => self.end = Some((reason, usage)),
                Event::Failed(error) => return Err(error.into()),
                Event::Started { .. } | Event::Prompt(_) | Event::Embedding(_) => {}
            }
        }
        Ok(())
    }

    fn timeline(&self) -> Result<RequestTimeline> {
        let Some((reason, usage)) = self.end else {
            bail!("request {} was never finished", self.ticket.id());
        };
        let after = |time: Duration| (self.submitted + time).as_secs_f64();
        Ok(RequestTimeline {
            id: self.ticket.id(),
            submitted: self.submitted.as_secs_f64(),
            started: after(usage.queued),
            first_token: usage.first_token.map(after),
            finished: after(usage.total),
            reason,
            usage,
        })
    }
}
