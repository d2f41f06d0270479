//! Coming in, giving up a place, being done.

use super::Engine;
use super::aside::FromFile;
use super::event::{Event, FinishReason};
use super::member::{Member, Place};
use naive_decode::{Error, Result};
use prefix_radix::{ParkedSession, Session};
use std::time::Instant;

impl Engine {
    pub(super) fn index_of(&self, id: u64) -> Result<usize> {
        let found = self.members.iter().position(|member| member.id == id);
        found.ok_or_else(|| Error::invalid("a request in the plan", id, "one that is not done"))
    }

    // ANCHOR: admit
    /// A request comes in: it is brought back, or begins with what is known of its text.
    ///
    /// A hit inside a block is not used: going on in the block takes a copy, and reading its beginning again
    /// is less than a block of rows.
    pub(super) fn admit(&mut self, id: u64) -> Result<()> {
        let index = self.index_of(id)?;
        if self.members[index].is_running() {
            return Err(Error::invalid("a request to let in", id, "one that waits"));
        }
        let (session, brought) = match self.bring_back(index)? {
            Some(session) => (session, 0),
            None => self.open(index)?,
        };
        let member = &mut self.members[index];
        if !member.has_started {
            member.has_started = true;
            self.counters.prompt_tokens += member.prompt as u64;
            let cached_tokens = session.text().len() - brought;
            member.usage.cached_tokens = cached_tokens;
            member.usage.queued = member.submitted.elapsed();
            member.events.push(Event::Started { cached_tokens });
        }
        member.place = Place::Inside(session);
        Ok(())
    }
    // ANCHOR_END: admit

    /// What was parked, if it was, there is room for it, and the pool has not most of it anyway. Where it was it is not any
    /// more.
    fn bring_back(&mut self, index: usize) -> Result<Option<Session>> {
        let member = &self.members[index];
        if member.parked().is_none() {
            return Ok(None);
        }
        let is_found = finds(member, self.known(member).len() * self.options.block);
        let place = std::mem::replace(&mut self.members[index].place, Place::Waiting);
        let Place::Parked(parked) = place else { return Ok(None) };
        let mut session = None;
        if let Some(host) = self.host.as_mut().filter(|_| !is_found) {
            let began = Instant::now();
            session = self.pool.unpark(&parked, host).ok();
            if let Some(session) = &session {
                self.costs.copied(parked.tokens(), began.elapsed());
                // What the pool knows of it need not be there twice.
                self.pool.remember(session)?;
            }
        }
        self.forget(parked);
        Ok(session)
    }

    /// Makes room in the host's memory: what was parked has come back, or never will.
    fn forget(&mut self, parked: ParkedSession) {
        let others = self.members.iter().filter_map(Member::parked);
        if let Some(host) = &mut self.host {
            // What is not forgotten goes when it is the oldest.
            let _ = parked.forget(others, host);
        }
    }

    /// What is known of its text; and how many tokens of it another engine has read for this request.
    fn open(&mut self, index: usize) -> Result<(Session, usize)> {
        let (mut brought, known_before) = self.unpack(index);
        let is_brought = !brought.is_empty();
        brought.extend(self.take_from_file(index));
        let member = &self.members[index];
        // Where all is to be read, one token is all that is looked up, and it is never found alone.
        let looked_up = if member.reads_all() { 1 } else { member.text.len() };
        let text = &member.text[..looked_up];
        let in_pool = self.pool.known(member.salt, text).len() * self.options.block;
        let mut session = self.pool.open_with(member.salt, text, brought)?;
        let block = self.options.block;
        let whole = session.text().len() / block * block;
        self.pool.truncate(&mut session, whole)?;
        let in_pool = in_pool.min(whole);
        let brought = if is_brought { whole.saturating_sub(in_pool.max(known_before)) } else { 0 };
        // Whoever comes back after giving up its place finds what it has said itself: no hit, and no miss.
        if !self.members[index].has_started {
            self.counters.prefix_queries += looked_up as u64;
            self.counters.prefix_hits += in_pool as u64;
            if self.pool.prefixes().has_tiers() {
                self.counters.tier_queries += (looked_up - in_pool) as u64;
                self.counters.tier_hits += (whole - in_pool - brought) as u64;
            }
        }
        self.counters.brought_tokens += brought as u64;
        let bytes = brought / block * self.pool.pool().layout().block_bytes();
        self.counters.brought_bytes += bytes as u64;
        Ok((session, brought))
    }

    // ANCHOR: preempt
    /// A request gives up its place. Its blocks are parked if bringing them back is known to take less time than
    /// computing them; otherwise they stay where a lookup finds them, for as long as nobody needs them.
    ///
    /// Whoever shares blocks with others inside is not parked: those stay in the pool in any case, and a copy that came back
    /// would take their room once more. What is the request's own still goes to the host's memory when it is evicted.
    pub(super) fn preempt(&mut self, id: u64) -> Result<()> {
        let index = self.index_of(id)?;
        let member = &mut self.members[index];
        let Place::Inside(session) = std::mem::replace(&mut member.place, Place::Waiting) else {
            return Err(Error::invalid("a request to preempt", id, "one that has a place"));
        };
        member.usage.preemptions += 1;
        member.from_file = FromFile::default();
        self.counters.preemptions += 1;
        let tokens = session.text().len();
        let tables = self.pool.pool().tables(session.sequence())?;
        let is_alone = tables.held().all(|block| self.holders.of(block) == 1);
        match &mut self.host {
            Some(host) if tokens > 0 && is_alone && self.costs.parks() => {
                let began = Instant::now();
                // What cannot be parked is computed again.
                if let Ok(parked) = self.pool.park(session, host) {
                    self.costs.copied(tokens, began.elapsed());
                    self.counters.parked += 1;
                    member.place = Place::Parked(parked);
                }
            }
            _ => self.pool.end(session)?,
        }
        Ok(())
    }
    // ANCHOR_END: preempt

    /// Takes a request out; what it has said is known from now on, and its blocks are free.
    pub(super) fn leave(&mut self, index: usize) -> Result<Member> {
        let mut member = self.members.remove(index);
        self.published = None; // whoever asks must not see it any more
        match std::mem::replace(&mut member.place, Place::Waiting) {
            Place::Inside(session) => {
                self.note_unsaved(&session);
                self.pool.end(session)?;
            }
            Place::Parked(parked) => self.forget(parked),
            Place::Waiting => {}
        }
        Ok(member)
    }

    /// A text is done.
    pub(super) fn finish(&mut self, index: usize, reason: FinishReason) -> Result<()> {
        let mut member = self.leave(index)?;
        self.counters.finished(reason);
        member.usage.generated_tokens = member.generated();
        member.usage.total = member.submitted.elapsed();
        let usage = member.usage;
        self.ended.push((member, Event::Finished { reason, usage }));
        Ok(())
    }

    /// A text cannot go on.
    pub(super) fn fail(&mut self, index: usize, error: Error) -> Result<()> {
        let member = self.leave(index)?;
        self.counters.failed += 1;
        self.ended.push((member, Event::Failed(error)));
        Ok(())
    }
}

/// Whether a request that waits begins with the `known` tokens that the pool has of it. Not if all of it is to be run, and not
/// if most of it is parked and nowhere else. But where the pool has most of it, reading the rest is little, and bringing it all
/// back would take blocks for what is there already.
pub(super) fn finds(member: &Member, known: usize) -> bool {
    !member.reads_all() && member.parked().is_none_or(|parked| 2 * known > parked.tokens())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{EngineOptions, EngineRequest, Step, Ticket};
    use naive_decode::{Config, LoadOptions, Model};
    use std::sync::Arc;

    /// An engine with a pool for little more than one of the texts that are asked for, and what was asked.
    fn crowded() -> (Engine, Vec<Ticket>) {
        let json = r#"{"architectures": ["LlamaForCausalLM"], "hidden_size": 16, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 24,
            "vocab_size": 61, "rms_norm_eps": 1e-5, "max_position_embeddings": 256,
            "tie_word_embeddings": true}"#;
        let config = Config::from_json("config.json", json.as_bytes()).unwrap();
        let model = Arc::new(Model::random(config, 7, LoadOptions::default()).unwrap());
        let usual = EngineOptions::for_model(&model).unwrap();
        let pool_bytes = usual.pool_bytes / (4 * 256) * 96;
        // No prefixes: whatever is in the host's memory was parked there.
        let (prefixes, host_bytes) = (false, 1 << 20);
        let options = EngineOptions { pool_bytes, prefixes, host_bytes, draft: 0, ..usual };
        let engine = Engine::new(model, options).unwrap();
        let request = |first| EngineRequest::new((first..first + 30).collect(), 40);
        let tickets = (0..3).map(|first| engine.submit(request(first)).unwrap()).collect();
        (engine, tickets)
    }

    fn parked_blocks(engine: &Engine) -> usize {
        engine.host.as_ref().unwrap().lock().unwrap().len()
    }

    /// Steps until somebody is parked.
    fn until_parked(engine: &mut Engine) {
        while parked_blocks(engine) == 0 {
            assert!(matches!(engine.step().unwrap(), Step::Ran(_)), "nobody was parked");
        }
    }

    #[test]
    fn what_has_come_back_is_in_the_hosts_memory_no_more() {
        let (mut engine, _tickets) = crowded();
        until_parked(&mut engine);
        while let Step::Ran(_) = engine.step().unwrap() {}
        assert_eq!(engine.counters.full_length, 3);
        assert_eq!(parked_blocks(&engine), 0);
    }

    #[test]
    fn nor_is_what_will_never_come_back() {
        let (mut engine, tickets) = crowded();
        until_parked(&mut engine);
        drop(tickets);
        engine.step().unwrap();
        assert_eq!(engine.counters.cancelled, 3);
        assert_eq!(parked_blocks(&engine), 0);
    }
}
