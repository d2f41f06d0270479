//! Who has come, gone, run out of time or stopped reading.

use super::event::{Event, FinishReason};
use super::member::Member;
use super::{Engine, LEAST_EVENTS};
use naive_decode::{Error, Result};
use std::time::Instant;

impl Engine {
    /// Looks at all that has happened outside since the step before.
    pub(super) fn look(&mut self) -> Result<()> {
        // Before those who have come: a request whose blocks somebody waits for is among them then, or is done.
        self.borrowers.extend(self.inbox.borrowers());
        let waiting = self.members.iter().filter(|member| is_queued(member)).count();
        for submission in self.inbox.collect(waiting, self.running()) {
            let arrived = submission.at.saturating_duration_since(self.started);
            let (proposer, draft) = ((self.options.proposer)(), self.options.draft);
            self.members.push(Member::new(submission, &self.inbox, arrived, proposer, draft)?);
        }
        let (now, is_cut_off) = (Instant::now(), self.inbox.is_cut_off());
        for index in (0..self.members.len()).rev() {
            let member = &mut self.members[index];
            member.notice_reader(now, self.options.events);
            if let Some(form) = &mut member.form {
                form.look();
            }
            if member.outlet.is_gone() {
                match member.outlet.is_done() {
                    true => self.counters.finished(FinishReason::Stop),
                    false => self.counters.cancelled += 1,
                }
                self.leave(index)?;
            } else if is_cut_off || member.deadline.is_some_and(|deadline| deadline <= now) {
                self.finish(index, FinishReason::Deadline)?;
            } else if member.stalled_since.is_some_and(|since| now - since > self.options.patience)
            {
                let found = format!("for {} seconds", (now - since_of(member)).as_secs());
                let expected = format!("within {} seconds", self.options.patience.as_secs());
                self.fail(index, Error::invalid("events left unread", found, expected))?;
            } else if member.max_tokens == 0 && !member.has_to_read() {
                self.finish(index, FinishReason::Length)?;
            }
        }
        self.lend();
        self.take_in_listeners();
        self.ask_elsewhere();
        self.read_aside();
        Ok(())
    }

    /// Requests that have a place and keep it. One that is held back for its reader gives it up to whoever needs it.
    pub(super) fn running(&self) -> usize {
        self.members.iter().filter(|member| member.is_running() && !member.is_stalled()).count()
    }

    /// When something has to be done although nobody rings.
    pub(super) fn next_alarm(&self) -> Option<Instant> {
        let stalls = self.members.iter().filter_map(|member| member.stalled_since);
        // A moment that cannot be told never comes.
        let stalls = stalls.filter_map(|since| since.checked_add(self.options.patience));
        self.members.iter().filter_map(|member| member.deadline).chain(stalls).min()
    }
}

/// Whether it counts as waiting: not if it only waits for its own reader, or clients that never read would
/// keep others out.
pub(super) fn is_queued(member: &Member) -> bool {
    !member.is_running() && !member.is_stalled()
}

fn since_of(member: &Member) -> Instant {
    member.stalled_since.expect("it is stalled")
}

impl Member {
    // ANCHOR: stalled
    /// Holds the request back where its events would not fit into their queue, until half of it is empty. Every event
    /// that is read starts the time anew.
    fn notice_reader(&mut self, now: Instant, events: usize) {
        let room = self.outlet.room();
        let has_read = room > std::mem::replace(&mut self.room, room);
        let enough = match self.is_stalled() {
            true => (events / 2).max(LEAST_EVENTS / 2),
            false => LEAST_EVENTS / 2,
        };
        if room >= enough {
            self.stalled_since = None;
            self.outlet.set_stalled(false);
            return;
        }
        if has_read || !self.is_stalled() {
            self.stalled_since = Some(now);
        }
        self.outlet.set_stalled(true);
        // Somebody may have read between the look and the mark, and would not ring for it.
        if self.outlet.room() >= events / 2 {
            self.stalled_since = None;
        }
    }
    // ANCHOR_END: stalled

    /// Hands on what has happened in this step.
    pub(super) fn tell(&mut self) {
        let now = Instant::now();
        for event in self.events.drain(..) {
            self.outlet.send(event, now);
        }
    }

    /// Sends the last event, for which there is always room.
    pub(super) fn tell_end(mut self, end: Event) {
        self.tell();
        self.outlet.send(end, Instant::now());
    }
}
