//! From a body to a request.

use super::ApiError;
use axum::http::StatusCode;
use naive_decode::in_terms_of_json;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// Parameters of OpenAI's and vLLM's that are not known here, and what they are where they change nothing, as JSON: its clients write them
/// with every request.
const NEUTRAL: [(&str, &str); 11] = [
    ("add_special_tokens", "true"),
    ("detokenize", "true"),
    ("documents", "[]"),
    ("early_stopping", "false"),
    ("echo", "false"),
    ("include_reasoning", "true"),
    ("length_penalty", "1.0"),
    ("return_tokens_as_token_ids", "false"),
    ("spaces_between_special_tokens", "true"),
    ("use_beam_search", "false"),
    ("verbosity", "\"medium\""),
];

/// What other servers, or vLLM before version 0.12, call what has another name here.
const ELSEWHERE: [(&str, &str); 8] = [
    ("guided_json", "structured_outputs: {\"json\": …}"),
    ("guided_regex", "structured_outputs: {\"regex\": …}"),
    ("guided_choice", "structured_outputs: {\"choice\": …}"),
    ("guided_grammar", "structured_outputs: {\"grammar\": …}"),
    ("grammar", "structured_outputs: {\"grammar\": …}"),
    ("json_schema", "response_format: {\"type\": \"json_schema\", …}"),
    ("n_predict", "max_tokens"),
    ("repeat_penalty", "repetition_penalty"),
];

/// Whether a parameter that nobody knows asks for nothing: nor does one that is null, as clients write whatever nobody set so.
fn asks_for_nothing(name: &str, value: &Value) -> bool {
    let is_neutral = |neutral: &str| match (value.as_f64(), neutral.parse::<f64>()) {
        (Some(number), Ok(neutral)) => number == neutral,
        _ => serde_json::from_str(neutral).is_ok_and(|neutral: Value| *value == neutral),
    };
    let mut neutral = NEUTRAL.iter().filter(|(known, _)| *known == name);
    value.is_null() || neutral.any(|(_, neutral)| is_neutral(neutral))
}

/// What a body asks for. `unknown` gives the fields that the request has no parameter for: a misspelt
/// parameter that is passed over in silence is worse than one that is refused.
///
/// All of a request's fields must be optional to it, so that one that is wrong can be found by trying them
/// one at a time.
///
/// # Errors
/// 400: no JSON object, a parameter that nobody knows, or one of the wrong kind; it is named.
pub fn read<T: DeserializeOwned>(
    body: &[u8],
    unknown: fn(&T) -> &Map<String, Value>,
) -> Result<T, ApiError> {
    let refused = |message| ApiError::refused(StatusCode::BAD_REQUEST, message);
    let value: Value = serde_json::from_slice(body)
        .map_err(|problem| refused(format!("body is not JSON: {problem}")))?;
    let Value::Object(fields) = value else {
        return Err(refused("body is not a JSON object".to_owned()));
    };
    let whole = serde_json::from_value::<T>(Value::Object(fields.clone()));
    let request = whole.map_err(|problem| {
        let one = |(name, value): (String, Value)| {
            let alone = Value::Object([(name.clone(), value)].into_iter().collect());
            let problem = serde_json::from_value::<T>(alone).err()?;
            Some(ApiError::parameter(&name, format!("{name}: {}", in_terms_of_json(&problem))))
        };
        fields.into_iter().find_map(one).unwrap_or_else(|| refused(in_terms_of_json(&problem)))
    })?;
    match unknown(&request).iter().find(|(name, value)| !asks_for_nothing(name, value)) {
        None => Ok(request),
        Some((name, _)) => {
            let here = ELSEWHERE.iter().find(|(known, _)| known == name);
            let here = here.map(|(_, here)| format!(", expected `{here}`")).unwrap_or_default();
            Err(ApiError::parameter(name, format!("no parameter is called `{name}` here{here}")))
        }
    }
}

/// A parameter that is a list of objects, each as [`without_nulls`] has it.
///
/// # Errors
/// If one is none of its kind.
pub(super) fn each_without_nulls<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    from: D,
) -> Result<Option<Vec<T>>, D::Error> {
    let Some(list) = Option::<Vec<Map<String, Value>>>::deserialize(from)? else { return Ok(None) };
    list.into_iter().map(said).collect::<Result<_, _>>().map(Some)
}

/// What is said in an object.
fn said<T: DeserializeOwned, E: serde::de::Error>(fields: Map<String, Value>) -> Result<T, E> {
    let said = fields.into_iter().filter(|(_, value)| !value.is_null()).collect();
    serde_json::from_value(Value::Object(said)).map_err(E::custom)
}

/// As [`without_nulls`], of an object that has to be there.
///
/// # Errors
/// If it is none of its kind.
pub(super) fn whole_without_nulls<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    from: D,
) -> Result<T, D::Error> {
    said(Map::deserialize(from)?)
}

/// A parameter that is an object, without those of its fields that are null: they ask for nothing either.
///
/// # Errors
/// If it is none of its kind.
pub(super) fn without_nulls<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    from: D,
) -> Result<Option<T>, D::Error> {
    let Some(fields) = Option::<Map<String, Value>>::deserialize(from)? else { return Ok(None) };
    said(fields).map(Some)
}
