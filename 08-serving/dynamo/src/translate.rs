//! Dynamo's requests as the server takes them, and its answers as Dynamo takes them.

use anyhow::{Context, Result, bail, ensure};
use dynamo_llm::protocols::common::FinishReason;
use dynamo_llm::protocols::common::llm_backend::{LLMEngineOutput, PreprocessedRequest};
use serde_json::{Value, json};

/// The body of a completion that answers a request. `context`: tokens of a text, at most.
///
/// # Errors
/// If it asks for something that this worker does not do, or its prompt is too long.
pub(crate) fn asked(request: &PreprocessedRequest, context: usize) -> Result<Value> {
    let PreprocessedRequest {
        token_ids,
        stop_conditions: stop,
        sampling_options: sampling,
        output_options: output,
        ..
    } = request;
    ensure!(request.prompt_embeds.is_none(), "prompts as embeddings are not read here");
    ensure!(request.multi_modal_data.is_none(), "only text is read here");
    ensure!(
        output.logprobs.is_none(),
        "logprobs: ask the server itself, it tells no ids of likely tokens"
    );
    ensure!(
        output.prompt_logprobs.is_none(),
        "prompt_logprobs (and echo, which asks for them): ask the server itself"
    );
    ensure!(sampling.n.unwrap_or(1) == 1, "n is {}, expected 1", sampling.n.unwrap_or(1));
    ensure!(sampling.best_of.unwrap_or(1) == 1, "best_of is more than 1, expected 1");
    ensure!(!sampling.use_beam_search.unwrap_or(false), "beam search is not done here");
    // The last token of a text need not be read again, so it may be one beyond.
    let left = (context + 1).saturating_sub(token_ids.len());
    ensure!(
        left > 0,
        "the prompt has {} tokens, expected at most the {context} of a text",
        token_ids.len()
    );
    let mut body = json!({
        "prompt": **token_ids,
        "stream": true,
        "return_token_ids": true,
        // Of tokens that end a text, too: the frontend counts them, and hides those that are to be hidden.
        "include_stop_str_in_output": true,
        "max_tokens": stop.max_tokens.map_or(left, |most| most as usize),
    });
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            body[name] = value;
        }
    };
    // What is left out is as the model's own files have it.
    put("temperature", sampling.temperature.map(Value::from));
    put("top_p", sampling.top_p.map(Value::from));
    put("top_k", sampling.top_k.map(Value::from));
    put("min_p", sampling.min_p.map(Value::from));
    put("presence_penalty", sampling.presence_penalty.map(Value::from));
    put("frequency_penalty", sampling.frequency_penalty.map(Value::from));
    put("repetition_penalty", sampling.repetition_penalty.map(Value::from));
    put("seed", sampling.seed.map(Value::from));
    put("min_tokens", stop.min_tokens.map(Value::from));
    put("ignore_eos", stop.ignore_eos.map(Value::from));
    // Strings that end a text are the frontend's to find: it writes the text, and goes away when it has found one.
    let ends = [&stop.stop_token_ids, &stop.stop_token_ids_visible, &stop.stop_token_ids_hidden];
    let ends: Vec<u32> = ends.into_iter().flatten().flatten().copied().collect();
    put("stop_token_ids", (!ends.is_empty()).then(|| ends.into()));
    let salt = request.routing.as_ref().and_then(|routing| routing.cache_namespace.as_deref());
    put("cache_salt", salt.map(Value::from));
    if let Some(form) = &sampling.guided_decoding {
        ensure!(form.structural_tag.is_none(), "structural tags are not known here");
        let mut outputs = json!({});
        for (name, value) in [
            ("json", form.json.clone()),
            ("regex", form.regex.clone().map(Value::from)),
            ("choice", form.choice.clone().map(Value::from)),
            ("grammar", form.grammar.clone().map(Value::from)),
        ] {
            if let Some(value) = value {
                outputs[name] = value;
            }
        }
        put("structured_outputs", Some(outputs));
    }
    Ok(body)
}

/// What an event of the answer says.
///
/// # Errors
/// If it tells of an error, or says nothing that is known here.
pub(crate) fn told(event: &Value) -> Result<LLMEngineOutput> {
    if let Some(error) = event.get("error") {
        bail!("{}", error["message"].as_str().unwrap_or("the server says that something is wrong"));
    }
    let choice = event["choices"].get(0).context("an event of the answer has no choice")?;
    let token = |token: &Value| token.as_u64().and_then(|token| u32::try_from(token).ok());
    let tokens = choice["token_ids"].as_array().map(Vec::as_slice).unwrap_or_default();
    let tokens: Option<Vec<u32>> = tokens.iter().map(token).collect();
    let finish_reason = match choice["finish_reason"].as_str() {
        None => None,
        Some("stop") => Some(FinishReason::Stop),
        Some("length") => Some(FinishReason::Length),
        Some(other) => bail!("an answer has ended with {other}, expected stop or length"),
    };
    let token_ids = tokens.context("an event of the answer has tokens that are none")?;
    Ok(LLMEngineOutput { token_ids, finish_reason, ..Default::default() })
}
