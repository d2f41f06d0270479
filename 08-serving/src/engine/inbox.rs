//! Between the engine's thread and all others: new requests one way, events and snapshots the other.

use super::handle::{Marks, Ticket};
use super::kv_events::{KvEvents, Listener, listener};
use super::lending::{BlocksOf, Exchanged, Waiting};
use super::outlet::Outlet;
use super::request::{EngineRequest, Limits, Refused};
use super::state::EngineState;
use naive_decode::Error;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::channel;
use tokio::sync::{Notify, oneshot};

// ANCHOR: inbox
/// What both sides see.
pub(super) struct Inbox {
    limits: Limits,
    /// What blocks are, if they are exchanged.
    exchanged: Option<Exchanged>,
    /// Events that a client may leave unread.
    events: usize,
    /// Whether the engine has something to put away at its end.
    puts_away: bool,
    mail: Mutex<Mail>,
    bell: Condvar,
    state: Mutex<Arc<EngineState>>,
    drained: Notify,
}
// ANCHOR_END: inbox

/// What has come for the engine.
#[derive(Default)]
struct Mail {
    new: Vec<Submission>,
    /// Those who wait for blocks.
    borrowers: Vec<Waiting>,
    /// Those who want to know what is known.
    listeners: Vec<Listener>,
    /// Requests taken so far.
    submitted: u64,
    /// Requests that wait in the engine for a place, besides `new`.
    waiting: usize,
    /// Requests that have one.
    running: usize,
    /// Whether something has happened since the engine last looked.
    has_rung: bool,
    /// Series of requests of which more may come.
    series: usize,
    is_draining: bool,
    /// Whether the time of all requests is up.
    is_cut_off: bool,
    /// Whether the last handle is gone.
    is_closed: bool,
    is_idle: bool,
    /// Whether the engine is gone.
    has_ended: bool,
}

/// A request on its way to the engine.
pub(super) struct Submission {
    pub(super) id: u64,
    pub(super) request: EngineRequest,
    pub(super) outlet: Outlet,
    pub(super) at: Instant,
}

impl Mail {
    /// Whether requests are taken: new ones, or such as are parts of what has begun.
    fn is_open(&self, in_series: bool) -> Result<(), Refused> {
        match self {
            Mail { has_ended: true, .. } => Err(Refused::Ended),
            Mail { is_cut_off: true, .. } => Err(Refused::Draining),
            Mail { is_draining: true, .. } if !in_series => Err(Refused::Draining),
            _ => Ok(()),
        }
    }

    /// Whether nobody comes any more.
    fn is_shut(&self) -> bool {
        self.is_draining && self.series == 0
    }
}

impl Inbox {
    pub(super) fn new(
        limits: Limits,
        events: usize,
        exchanged: Option<Exchanged>,
        puts_away: bool,
    ) -> Arc<Self> {
        Arc::new(Inbox {
            limits,
            exchanged,
            events,
            puts_away,
            mail: Mutex::new(Mail { is_idle: true, ..Mail::default() }),
            bell: Condvar::new(),
            state: Mutex::default(),
            drained: Notify::new(),
        })
    }

    pub(super) fn limits(&self) -> Limits {
        self.limits
    }

    pub(super) fn exchanged(&self) -> Option<Exchanged> {
        self.exchanged
    }

    /// Whoever panicked while holding it leaves what others can go on from: flags and counts are right each by itself, and a
    /// request is in `new` whole or not at all.
    fn mail(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes all of the requests, or none. `in_series`: they are parts of what has begun.
    pub(super) fn submit(
        self: &Arc<Self>,
        requests: Vec<EngineRequest>,
        in_series: bool,
    ) -> Result<Vec<Ticket>, Refused> {
        requests.iter().try_for_each(|request| self.check(request))?;
        let Limits { queue, running, .. } = self.limits;
        let (asked, limit) = (requests.len(), queue.saturating_add(running));
        if asked > limit {
            return Err(Refused::TooMany { asked, limit });
        }
        let mut mail = self.mail();
        mail.is_open(in_series)?;
        let waiting = mail.waiting + mail.new.len();
        // Those who come to a free place need not wait, though the engine has not seen them yet.
        let limit = queue.saturating_add(running.saturating_sub(mail.running));
        if waiting + asked > limit {
            return Err(Refused::Full { waiting, asked, limit });
        }
        let at = Instant::now();
        let take = |request| {
            let id = mail.submitted;
            mail.submitted += 1;
            let (sender, events) = channel(self.events);
            let marks = Arc::<Marks>::default();
            let outlet = Outlet::new(sender, marks.clone());
            mail.new.push(Submission { id, request, outlet, at });
            Ticket::new(id, events, self.clone(), marks)
        };
        let tickets = requests.into_iter().map(take).collect();
        self.wake(mail);
        Ok(tickets)
    }

    pub(super) fn submit_one(self: &Arc<Self>, request: EngineRequest) -> Result<Ticket, Refused> {
        Ok(self.submit(vec![request], false)?.remove(0))
    }

    pub(super) fn begin_series(&self) -> Result<(), Refused> {
        let mut mail = self.mail();
        mail.is_open(false)?;
        mail.series += 1;
        mail.is_idle = false;
        Ok(())
    }

    /// The engine looks whether anything is left.
    pub(super) fn end_series(&self) {
        let mut mail = self.mail();
        mail.series -= 1;
        if !mail.has_ended {
            self.wake(mail);
        }
    }

    /// Whether the engine could ever finish this.
    fn check(&self, request: &EngineRequest) -> Result<(), Refused> {
        let EngineRequest { prompt, sampling, max_tokens, .. } = request;
        if prompt.is_empty() {
            return Err(Error::invalid("prompt", "empty", "at least one token").into());
        }
        let biased: Vec<u32> = sampling.logit_bias.iter().map(|&(token, _)| token).collect();
        self.check_tokens("a token of the prompt", prompt)?;
        self.check_tokens("a token in logit_bias", &biased)?;
        self.check_tokens("an end token", &request.end_tokens)?;
        if let Some(rules) = &request.rules {
            for word in &rules.forbidden {
                self.check_tokens("a token of a forbidden word", word)?;
            }
        }
        sampling.validate()?;
        if request.embedding && (*max_tokens > 0 || request.prompt_logprobs.is_some()) {
            let found = format!("asked for together with {max_tokens} tokens or log-probabilities");
            return Err(Error::invalid("an embedding", found, "alone, with max_tokens 0").into());
        }
        if request.reads_only && *max_tokens > 0 {
            let found = format!("asked for together with {max_tokens} tokens");
            return Err(
                Error::invalid("a prompt to read", found, "alone, with max_tokens 0").into()
            );
        }
        self.limits.check_length(prompt.len(), *max_tokens)
    }

    fn check_tokens(&self, what: &str, tokens: &[u32]) -> Result<(), Error> {
        let vocabulary = self.limits.vocabulary;
        let Some(token) = tokens.iter().find(|&&token| token as usize >= vocabulary) else {
            return Ok(());
        };
        let expected = format!("below {vocabulary}, the size of the vocabulary");
        Err(Error::invalid(what, token, expected))
    }

    fn wake(&self, mut mail: MutexGuard<Mail>) {
        mail.has_rung = true;
        mail.is_idle = false;
        self.bell.notify_one();
    }

    /// Something has happened that the engine should look at.
    pub(super) fn ring(&self) {
        let mut mail = self.mail();
        mail.has_rung = true;
        self.bell.notify_one();
    }

    /// The bytes of the next blocks: some as soon as there are any, none if there will be no more.
    pub(super) fn blocks_of(&self, blocks: BlocksOf) -> oneshot::Receiver<Vec<Vec<u8>>> {
        let (reply, answer) = oneshot::channel();
        let mut mail = self.mail();
        // Where the engine is gone nobody replies, which says the same as none.
        if !mail.has_ended {
            mail.borrowers.push(Waiting { blocks, reply });
        }
        drop(mail);
        self.ring();
        answer
    }

    /// What is known, as it changes. Where the engine is gone it ends at once.
    pub(super) fn listen(&self) -> KvEvents {
        let (to, events) = listener();
        let mut mail = self.mail();
        if !mail.has_ended {
            mail.listeners.push(to);
        }
        drop(mail);
        self.ring();
        events
    }

    pub(super) fn drain(&self) {
        let mut mail = self.mail();
        let begins = !std::mem::replace(&mut mail.is_draining, true);
        if begins && self.puts_away && !mail.has_ended {
            self.wake(mail);
        } else if mail.is_idle {
            self.drained.notify_waiters();
        }
    }

    /// Whether it is time to put away what is to outlive the engine: nobody comes any more, and there is time.
    pub(super) fn is_time_to_put_away(&self) -> bool {
        self.ends_in_peace(&self.mail())
    }

    fn ends_in_peace(&self, mail: &Mail) -> bool {
        self.puts_away && mail.is_shut() && !mail.is_cut_off && !mail.has_ended
    }

    pub(super) fn cut_off(&self) {
        self.drain();
        self.mail().is_cut_off = true;
        self.ring();
    }

    pub(super) fn is_cut_off(&self) -> bool {
        self.mail().is_cut_off
    }

    pub(super) fn close(&self) {
        self.drain();
        self.mail().is_closed = true;
        self.ring();
    }

    pub(super) fn is_drained(&self) -> bool {
        let mail = self.mail();
        mail.is_draining && mail.is_idle
    }

    pub(super) async fn drained(&self) {
        let mut notified = std::pin::pin!(self.drained.notified());
        loop {
            // Registered before the look, so that nothing can happen between the two.
            notified.as_mut().enable();
            if self.is_drained() {
                return;
            }
            notified.as_mut().await;
            notified.set(self.drained.notified());
        }
    }

    pub(super) fn state(&self) -> Arc<EngineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    // What follows is for the engine's thread.

    /// New requests. Of those that are in the engine already so many wait for a place, and so many have one.
    pub(super) fn collect(&self, waiting: usize, running: usize) -> Vec<Submission> {
        let mut mail = self.mail();
        mail.has_rung = false;
        (mail.waiting, mail.running) = (waiting + mail.new.len(), running);
        std::mem::take(&mut mail.new)
    }

    /// Those who have come to wait for blocks.
    pub(super) fn borrowers(&self) -> Vec<Waiting> {
        std::mem::take(&mut self.mail().borrowers)
    }

    /// Those who have come to listen.
    pub(super) fn listeners(&self) -> Vec<Listener> {
        std::mem::take(&mut self.mail().listeners)
    }

    /// So many requests wait in the engine for a place now, and so many have one.
    pub(super) fn count(&self, waiting: usize, running: usize) {
        let mut mail = self.mail();
        (mail.waiting, mail.running) = (waiting, running);
    }

    /// Whether nothing at all is left in the engine, and whether what is to outlive it has been put away.
    pub(super) fn report(&self, is_empty: bool, is_put_away: bool) {
        let mut mail = self.mail();
        let has_to_put_away = self.ends_in_peace(&mail) && !is_put_away;
        let may_go_on = mail.series > 0 && !mail.has_ended;
        mail.is_idle = is_empty && mail.new.is_empty() && !may_go_on && !has_to_put_away;
        if mail.is_idle && mail.is_draining {
            self.drained.notify_waiters();
        }
    }

    /// The engine goes. Whoever waited for it now would wait for ever.
    pub(super) fn end(&self) {
        self.mail().has_ended = true;
        self.drain();
        // What has come in and was never looked at ends with this.
        self.collect(0, 0);
        self.borrowers();
        self.listeners();
    }

    pub(super) fn publish(&self, mut state: EngineState) {
        let mail = self.mail();
        (state.draining, state.counters.submitted) = (mail.is_draining, mail.submitted);
        drop(mail);
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(state);
    }

    // ANCHOR: sleep
    /// Sleeps until somebody rings, or until a moment has come. Says whether to go on: not if the last handle
    /// is gone and nothing is left to do.
    pub(super) fn sleep(&self, until: Option<Instant>) -> bool {
        let mut mail = self.mail();
        let is_over = |mail: &Mail| mail.is_closed && mail.is_idle;
        while !mail.has_rung && !is_over(&mail) {
            let Some(until) = until else {
                mail = self.bell.wait(mail).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                break;
            }
            mail = self.bell.wait_timeout(mail, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        mail.has_rung || !is_over(&mail)
    }
    // ANCHOR_END: sleep
}
