//! Forms that an answer may be held to.

use super::{ApiError, MOST_GRAMMAR_BYTES, gbnf};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa::openapi::schema::{AnyOfBuilder, Object, SchemaType, Type};

/// OpenAI's `response_format`.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ResponseFormat {
    /// Any text.
    Text {},
    /// A JSON object.
    JsonObject {
        /// A schema that it conforms to, as llama.cpp has it.
        #[serde(default)]
        #[schema(schema_with = optional_schema)]
        schema: Option<Value>,
    },
    /// JSON that conforms to a schema.
    JsonSchema {
        /// The schema.
        json_schema: NamedSchema,
    },
}

/// A schema and its name.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NamedSchema {
    /// What it is called; not looked at.
    #[serde(default)]
    pub name: Option<String>,
    /// What it is for; not looked at.
    #[serde(default)]
    pub description: Option<String>,
    /// The schema.
    #[schema(schema_with = any_schema)]
    pub schema: Value,
    /// Whether a schema that is not understood in all its parts is refused. Where it is not, parts that are not
    /// understood are passed over, and the answer conforms to the others.
    #[serde(default)]
    pub strict: Option<bool>,
}

/// vLLM's `structured_outputs`: one of these.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StructuredOutputs {
    /// A JSON schema, or one written as a text. Parts of it that are not understood are passed over.
    #[schema(schema_with = optional_schema_or_text)]
    pub json: Option<Value>,
    /// Any JSON object.
    pub json_object: Option<bool>,
    /// A regular expression for the whole text.
    pub regex: Option<String>,
    /// One of these texts.
    pub choice: Option<Vec<String>>,
    /// A context-free grammar in Lark's notation, or in GBNF: `root ::= …`.
    pub grammar: Option<String>,
}

/// What a JSON schema is: an object, or whether there may be anything at all.
fn any_schema() -> AnyOfBuilder {
    let one = |kind: Type| Object::with_type(SchemaType::Type(kind));
    AnyOfBuilder::new().item(one(Type::Object)).item(one(Type::Boolean))
}

fn optional_schema() -> AnyOfBuilder {
    any_schema().item(Object::with_type(SchemaType::Type(Type::Null)))
}

fn optional_schema_or_text() -> AnyOfBuilder {
    optional_schema().item(Object::with_type(SchemaType::Type(Type::String)))
}

/// A form that an answer is held to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Form {
    /// JSON of this schema, written as JSON.
    Schema {
        /// The schema.
        text: String,
        /// Whether it is refused if it is not understood in all its parts.
        is_strict: bool,
    },
    /// A regular expression.
    Regex(String),
    /// A grammar in Lark's notation.
    Lark(String),
    /// A grammar in Lark's notation with other forms in it, which it calls `@form0`, `@form1` and so on.
    Around {
        /// The grammar.
        lark: String,
        /// What it has in it.
        forms: Vec<Form>,
    },
}

impl Form {
    /// Any JSON object.
    pub fn object() -> Self {
        Form::schema(&json!({"type": "object"}), true)
    }

    /// JSON of a schema.
    pub fn schema(schema: &Value, is_strict: bool) -> Self {
        Form::Schema { text: schema.to_string(), is_strict }
    }

    /// Bytes of it as it is written.
    pub fn bytes(&self) -> usize {
        match self {
            Form::Schema { text, .. } | Form::Regex(text) | Form::Lark(text) => text.len(),
            Form::Around { lark, forms } => {
                lark.len() + forms.iter().map(Form::bytes).sum::<usize>()
            }
        }
    }

    /// Refuses what is too long to be looked at.
    ///
    /// # Errors
    /// 400.
    pub fn checked(self, param: &str) -> Result<Self, ApiError> {
        match self.bytes() <= MOST_GRAMMAR_BYTES {
            true => Ok(self),
            false => {
                let found = format!("{} bytes long", self.bytes());
                Err(ApiError::value(param, found, &format!("at most {MOST_GRAMMAR_BYTES}")))
            }
        }
    }
}

impl ResponseFormat {
    /// What it holds an answer to.
    pub fn form(&self) -> Option<Form> {
        match self {
            ResponseFormat::Text {} => None,
            ResponseFormat::JsonObject { schema: None } => Some(Form::object()),
            ResponseFormat::JsonObject { schema: Some(schema) } => {
                Some(Form::schema(schema, false))
            }
            ResponseFormat::JsonSchema { json_schema: NamedSchema { schema, strict, .. } } => {
                Some(Form::schema(schema, strict.unwrap_or(false)))
            }
        }
    }
}

impl StructuredOutputs {
    /// What they hold an answer to.
    ///
    /// # Errors
    /// 400: none of the forms, or several.
    pub fn form(&self) -> Result<Form, ApiError> {
        let schema = self.json.as_ref().map(|schema| match schema {
            // Some clients send the schema as a text.
            Value::String(text) => Form::Schema { text: text.clone(), is_strict: false },
            schema => Form::schema(schema, false),
        });
        let forms = [
            schema,
            self.json_object.unwrap_or(false).then(Form::object),
            self.regex.clone().map(Form::Regex),
            self.choice.as_ref().map(|choices| choice(choices)).transpose()?,
            self.grammar.as_deref().map(lark).transpose()?,
        ];
        let mut given = forms.into_iter().flatten();
        match (given.next(), given.next()) {
            (Some(form), None) => Ok(form),
            (none, _) => {
                let found = if none.is_none() { "without a form" } else { "of several forms" };
                let expected = "one of json, json_object, regex, choice, grammar";
                Err(ApiError::value("structured_outputs", found, expected))
            }
        }
    }
}

/// The form that an answer is held to, of those that parameters give, and the parameter that does.
///
/// # Errors
/// 400: two forms at once, or one that is too long.
pub(super) fn one_form<const N: usize>(
    forms: [(&'static str, Option<Form>); N],
) -> Result<Option<(&'static str, Form)>, ApiError> {
    let mut given = forms.into_iter().filter_map(|(param, form)| Some((param, form?)));
    match (given.next(), given.next()) {
        (Some((first, _)), Some((second, _))) => Err(ApiError::parameter(
            second,
            format!("the answer is held to {second} and to {first}, expected one of them"),
        )),
        (form, _) => form.map(|(param, form)| Ok((param, form.checked(param)?))).transpose(),
    }
}

/// A grammar in Lark's notation, or in GBNF.
fn lark(grammar: &str) -> Result<Form, ApiError> {
    if !gbnf::is_gbnf(grammar) {
        return Ok(Form::Lark(grammar.to_owned()));
    }
    let refused = |problem: String| {
        let message = format!("the grammar in GBNF is {problem}");
        ApiError::parameter("structured_outputs", message)
    };
    let checked = |length: usize, notation: &str| match length <= MOST_GRAMMAR_BYTES {
        true => Ok(()),
        false => Err(refused(format!(
            "{length} bytes long{notation}, expected at most {MOST_GRAMMAR_BYTES}"
        ))),
    };
    checked(grammar.len(), "")?;
    let lark = gbnf::to_lark(grammar).map_err(|problem| refused(format!("wrong: {problem}")))?;
    checked(lark.len(), " in Lark's notation, a character a terminal")?;
    Ok(Form::Lark(lark))
}

/// A grammar of some texts.
fn choice(choices: &[String]) -> Result<Form, ApiError> {
    if choices.is_empty() || choices.iter().any(String::is_empty) {
        let expected = "texts of at least one character";
        return Err(ApiError::value("structured_outputs", "a choice of nothing", expected));
    }
    // Lark writes texts as JSON does. As one terminal they share their beginnings; each as one of its own would be a way
    // to go on, and there may be thousands.
    let texts: Vec<String> =
        choices.iter().map(|text| Value::from(text.as_str()).to_string()).collect();
    Ok(Form::Lark(format!("start: CHOICE\nCHOICE: {}", texts.join(" | "))))
}
