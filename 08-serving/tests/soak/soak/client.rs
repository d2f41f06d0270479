//! How clients behave: most read what they asked for, and some do not.

use super::questions::{Dice, Question, texts};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long an answer may take. More than this, and it is stuck.
const STUCK: Duration = Duration::from_secs(120);

/// Problems that are kept: the first ones tell the most.
const MOST_PROBLEMS: usize = 20;

/// What clients have in common.
pub(super) struct Run {
    address: SocketAddr,
    pub(super) questions: Vec<Question>,
    /// Clients that are done.
    pub(super) gone: AtomicUsize,
    outcome: Mutex<Outcome>,
}

/// What became of requests.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) requests: BTreeMap<&'static str, u64>,
    /// Of answers that were read as they came.
    pub(super) seconds: Vec<f64>,
    pub(super) problems: Vec<String>,
}

impl Run {
    pub(super) fn new(address: SocketAddr, questions: Vec<Question>) -> Self {
        let (gone, outcome) = (AtomicUsize::new(0), Mutex::default());
        Run { address, questions, gone, outcome }
    }

    pub(super) fn problem(&self, problem: String) {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        if outcome.problems.len() < MOST_PROBLEMS {
            outcome.problems.push(problem);
        }
    }

    fn count(&self, what: &'static str, took: Option<Duration>) {
        let mut outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        *outcome.requests.entry(what).or_default() += 1;
        outcome.seconds.extend(took.map(|took| took.as_secs_f64()));
    }

    pub(super) fn into_outcome(self) -> Outcome {
        self.outcome.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What came of one request: how it is counted, and whether it was read as it came.
type Came = (&'static str, bool);

/// How a client reads a stream.
#[derive(Clone, Copy)]
enum Pace<'a> {
    /// As it comes.
    Steady,
    /// After the first event it does something else first.
    Stalls(&'a dyn Fn()),
}

/// One client, with connections of its own.
pub(super) struct Client<'a> {
    run: &'a Run,
    dice: Dice,
    agent: ureq::Agent,
}

impl<'a> Client<'a> {
    /// The client of a number, which behaves the same for one seed.
    pub(super) fn new(run: &'a Run, seed: u64, number: u64) -> Self {
        let config = ureq::Agent::config_builder().http_status_as_error(false);
        let agent = config.timeout_global(Some(STUCK)).build().into();
        Client { run, dice: Dice::new(!seed, number), agent }
    }

    /// Comes, asks for something in some way, and waits a little.
    pub(super) fn comes(&mut self) {
        let run = self.run;
        let question = &run.questions[self.dice.below(run.questions.len() as u64) as usize];
        match self.dice.below(100) {
            0..30 => self.asks(question),
            30..60 => self.tells(question, |client| client.stream(question, Pace::Steady)),
            60..70 => {
                let pause = Duration::from_millis(200 + self.dice.below(4_000));
                let stalls = || std::thread::sleep(pause);
                self.tells(question, |client| client.stream(question, Pace::Stalls(&stalls)));
            }
            70..80 => self.tells(question, |client| client.leaves_a_stream(question)),
            80..88 => self.tells(question, |client| client.leaves_without_an_answer(question)),
            88..95 => self.tells(question, |client| client.breaks(question)),
            _ => self.tells(question, Client::is_refused),
        }
        let pause = if self.dice.percent(10) { 1_500 } else { 100 };
        std::thread::sleep(Duration::from_millis(self.dice.below(pause)));
    }

    /// Asks, and reads the whole answer.
    pub(super) fn asks(&mut self, question: &Question) {
        self.tells(question, |client| client.whole(question));
    }

    /// Streams one of the longest answers, and does something when it has begun.
    pub(super) fn streams_one(&mut self, when_begun: &dyn Fn()) {
        let longest = self.run.questions.iter().max_by_key(|question| question.tokens);
        let question = longest.expect("there are questions");
        self.tells(question, |client| client.stream(question, Pace::Stalls(when_begun)));
    }

    /// Does something, and counts or tells what came of it.
    fn tells(&mut self, question: &Question, does: impl FnOnce(&mut Self) -> Result<Came>) {
        let began = Instant::now();
        match does(self) {
            Ok((what, is_timed)) => self.run.count(what, is_timed.then(|| began.elapsed())),
            Err(problem) => {
                let after = began.elapsed().as_secs_f64();
                let body = &question.body;
                self.run.problem(format!("{body}, after {after:.1} s: {problem:#}"));
            }
        }
    }

    fn post(&self, path: &str, body: &Value) -> Result<ureq::http::Response<ureq::Body>> {
        Ok(self.agent.post(format!("http://{}{path}", self.run.address)).send_json(body)?)
    }

    fn whole(&mut self, question: &Question) -> Result<Came> {
        let mut response = self.post(question.path, &question.body)?;
        let status = response.status().as_u16();
        let answer: Value = response.body_mut().read_json()?;
        if status == 429 {
            return Ok(("refused: too many wait", false));
        }
        ensure!(status == 200, "{status}: {answer}");
        is_right(&texts(&answer)?, question)?;
        Ok(("answered whole", true))
    }

    /// Streams; for one who stalls, large events: no socket swallows many of them.
    fn stream(&mut self, question: &Question, pace: Pace) -> Result<Came> {
        let mut body = question.body.clone();
        body["stream"] = json!(true);
        if let Pace::Stalls(_) = pace {
            match question.path {
                "/v1/completions" => body["logprobs"] = json!(20),
                _ => (body["logprobs"], body["top_logprobs"]) = (json!(true), json!(20)),
            }
        }
        let mut response = self.post(question.path, &body)?;
        let status = response.status().as_u16();
        if status == 429 {
            // Read to its end, so that the connection can be used again.
            response.body_mut().read_to_string()?;
            return Ok(("refused: too many wait", false));
        }
        ensure!(status == 200, "{status}: {}", response.body_mut().read_to_string()?);
        let (mut said, mut is_done) = (vec![String::new(); question.texts.len()], false);
        let mut stalls = match pace {
            Pace::Steady => None,
            Pace::Stalls(stalls) => Some(stalls),
        };
        for line in BufReader::new(response.body_mut().as_reader()).lines() {
            let line = line?;
            let Some(data) = line.strip_prefix("data: ") else { continue };
            if data == "[DONE]" {
                is_done = true;
                continue;
            }
            let event: Value = serde_json::from_str(data)?;
            if event.get("error").is_some() {
                // The engine holds nobody's place for ever.
                ensure!(matches!(pace, Pace::Stalls(_)), "{event}");
                return Ok(("given up while nobody read", false));
            }
            for choice in event["choices"].as_array().context("an event without choices")? {
                let index = choice["index"].as_u64().context("a choice without a number")?;
                let text = choice["text"].as_str().or(choice["delta"]["content"].as_str());
                said[index as usize] += text.unwrap_or_default();
            }
            if let Some(stalls) = stalls.take() {
                stalls();
            }
        }
        ensure!(is_done, "the stream broke off after {said:?}");
        is_right(&said, question)?;
        match pace {
            Pace::Stalls(_) => Ok(("answered in a stream that stalled", false)),
            Pace::Steady => Ok(("answered in a stream", true)),
        }
    }

    /// A connection on which a request has been sent and nothing read.
    fn sends(&self, path: &str, body: &Value) -> Result<TcpStream> {
        let mut stream = TcpStream::connect(self.run.address)?;
        stream.set_read_timeout(Some(STUCK))?;
        let body = body.to_string();
        let (head, length) = ("host: here\r\ncontent-type: application/json", body.len());
        write!(stream, "POST {path} HTTP/1.1\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}")?;
        Ok(stream)
    }

    fn leaves_a_stream(&mut self, question: &Question) -> Result<Came> {
        let mut body = question.body.clone();
        body["stream"] = json!(true);
        let mut stream = self.sends(question.path, &body)?;
        let most = self.dice.below(4_000) as usize;
        let mut read = vec![0; most];
        let mut have = 0;
        while have < most {
            match stream.read(&mut read[have..])? {
                0 => break,
                more => have += more,
            }
            // It may have ended before, and the connection waits for another request.
            if read[..have].ends_with(b"0\r\n\r\n") || read[..have].starts_with(b"HTTP/1.1 429") {
                break;
            }
        }
        Ok(("left", false))
    }

    fn leaves_without_an_answer(&mut self, question: &Question) -> Result<Came> {
        let stream = self.sends(question.path, &question.body)?;
        std::thread::sleep(Duration::from_millis(self.dice.below(400)));
        drop(stream);
        Ok(("left", false))
    }

    /// Sends something that is no request.
    fn breaks(&mut self, question: &Question) -> Result<Came> {
        let mut stream = TcpStream::connect(self.run.address)?;
        let body = question.body.to_string();
        let sent = match self.dice.below(4) {
            0 => "POST /v1/completions HTTP/1.1\r\nhost: here\r\ncontent-".to_owned(),
            1 => {
                let head =
                    "POST /v1/completions HTTP/1.1\r\nhost: here\r\ncontent-type: application/json";
                let half = &body[..body.len() / 2];
                format!("{head}\r\ncontent-length: {}\r\n\r\n{half}", body.len())
            }
            2 => "\u{16}\u{3}\u{1} this is no HTTP\r\n\r\n".to_owned(),
            _ => format!("GET / HTTP/1.1\r\nx: {}", "y".repeat(70_000)),
        };
        // It may be refused before all of it has been sent.
        let _ = stream.write_all(sent.as_bytes());
        std::thread::sleep(Duration::from_millis(self.dice.below(300)));
        Ok(("broken off", false))
    }

    /// Asks for what cannot be had.
    fn is_refused(&mut self) -> Result<Came> {
        let (body, expected) = match self.dice.below(3) {
            0 => (json!({"prompt": "a", "temperature": -1}), "temperature"),
            1 => (json!({"prompt": "a", "max_tokens": 1_000_000}), "max_tokens"),
            _ => (json!({"prompt": [1_000_000]}), "prompt"),
        };
        let mut response = self.post("/v1/completions", &body)?;
        let (status, answer) = (response.status().as_u16(), response.body_mut().read_json()?);
        let answer: Value = answer;
        match status == 400 && answer["error"]["param"] == expected {
            true => Ok(("refused: wrong", false)),
            false => bail!("{body} was answered with {status}: {answer}"),
        }
    }
}

/// Whether the texts are those that were answered alone.
fn is_right(said: &[String], question: &Question) -> Result<()> {
    let right = &question.texts;
    ensure!(said == right, "wrong answer {said:?}, alone {right:?}");
    Ok(())
}
