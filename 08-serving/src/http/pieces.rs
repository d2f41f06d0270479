//! Answers under way, as pieces of text.

use super::App;
use super::grammars::is_of_form;
use super::metrics::Longest;
use super::prepare::Work;
use crate::api::completions::Asked;
use crate::api::{ApiError, TOO_LONG};
use crate::engine::{Event, FinishReason, Refused, Rules, Ticket};
use crate::text::{Answer, Piece, Style};
use naive_decode::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tracing::Instrument;

/// Pieces that wait to be sent, of all answers to a request together.
const WAITING: usize = 16;

/// A piece, with the number of its answer.
type Numbered = Result<(usize, Piece), ApiError>;

/// Pieces of a request's answers as they come. Whoever drops this cancels them all.
pub(super) struct Pieces {
    pieces: Receiver<Numbered>,
    /// Answers that have not ended.
    under_way: usize,
}

impl Pieces {
    pub(super) fn new(pieces: Receiver<Numbered>, answers: usize) -> Self {
        Pieces { pieces, under_way: answers }
    }

    /// The next piece, with the number of its answer; none once all answers have ended.
    ///
    /// # Errors
    /// Whatever ended an answer before its end; 500 where whoever follows one is gone, as after a panic. Nothing comes after
    /// an error.
    pub(super) async fn next(&mut self) -> Result<Option<(usize, Piece)>, ApiError> {
        let Some(piece) = self.pieces.recv().await else {
            return match self.under_way {
                0 => Ok(None),
                _ => Err(ApiError::failed("an answer has no end")),
            };
        };
        let (index, piece) = piece?;
        if matches!(piece, Piece::End(_)) {
            self.under_way -= 1;
        }
        Ok(Some((index, piece)))
    }
}

/// What it takes to write one answer.
struct Following {
    index: usize,
    prompt: Arc<Asked>,
    style: Arc<Style>,
    end_tokens: Arc<[u32]>,
    named: Arc<[u32]>,
    /// The parameters that say what the answer is held to, and which tokens it is not to have, if any do.
    form: Option<&'static str>,
    rules: Option<&'static str>,
    longest: Arc<Longest>,
    ticket: Ticket,
    /// Answers to the request of which it is not known that nothing came.
    hopes: Arc<AtomicUsize>,
    /// When its request was here.
    come: Instant,
}

/// Hands the requests to the engine. Either all are taken, or none. `come` is when what asks for them was here.
///
/// # Errors
/// 400 for a request that does not fit, 429 if too many wait, 503 if the server is shutting down, 500 if the engine is
/// gone.
pub(super) fn start(app: &Arc<App>, work: Work, come: Instant) -> Result<Pieces, ApiError> {
    let Work { prompts, choices, requests, style, end_tokens, named, param, form, rules } = work;
    let refused = |refused| match refused {
        Refused::TooMany { .. } if choices > 1 => refusal(refused, "n"),
        refused => refusal(refused, param),
    };
    let tickets = app.engine.submit_all(requests).map_err(refused)?;
    let longest = || Arc::new(app.metrics.longest_of(choices));
    let longest: Vec<_> = prompts.iter().map(|_| longest()).collect();
    let (sender, pieces) = mpsc::channel(WAITING);
    let answers = tickets.len();
    let hopes = Arc::new(AtomicUsize::new(answers));
    for (index, ticket) in tickets.into_iter().enumerate() {
        let prompt = prompts[index / choices].clone();
        let (style, end_tokens, named) = (style.clone(), end_tokens.clone(), named.clone());
        let (longest, hopes) = (longest[index / choices].clone(), hopes.clone());
        let following = Following {
            index,
            prompt,
            style,
            end_tokens,
            named,
            form,
            rules,
            longest,
            ticket,
            hopes,
            come,
        };
        tokio::spawn(follow(app.clone(), following, sender.clone()).in_current_span());
    }
    Ok(Pieces::new(pieces, answers))
}

/// Follows one answer to its end, or until nobody is there to read it.
async fn follow(app: Arc<App>, following: Following, pieces: Sender<Numbered>) {
    let Following {
        index,
        prompt,
        style,
        end_tokens,
        named,
        form,
        rules,
        longest,
        mut ticket,
        hopes,
        come,
    } = following;
    let mut answer = Answer::new(&app.tokenizer, &prompt.tokens, &style, &end_tokens, &named);
    let mut clock = app.metrics.clock(come);
    let last = loop {
        let event = tokio::select! {
            () = pieces.closed() => return clock.gone(),
            event = ticket.recv() => event,
        };
        let piece = match event {
            None => Err(ApiError::failed(Refused::Ended)),
            // Nothing has come of any: whoever asked may ask somebody else.
            Some(Event::Finished { reason: FinishReason::Deadline, usage })
                if usage.generated_tokens == 0 && hopes.fetch_sub(1, Ordering::Relaxed) == 1 =>
            {
                Err(app.not_done())
            }
            Some(event) => {
                clock.see(&event, ticket.sent_at());
                match answer.take(event) {
                    Ok(None) => continue,
                    Ok(Some(piece)) => Ok(piece),
                    Err(problem) => Err(failure(&problem, form, rules)),
                }
            }
        };
        // Its blocks are free before the client knows that it is done.
        match &piece {
            Ok(Piece::End(ending)) => {
                clock.ended(ending);
                longest.ended(ending.tokens);
                ticket.done();
                break piece;
            }
            Ok(_) => {}
            Err(_) => {
                clock.failed();
                drop(ticket);
                break piece;
            }
        }
        if pieces.send(piece.map(|piece| (index, piece))).await.is_err() {
            return clock.gone();
        }
    };
    // Whoever has gone by now does not need to be told.
    let _ = pieces.send(last.map(|piece| (index, piece))).await;
}

/// What a client is told of an answer that cannot go on. Where what it asked for is to blame, to ask again would not help.
fn failure(problem: &Error, form: Option<&str>, rules: Option<&str>) -> ApiError {
    let of_form = form.filter(|_| is_of_form(problem));
    match of_form.or(rules.filter(|_| Rules::are_to_blame(problem))) {
        Some(param) => ApiError::caused_by(param, problem),
        None => ApiError::failed(problem),
    }
}

/// What a client is told of a refusal of what `param` holds.
pub(super) fn refusal(refused: Refused, param: &str) -> ApiError {
    match refused {
        Refused::Full { .. } => ApiError::full(refused.to_string()),
        Refused::TooMany { .. } => ApiError::parameter(param, refused.to_string()),
        Refused::Draining => ApiError::draining(),
        Refused::Ended => ApiError::failed(refused),
        Refused::TooLong { .. } => {
            let mut error = ApiError::parameter(param, refused.to_string());
            error.error.code = Some(TOO_LONG);
            error
        }
        Refused::Invalid(problem) => ApiError::caused_by(param, &problem),
    }
}
