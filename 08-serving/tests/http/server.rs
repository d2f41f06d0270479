//! A server in this process, and what is asked of it.

use embedded_models::TARGET;
use model_files::{ChatTemplate, ModelFiles};
use naive_decode::LoadOptions;
use serde_json::{Value, json};
use serving::engine::{Engine, EngineHandle, EngineOptions};
use serving::http::{App, InProcess, Keys};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// A server. It ends with this.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) app: Arc<App>,
    pub(crate) engine: EngineHandle,
    inner: InProcess,
    agent: ureq::Agent,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }

    /// The data of server-sent events, which must end with `[DONE]`.
    pub(crate) fn events(&self) -> Vec<Value> {
        let mut data: Vec<&str> =
            self.text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        assert_eq!(data.pop(), Some("[DONE]"), "{}", self.text);
        data.into_iter().map(|data| serde_json::from_str(data).unwrap()).collect()
    }

    /// Server-sent events, each under the name that it says it has, and nothing after them.
    pub(crate) fn named_events(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{}", self.text);
        let blocks = self.text.split("\n\n").filter(|block| !block.is_empty());
        let event = |block: &str| {
            let (name, data) = block.split_once('\n').unwrap();
            let event: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
            assert_eq!(name.strip_prefix("event: "), event["type"].as_str());
            event
        };
        blocks.map(event).collect()
    }

    /// A refusal's envelope: status, type and parameter are as expected.
    #[track_caller]
    pub(crate) fn is_refused(&self, status: u16, param: Option<&str>) -> String {
        assert_eq!(self.status, status, "{}", self.text);
        let error = &self.json()["error"];
        assert_eq!(error["param"].as_str(), param, "{}", self.text);
        for key in ["message", "type", "param", "code"] {
            assert!(error.get(key).is_some(), "{key} is missing: {}", self.text);
        }
        error["message"].as_str().unwrap().to_owned()
    }
}

impl Server {
    /// The one that most tests share.
    pub(crate) fn shared() -> &'static Server {
        static SERVER: OnceLock<Server> = OnceLock::new();
        SERVER.get_or_init(|| Server::start(|_| {}, &[]))
    }

    pub(crate) fn start(change: impl FnOnce(&mut EngineOptions), keys: &[&str]) -> Server {
        let keys = Keys::new(keys.iter().copied()).unwrap();
        Server::start_with(change, |app| app.with_keys(keys))
    }

    pub(crate) fn start_with(
        change: impl FnOnce(&mut EngineOptions),
        change_app: impl FnOnce(App) -> App,
    ) -> Server {
        Server::start_as(ModelFiles::embedded(&TARGET).unwrap(), change, change_app)
    }

    /// One whose model wants conversations written down by another template, whose messages end as the embedded one's.
    pub(crate) fn speaking(template: &str) -> Server {
        let mut files = ModelFiles::embedded(&TARGET).unwrap();
        let end = Some("<|end|>".to_owned());
        files.chat_template = Some(ChatTemplate::new("template", template, None, end).unwrap());
        Server::start_as(files, |_| {}, |app| app)
    }

    pub(crate) fn start_as(
        files: ModelFiles,
        change: impl FnOnce(&mut EngineOptions),
        change_app: impl FnOnce(App) -> App,
    ) -> Server {
        let model = Arc::new(files.load(LoadOptions::default()).unwrap());
        let mut options = EngineOptions::for_model(&model).unwrap();
        change(&mut options);
        let end_tokens = model.config.end_tokens.clone();
        let engine = EngineHandle::start(Engine::new(model, options).unwrap()).unwrap();
        let ModelFiles { tokenizer, chat_template, .. } = files;
        let app = App::new("target", tokenizer, chat_template, end_tokens, engine.clone());
        let app = Arc::new(change_app(app.unwrap()));
        let inner = InProcess::start(app.clone()).unwrap();
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(Duration::from_secs(120)))
            .build()
            .into();
        Server { address: inner.address(), app, engine, inner, agent }
    }

    /// Tells the server to end.
    pub(crate) fn end(&mut self) {
        self.inner.end();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.inner.has_ended()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.get_with(path, &[])
    }

    pub(crate) fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = self.agent.get(self.url(path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        answer(request.call().unwrap())
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_with(path, &body.to_string(), &[("content-type", "application/json")])
    }

    pub(crate) fn post_with(&self, path: &str, body: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = self.agent.post(self.url(path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        answer(request.send(body).unwrap())
    }

    pub(crate) fn complete(&self, body: Value) -> Answer {
        self.post("/v1/completions", &body)
    }

    pub(crate) fn chat(&self, body: Value) -> Answer {
        self.post("/v1/chat/completions", &body)
    }

    /// What the model reads of a conversation.
    #[track_caller]
    pub(crate) fn prompt(&self, messages: &Value, more: Value) -> String {
        let mut body = json!({"messages": messages});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = self.post("/tokenize", &body);
        assert_eq!(answer.status, 200, "{}", answer.text);
        let tokens = answer.json()["tokens"].clone();
        let text = self.post("/detokenize", &json!({"tokens": tokens})).json();
        text["prompt"].as_str().unwrap().to_owned()
    }

    /// The text of a completion that must succeed.
    #[track_caller]
    pub(crate) fn text(&self, body: Value) -> String {
        let answer = self.complete(body);
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()["choices"][0]["text"].as_str().unwrap().to_owned()
    }

    /// A connection on which a request has been sent and nothing read.
    pub(crate) fn send(&self, path: &str, body: &Value) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let body = body.to_string();
        let length = body.len();
        let head = "host: here\r\ncontent-type: application/json";
        write!(stream, "POST {path} HTTP/1.1\r\n{head}\r\ncontent-length: {length}\r\n\r\n{body}")
            .unwrap();
        stream
    }

    /// Waits until something is so; fails after a while.
    #[track_caller]
    pub(crate) fn wait_until(&self, what: &str, is_so: impl Fn(&Server) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            assert!(begun.elapsed() < Duration::from_secs(60), "{what}: {:?}", self.engine.state());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the engine has nothing to do and no request holds a block.
    #[track_caller]
    pub(crate) fn wait_until_idle(&self) {
        self.wait_until("the engine is not idle", |server| {
            let state = server.engine.state();
            state.running + state.waiting + state.stalled == 0 && state.blocks.used() == 0
        });
    }
}

fn answer(mut response: ureq::http::Response<ureq::Body>) -> Answer {
    let status = response.status().as_u16();
    Answer { status, text: response.body_mut().read_to_string().unwrap() }
}

/// Reads from a connection until so much has come.
pub(crate) fn read_some(stream: &mut TcpStream, bytes: usize) -> Vec<u8> {
    let mut read = vec![0; bytes];
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.read_exact(&mut read).unwrap();
    read
}

/// A body with more in it.
pub(crate) fn with(mut body: Value, more: Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// A question that the embedded model answers in a sentence.
pub(crate) fn question() -> Value {
    json!([{"role": "user", "content": "Who are you?"}])
}

/// A text that the embedded model goes on with.
pub(crate) const STORY: &str = "Once upon a time there was a little";
