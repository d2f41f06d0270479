//! A request inside the engine.

use super::aside::FromFile;
use super::elsewhere::Elsewhere;
use super::event::{Event, TokenEvent, Usage};
use super::form::Form;
use super::inbox::{Inbox, Submission};
use super::outlet::Outlet;
use super::policy::{MOST_LEVELS, Rank};
use super::request::EngineRequest;
use super::rules::Rules;
use naive_decode::{Result, Sampler};
use prefix_radix::{ParkedSession, Salt, Session};
use speculative::{Acceptance, DraftTree, FromText};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where a request's keys and values are.
pub(super) enum Place {
    /// Nowhere: it has not come to run yet, or gave up its blocks.
    Waiting,
    /// In the pool.
    Inside(Session),
    /// In the host's memory.
    Parked(ParkedSession),
}

// ANCHOR: member
/// A request that is not done.
///
/// What a preempted request must not lose is all in here and not in its place: the text, the sampler, what the
/// form has seen. So it goes on with the token that it would have had.
pub(super) struct Member {
    pub(super) id: u64,
    pub(super) place: Place,
    /// The prompt and what has been generated. The last token has not been run.
    pub(super) text: Vec<u32>,
    /// How much of the text is the prompt.
    pub(super) prompt: usize,
    pub(super) sampler: Sampler,
    pub(super) form: Option<Form>,
    /// Tokens that it is not to have.
    pub(super) rules: Option<Arc<Rules>>,
    pub(super) max_tokens: usize,
    pub(super) min_tokens: usize,
    pub(super) end_tokens: Vec<u32>,
    pub(super) salt: Salt,
    pub(super) logprobs: Option<usize>,
    /// What is known of the prompt's own tokens so far, if that was asked for.
    pub(super) scored: Option<Vec<TokenEvent>>,
    /// How many of the likeliest are told with each of them.
    pub(super) scored_top: usize,
    /// Whether it wants its prompt's embedding and nothing else.
    pub(super) embeds: bool,
    /// Whether its prompt is to be read and nothing else.
    pub(super) reads_only: bool,
    /// How it stands with those who read prompts elsewhere.
    pub(super) elsewhere: Elsewhere,
    /// How it stands with the file of keys and values.
    pub(super) from_file: FromFile,
    pub(super) rank: Rank,
    pub(super) priority: i32,
    pub(super) deadline: Option<Instant>,
    pub(super) guessing: Guessing,
    pub(super) outlet: Outlet,
    /// Events of the step at hand.
    pub(super) events: Vec<Event>,
    /// Events for which there was room when that was last looked at.
    pub(super) room: usize,
    /// Since when it is held back and nobody has read its events.
    pub(super) stalled_since: Option<Instant>,
    pub(super) submitted: Instant,
    pub(super) has_started: bool,
    pub(super) usage: Usage,
}
// ANCHOR_END: member

/// One request's guesses.
pub(super) struct Guessing {
    pub(super) proposer: Box<dyn FromText>,
    pub(super) acceptance: Acceptance,
    /// What is guessed behind the text in the step at hand.
    pub(super) tree: DraftTree,
    /// Whether to guess in the next pass in any case.
    pub(super) probes: bool,
}

impl Member {
    /// A request that has just come; `arrived` is the time on the engine's clock.
    pub(super) fn new(
        submission: Submission,
        inbox: &Arc<Inbox>,
        arrived: Duration,
        proposer: Box<dyn FromText>,
        draft: usize,
    ) -> Result<Self> {
        let Submission { id, request, outlet, at } = submission;
        let EngineRequest { prompt, sampling, max_tokens, priority, .. } = request;
        let priority = priority.clamp(-MOST_LEVELS, MOST_LEVELS);
        let sampler = Sampler::new(sampling)?.with_prompt_length(prompt.len());
        let usage = Usage { prompt_tokens: prompt.len(), ..Usage::default() };
        let acceptance = Acceptance::new(draft);
        Ok(Member {
            id,
            place: Place::Waiting,
            prompt: prompt.len(),
            text: prompt,
            sampler,
            form: request.constraint.map(|constraint| Form::new(constraint, inbox)),
            rules: request.rules,
            max_tokens,
            min_tokens: request.min_tokens,
            end_tokens: request.end_tokens,
            salt: request.salt,
            logprobs: request.logprobs,
            scored: request.prompt_logprobs.map(|_| Vec::new()),
            scored_top: request.prompt_logprobs.unwrap_or(0),
            embeds: request.embedding,
            reads_only: request.reads_only,
            elsewhere: Elsewhere::default(),
            from_file: FromFile::default(),
            rank: Rank::new(priority, arrived, id),
            priority,
            deadline: request.deadline,
            guessing: Guessing { proposer, acceptance, tree: DraftTree::empty(), probes: false },
            room: outlet.room(),
            outlet,
            events: Vec::new(),
            stalled_since: None,
            submitted: at,
            has_started: false,
            usage,
        })
    }

    pub(super) fn session(&self) -> Option<&Session> {
        match &self.place {
            Place::Inside(session) => Some(session),
            _ => None,
        }
    }

    pub(super) fn parked(&self) -> Option<&ParkedSession> {
        match &self.place {
            Place::Parked(parked) => Some(parked),
            _ => None,
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.session().is_some()
    }

    pub(super) fn is_stalled(&self) -> bool {
        self.stalled_since.is_some()
    }

    /// Whether passes go on without it until it is known what may come next in it.
    pub(super) fn is_paused(&self) -> bool {
        self.form.as_ref().is_some_and(Form::is_late)
    }

    /// Whether it has rows to run now.
    pub(super) fn goes_on(&self) -> bool {
        self.is_running() && !self.is_stalled() && !self.is_paused()
    }

    /// Tokens generated so far.
    pub(super) fn generated(&self) -> usize {
        self.text.len() - self.prompt
    }

    /// Tokens of its text in the pool.
    pub(super) fn held(&self) -> usize {
        self.session().map_or(0, |session| session.text().len())
    }

    /// Most tokens that it can come to hold: the last one generated is never run.
    pub(super) fn longest(&self) -> usize {
        self.prompt + self.max_tokens.saturating_sub(1)
    }

    /// Whether its prompt is read although nothing is written.
    pub(super) fn has_to_read(&self) -> bool {
        self.scored.is_some() || self.embeds || self.reads_only
    }

    /// Whether all of the prompt has to be run, known or not.
    pub(super) fn reads_all(&self) -> bool {
        self.scored.as_ref().is_some_and(|scored| scored.len() + 1 < self.prompt)
    }
}
