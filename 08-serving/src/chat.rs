//! `ladder chat`: a conversation in the terminal, with an engine in the same program.

use crate::api::{Generation, fresh_seed};
use crate::engine::{EngineHandle, EngineRequest, Refused};
use crate::say::{self, say, tell};
use crate::served::{EngineArgs, Exchanging, Served};
use crate::sizes::count;
use crate::text::{Answer, Piece, Style};
use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Args;
use model_files::{ChatTemplate, Message, SamplingDefaults};
use naive_decode::{Sampling, Tokenizer};
use std::io::{BufRead, IsTerminal, stdin};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::ctrl_c;
use tokio::sync::watch;
use tokio::time::timeout;

/// Whom to talk to, and how.
#[derive(Debug, Clone, Args)]
pub struct ChatArgs {
    #[command(flatten)]
    engine: EngineArgs,
    /// What the model is told before the conversation
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Most tokens of an answer; as many as fit if not given
    #[arg(long, value_parser = count)]
    tokens: Option<NonZeroUsize>,
    /// 0 always takes the likeliest token; higher is more varied. What the model's own files say if not given, and 0 if they
    /// say nothing
    #[arg(long)]
    temperature: Option<f32>,
    /// Seed of the random draws; another one each time if not given
    #[arg(long)]
    seed: Option<u64>,
}

/// How long keys and values may take to get to their file at the end.
const PUTTING_AWAY: Duration = Duration::from_secs(10);

/// Whether an answer is under way that ctrl-c is to end.
type Answering = Arc<watch::Sender<bool>>;

/// Says so for as long as it lives.
struct UnderWay<'a>(&'a Answering);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.send_replace(false);
    }
}

/// A conversation under way.
struct Conversation<'a> {
    served: &'a Served,
    template: &'a ChatTemplate,
    messages: Vec<Message>,
    sampling: Sampling,
    most_tokens: Option<usize>,
    answering: Answering,
    runtime: Runtime,
}

/// Reads lines, answers each. `/new` begins again; end of input or `/quit` ends. In a terminal, ctrl-c ends the answer, and
/// between answers the program.
///
/// # Errors
/// Whatever is wrong with the model, a model without a chat template, or parameters out of range. An engine that is gone, and
/// standard output that cannot be written. Once all lines are read, and not in a terminal: lines without an answer.
pub fn chat(args: &ChatArgs) -> Result<()> {
    // Nobody waits for a model to hear of it.
    Sampling { temperature: args.temperature.unwrap_or(0.0), ..Sampling::default() }.validate()?;
    let served = args.engine.start(Exchanging::default())?;
    let of_model = served.sampling.as_ref().map_err(|malformed| anyhow!("{malformed}"))?;
    let sampling = args.sampling(of_model, served.engine.limits().vocabulary)?;
    let Some(template) = &served.template else {
        bail!("{} has no chat template; `ladder generate` continues texts", served.name);
    };
    let system = args.system.iter().map(|text| Message::new("system", text));
    let beginning: Vec<Message> = system.collect();
    let mut conversation = Conversation {
        served: &served,
        template,
        messages: beginning.clone(),
        sampling,
        most_tokens: args.tokens.map(NonZeroUsize::get),
        answering: Answering::default(),
        runtime: Builder::new_current_thread().enable_time().build()?,
    };
    let is_watched = stdin().is_terminal();
    if is_watched {
        end_answers_on_ctrl_c(conversation.answering.clone(), served.engine.clone())?;
        say!("{} listens; /new begins again, ctrl-c ends an answer, /quit ends\n", served.name)?;
    }
    let ended = conversation.lead(&beginning, is_watched);
    conversation.runtime.block_on(put_away(&served.engine));
    ended
}

impl ChatArgs {
    /// What was asked for, and else what the model's own files say.
    fn sampling(&self, of_model: &SamplingDefaults, vocabulary: usize) -> Result<Sampling> {
        let temperature = self.temperature.or(of_model.temperature).unwrap_or(0.0);
        let asked = Generation { temperature: Some(temperature), ..Generation::default() };
        let sampling = asked.sampling(of_model, vocabulary);
        let sampling = sampling.map_err(|refused| anyhow!("{}", refused.error.message))?;
        Ok(Sampling { seed: self.seed.unwrap_or_else(fresh_seed), ..sampling })
    }
}

/// Waits until keys and values are in their file, if they go to one: the process takes the engine's thread with it.
async fn put_away(engine: &EngineHandle) {
    engine.drain();
    if timeout(PUTTING_AWAY, engine.drained()).await.is_err() {
        let seconds = PUTTING_AWAY.as_secs();
        tell!("some keys and values are not in their file: there was no time after {seconds} s");
    }
}

/// Ctrl-c ends the answer that is being written; if none is, the program, and then a second one at once.
fn end_answers_on_ctrl_c(answering: Answering, engine: EngineHandle) -> Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("ctrl-c".into()).spawn(move || {
        runtime.block_on(async {
            while ctrl_c().await.is_ok() {
                if !answering.send_replace(false) {
                    tokio::select! {
                        () = put_away(&engine) => {}
                        _ = ctrl_c() => {}
                    }
                    std::process::exit(130);
                }
            }
        });
    })?;
    Ok(())
}

impl Conversation<'_> {
    /// Answers line after line.
    fn lead(&mut self, beginning: &[Message], is_watched: bool) -> Result<()> {
        let mut lines = stdin().lock().split(b'\n');
        let mut unanswered = 0;
        loop {
            if is_watched {
                say::text(format_args!("> "))?;
            }
            let Some(line) = lines.next().transpose()? else { break };
            let Ok(line) = String::from_utf8(line) else {
                tell!("that line is not UTF-8; say it again");
                unanswered += 1;
                continue;
            };
            match line.trim() {
                "" => {}
                "/quit" => break,
                "/new" => self.messages = beginning.to_vec(),
                said => {
                    self.messages.push(Message::new("user", said));
                    if let Err(problem) = self.answer()? {
                        self.messages.pop();
                        tell!("{problem:#}; /new begins again");
                        unanswered += 1;
                    }
                }
            }
        }
        // Who watches has seen it, and said something else.
        ensure!(is_watched || unanswered == 0, "lines without an answer: {unanswered}, see above");
        Ok(())
    }

    /// Prints an answer as it comes, and remembers it; or says why this line has none.
    ///
    /// # Errors
    /// If no other line would have one.
    fn answer(&mut self) -> Result<Result<()>> {
        let Served { tokenizer, engine, end_tokens, .. } = self.served;
        let prompt = match self.template.encode(tokenizer, &self.messages, true) {
            Ok(prompt) => prompt,
            Err(problem) => return Ok(Err(problem.into())),
        };
        let room = (engine.limits().context + 1).saturating_sub(prompt.len());
        let tokens = self.most_tokens.unwrap_or(room).min(room).max(1);
        let request = EngineRequest {
            sampling: self.sampling.clone(),
            end_tokens: end_tokens.clone(),
            ..EngineRequest::new(prompt.clone(), tokens)
        };
        let said = said(tokenizer, engine, end_tokens, &self.answering, request);
        let text = self.runtime.block_on(said)?;
        Ok(text.map(|text| self.messages.push(Message::new("assistant", text))))
    }
}

/// Runs a request and prints its text as it comes, until it is done or nobody wants it any more. Its text, or why it has none.
///
/// # Errors
/// If the engine is gone, or standard output cannot be written.
async fn said(
    tokenizer: &Tokenizer,
    engine: &EngineHandle,
    end_tokens: &[u32],
    answering: &Answering,
    request: EngineRequest,
) -> Result<Result<String>> {
    let style = Style::default();
    let mut answer = Answer::new(tokenizer, &request.prompt, &style, end_tokens, &[]);
    let mut ticket = match engine.submit(request) {
        Ok(ticket) => ticket,
        Err(Refused::TooLong { limit, .. }) => {
            return Ok(Err(anyhow!("the conversation is longer than the {limit} tokens that fit")));
        }
        Err(gone @ Refused::Ended) => return Err(gone.into()),
        Err(other) => return Ok(Err(other.into())),
    };
    let mut watched = answering.subscribe();
    answering.send_replace(true);
    let _under_way = UnderWay(answering);
    let mut whole = String::new();
    loop {
        // No event comes while the prompt is read, or another's.
        let event = tokio::select! {
            biased;
            _ = watched.wait_for(|is_wanted| !is_wanted) => break,
            event = ticket.recv() => event.context("the engine is gone")?,
        };
        let (written, is_last) = match answer.take(event) {
            Ok(Some(Piece::Text(written))) => (written, false),
            Ok(Some(Piece::End(ending))) => (ending.last, true),
            Ok(Some(Piece::Prompt(_)) | None) => continue,
            Err(problem) => return Ok(Err(problem.into())),
        };
        say::text(format_args!("{}", written.text))?;
        whole += &written.text;
        if is_last {
            break;
        }
    }
    say!("\n")?;
    Ok(Ok(whole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        engine: EngineArgs,
    }

    fn served(more: &[&str]) -> Served {
        let arguments = [&["chat", "--device", "cpu"], more].concat();
        Cli::parse_from(arguments).engine.start(Exchanging::default()).unwrap()
    }

    /// An answer of 400 tokens that is ended as ctrl-c does, as soon as there is one to end.
    fn ended_at_once(served: &Served) -> String {
        let Served { tokenizer, engine, .. } = served;
        let prompt = tokenizer.encode("Once upon a time").unwrap();
        let answering = Answering::default();
        let watched = answering.clone();
        let stopper = std::thread::spawn(move || while !watched.send_replace(false) {});
        let request = EngineRequest::new(prompt, 400);
        let runtime = Builder::new_current_thread().build().unwrap();
        let text = runtime.block_on(said(tokenizer, engine, &[], &answering, request));
        stopper.join().unwrap();
        assert!(!*answering.borrow());
        text.unwrap().unwrap()
    }

    #[test]
    fn an_answer_ends_where_it_is_when_nobody_wants_it_any_more() {
        let served = served(&[]);
        let tokens = served.tokenizer.encode(&ended_at_once(&served)).unwrap().len();
        assert!(tokens < 400, "{tokens} tokens");
    }

    #[test]
    fn an_answer_ends_before_its_first_word_too() {
        let served = served(&["--max-num-seqs", "1"]);
        let prompt = served.tokenizer.encode("Once upon a time").unwrap();
        // It has the only place. Nobody reads it.
        let before = served.engine.submit(EngineRequest::new(prompt, 400)).unwrap();
        assert_eq!(ended_at_once(&served), "");
        drop(before);
    }
}
