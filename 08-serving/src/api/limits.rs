//! How much of anything may be asked for. What a request can make the server keep is bounded before it runs.

/// Bytes of a request's body.
pub const MOST_BODY_BYTES: usize = 4 << 20;

/// Answers to one prompt.
pub const MOST_CHOICES: usize = 128;

/// Prompts in one request.
pub const MOST_PROMPTS: usize = 128;

/// Texts to embed in one request, as OpenAI has it.
pub const MOST_INPUTS: usize = 2_048;

/// Likeliest tokens told for each token.
pub const MOST_LOGPROBS: usize = 20;

/// Tokens of a prompt whose own log-probabilities are told: each of them costs a row of logits.
pub const MOST_PROMPT_LOGPROBS: usize = 2_048;

/// Tokens of all prompts of a request whose log-probabilities are told, with each answer once (`prompt_logprobs`): with the
/// twenty likeliest each of them takes about a kilobyte.
pub const MOST_PROMPT_LOGPROBS_TOLD: usize = 16 * MOST_PROMPT_LOGPROBS;

/// Stop strings.
pub const MOST_STOPS: usize = 16;
/// Bytes of a stop string.
pub const MOST_STOP_BYTES: usize = 256;

/// Tokens that end an answer, besides the model's own.
pub const MOST_STOP_TOKENS: usize = 64;

/// Tokens whose scores are bent.
pub const MOST_BIASES: usize = 1_024;

/// Words that an answer is not to have.
pub const MOST_BAD_WORDS: usize = 1_024;
/// Bytes of such a word.
pub const MOST_BAD_WORD_BYTES: usize = 256;

/// Functions that a model is told of.
pub const MOST_TOOLS: usize = 128;

/// Notes of a client's that an answer says again (`metadata`), as OpenAI has it.
pub const MOST_NOTES: usize = 16;
/// Characters of a note's name.
pub const MOST_NOTE_NAME: usize = 64;
/// Characters of a note.
pub const MOST_NOTE: usize = 512;

/// Bytes of a schema or a grammar.
pub const MOST_GRAMMAR_BYTES: usize = 64 << 10;
