//! What chat templates are run in, and what is done to them before.

use super::functions;
use minijinja::Environment;
use minijinja::syntax::SyntaxConfig;

/// Steps that a template may take: a conversation of a thousand turns takes a hundredth of it.
const MOST_STEPS: u64 = 10_000_000;

/// Jinja's filters that templates do not get: each fills up to a number that the template says, however
/// large, in one step. None of the templates in the tests uses them.
const UNBOUNDED: [&str; 2] = ["batch", "slice"];

/// The template without the marks that some put around answers, `{% generation %}`, so that training
/// can find them. They write nothing, and Jinja does not know them: a condition that always holds
/// takes their place, so that white space around them is trimmed as it was.
pub(super) fn without_marks(source: &str) -> String {
    let mut pieces = source.split("{%");
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (inside, after) = piece.split_at(piece.find("%}").unwrap_or(0));
        let word = inside.trim_matches(|c: char| c.is_whitespace() || matches!(c, '-' | '+'));
        text += "{%";
        match word {
            "generation" => text += &inside.replace("generation", "if true"),
            "endgeneration" => text += &inside.replace("endgeneration", "endif"),
            _ => text += inside,
        }
        text += after;
    }
    text
}

/// What templates are run in.
pub(super) fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.expect("Jinja's own delimiters do not clash"));
    environment.set_fuel(Some(MOST_STEPS));
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_function("raise_exception", functions::raise_exception);
    environment.add_function("strftime_now", functions::strftime_now);
    environment.add_filter("tojson", functions::tojson);
    environment.add_filter("indent", functions::indent);
    UNBOUNDED.iter().for_each(|filter| environment.remove_filter(filter));
    environment
}
