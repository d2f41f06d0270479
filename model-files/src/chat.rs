//! Chat templates: how a model wants a conversation written down.
//!
//! A template is a Jinja program that comes with the checkpoint. It gets the messages and writes
//! the text that the model was trained to continue. It is run the way Hugging Face runs it: the
//! same variables, the same functions, white space around blocks trimmed, Python's string methods
//! there. It comes from whoever made the checkpoint, so it may do nothing but write, in so many
//! steps and no more. How much it writes nothing else bounds: a text that is joined to itself by `~`
//! doubles with each step, and `format` fills up to any width. So a template can still use up memory.

mod encode;
mod environment;
mod functions;

pub use encode::{Ends, Extras};
use environment::{environment, without_marks};
use minijinja::context;
use minijinja::value::{Serde, Value};
use naive_decode::{Error, Result, Tokenizer};
use serde::{Deserialize, Serialize};

/// Longest template that is read, in bytes.
const LONGEST: usize = 1 << 20;

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks: "system", "user", "assistant".
    pub role: String,
    /// What is said.
    pub content: String,
}

impl Message {
    /// What `role` says.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Message { role: role.into(), content: content.into() }
    }
}

/// A template, with the tokens that it may mention.
#[derive(Debug, Clone)]
pub struct ChatTemplate {
    file: String,
    source: String,
    /// What goes before it where there are tools to call, if the model has a template for that.
    with_tools: Option<String>,
    beginning: Option<String>,
    end: Option<String>,
}

/// What is read of a tokenizer_config.json.
#[derive(Deserialize)]
struct TokenizerConfig {
    chat_template: Option<Templates>,
    bos_token: Option<Written>,
    eos_token: Option<Written>,
}

/// One template, or several by name.
#[derive(Deserialize)]
#[serde(untagged)]
enum Templates {
    One(String),
    Named(Vec<NamedTemplate>),
}

#[derive(Deserialize)]
struct NamedTemplate {
    name: String,
    template: String,
}

/// A special token: as it is written, or with particulars.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Written {
    Plain(String),
    Described { content: String },
}

impl Written {
    pub(crate) fn into_text(self) -> String {
        match self {
            Written::Plain(text) | Written::Described { content: text } => text,
        }
    }
}

impl ChatTemplate {
    /// A template from its source; `file` is what errors call it. `beginning` and `end` are the
    /// tokens that it knows as `bos_token` and `eos_token`.
    ///
    /// # Errors
    /// If the source is no Jinja template, or longer than any.
    pub fn new(
        file: &str,
        source: &str,
        beginning: Option<String>,
        end: Option<String>,
    ) -> Result<Self> {
        if source.len() > LONGEST {
            let problem =
                format!("chat template has {} bytes, expected at most {LONGEST}", source.len());
            return Err(Error::file(file, problem));
        }
        let source = without_marks(source);
        let with_tools = None;
        let template = ChatTemplate { file: file.to_owned(), source, with_tools, beginning, end };
        environment().template_from_str(&template.source).map_err(|e| template.refusal(&e))?;
        Ok(template)
    }

    /// The same with another template that is taken where there are tools to call.
    ///
    /// # Errors
    /// As [`ChatTemplate::new`].
    pub fn with_tools(self, source: &str) -> Result<Self> {
        let ChatTemplate { file, beginning, end, .. } = self.clone();
        let other = ChatTemplate::new(&file, source, beginning, end)?;
        Ok(ChatTemplate { with_tools: Some(other.source), ..self })
    }

    /// The template of a tokenizer_config.json, if it has one: of several, the one named "default", and "tool_use" where there are
    /// tools to call.
    /// `own_file` is the name and contents of a chat_template.jinja, which goes before it.
    ///
    /// # Errors
    /// If the contents are not those of a tokenizer_config.json, or the source is no template.
    pub fn from_tokenizer_config(
        file: &str,
        json: &[u8],
        own_file: Option<(&str, &str)>,
    ) -> Result<Option<Self>> {
        let config: TokenizerConfig =
            serde_json::from_slice(json).map_err(|e| Error::json(file, &e))?;
        let [beginning, end] =
            [config.bos_token, config.eos_token].map(|token| token.map(Written::into_text));
        if let Some((file, source)) = own_file {
            return ChatTemplate::new(file, source, beginning, end).map(Some);
        }
        let source = match config.chat_template {
            None => return Ok(None),
            Some(Templates::One(source)) => source,
            Some(Templates::Named(several)) => {
                let named = |name: &str| several.iter().find(|one| one.name == name);
                let Some(default) = named("default") else {
                    let names: Vec<&String> = several.iter().map(|one| &one.name).collect();
                    let problem =
                        format!("chat_template has {names:?}, expected one named \"default\"");
                    return Err(Error::file(file, problem));
                };
                let template = ChatTemplate::new(file, &default.template, beginning, end)?;
                return match named("tool_use") {
                    Some(other) => template.with_tools(&other.template).map(Some),
                    None => Ok(Some(template)),
                };
            }
        };
        ChatTemplate::new(file, &source, beginning, end).map(Some)
    }

    /// Writes a conversation down; with `add_generation_prompt`, up to where the assistant is to
    /// speak. The text has every special token in it, and those that messages spell out as well:
    /// [`ChatTemplate::encode`] tells them apart.
    ///
    /// A message is whatever the template knows to read; [`Message`] does for all.
    ///
    /// # Errors
    /// If the template refuses the conversation, or cannot be run.
    pub fn render<M: Serialize>(
        &self,
        messages: &[M],
        add_generation_prompt: bool,
    ) -> Result<String> {
        let messages = Value::from(Serde(messages));
        self.write(&self.source, context! { messages, tools => () }, add_generation_prompt)
    }

    /// `said` is what comes from the caller; what the template knows of its own goes before it.
    fn write(&self, source: &str, said: Value, add_generation_prompt: bool) -> Result<String> {
        let environment = environment();
        let template = environment.template_from_str(source).map_err(|e| self.refusal(&e))?;
        // Templates ask `is none` of documents, and `is defined` of tokens.
        let context = context! {
            add_generation_prompt,
            documents => (),
            bos_token => self.beginning.as_deref().map_or(Value::UNDEFINED, Value::from),
            eos_token => self.end.as_deref().map_or(Value::UNDEFINED, Value::from),
            ..said
        };
        template.render(context).map_err(|e| self.refusal(&e))
    }

    /// What is run where there are tools to call, or none.
    fn source(&self, has_tools: bool) -> &str {
        self.with_tools.as_ref().filter(|_| has_tools).unwrap_or(&self.source)
    }

    /// Whether it writes down the tools that the assistant may call.
    pub fn writes_tools(&self) -> bool {
        let environment = environment();
        let template = environment.template_from_str(self.source(true));
        template.is_ok_and(|template| template.undeclared_variables(false).contains("tools"))
    }

    /// Whether it writes down tools that the assistant has called, where there are some to call now, or none.
    pub fn writes_calls(&self, has_tools: bool) -> bool {
        self.source(has_tools).contains("tool_calls")
    }

    /// Whether it knows that its model thinks before it answers, between `<think>` and `</think>`.
    pub fn knows_thoughts(&self) -> bool {
        self.source.contains("</think>")
    }

    /// The token that ends the assistant's turn: the first special one that the template writes
    /// after an answer. None if it writes none there.
    pub fn end_of_turn(&self, tokenizer: &Tokenizer) -> Option<u32> {
        const ANSWER: &str = "answer";
        let messages = [Message::new("user", "question"), Message::new("assistant", ANSWER)];
        let text = self.render(&messages, false).ok()?;
        let (_, after) = text.rsplit_once(ANSWER)?;
        tokenizer.encode(after).ok()?.into_iter().find(|&token| tokenizer.is_silent(token))
    }

    fn refusal(&self, error: &minijinja::Error) -> Error {
        let line = error.line().map(|line| format!(" (line {line})")).unwrap_or_default();
        let reason = match error.detail() {
            Some(detail) => format!("{}: {detail}", error.kind()),
            None => error.kind().to_string(),
        };
        Error::file(&self.file, format!("chat template{line}: {reason}"))
    }
}
