//! The inside of a kernel: declarations, labels and instructions, in whatever braces they stand.

use std::sync::Arc;

use super::cursor::Cursor;
use super::decode::{self, Decoder};
use super::lexer::Token;
use super::module::{self, Layout};
use super::names::{Named, Names, Register};
use super::operand;
use crate::Error;
use crate::cfg;
use crate::isa::{Instruction, Op, Pred, Type};

pub(super) struct Body {
    pub(super) code: Vec<Instruction>,
    pub(super) registers: Vec<Register>,
    pub(super) predicates: Vec<String>,
    pub(super) static_shared: u64,
    pub(super) local_bytes: u64,
}

/// A branch whose label may come later.
struct Jump<'a> {
    instruction: usize,
    scope: usize,
    label: &'a str,
    error: Error,
}

/// Where the dynamic shared memory begins. The ISA leaves this open; after the static variables, aligned to 128 bytes
/// or to what the array asks for, is what drivers do.
fn dynamic_start(layout: &Layout) -> u64 {
    layout.bytes.next_multiple_of(layout.dynamic_align.max(if layout.bytes == 0 { 1 } else { 128 }))
}

/// Reads to and with the kernel's closing brace. Static shared variables of this kernel come after the module's.
pub(super) fn body<'a>(
    cursor: &mut Cursor<'a>,
    mut names: Names,
    mut shared: Layout,
    text: &Arc<str>,
) -> Result<Body, Error> {
    let (mut code, mut jumps) = (Vec::new(), Vec::<Jump<'a>>::new());
    let mut local = Layout::default();
    loop {
        cursor.begin();
        let word = match cursor.next() {
            None => {
                return Err(cursor.error("the module ends inside of a kernel: a `}` is missing"));
            }
            Some(Token::Mark(';')) => continue,
            Some(Token::Mark('{')) => {
                names.open();
                continue;
            }
            Some(Token::Mark('}')) => {
                if names.close() {
                    continue;
                }
                break;
            }
            Some(Token::Mark('@')) => {
                let negated = cursor.take_mark('!');
                let name = cursor.word("a predicate")?;
                let Some(Named::Pred(pred)) = names.register(name) else {
                    return Err(cursor.error(format!("`{name}` is not a predicate of this kernel")));
                };
                let mnemonic = cursor.word("an instruction")?;
                let dynamic = dynamic_start(&shared);
                instruction(
                    cursor,
                    &names,
                    dynamic,
                    mnemonic,
                    Some((pred, negated)),
                    &mut code,
                    &mut jumps,
                )?;
                continue;
            }
            Some(Token::Word(word)) => word,
            Some(_) => return Err(cursor.error("expected an instruction, a label or a directive")),
        };
        if cursor.take_mark(':') {
            names.label(word, code.len()).map_err(|problem| cursor.error(problem))?;
            continue;
        }
        match word {
            ".reg" => registers(cursor, &mut names)?,
            ".shared" => {
                if !code.is_empty() {
                    return Err(cursor.error(
                        "shared variables are declared before a kernel's first instruction",
                    ));
                }
                let declared = module::declaration(cursor)?;
                cursor.mark(';')?;
                module::shared(cursor, &declared, &mut shared, &mut names.symbols)?;
            }
            ".local" => {
                let declared = module::declaration(cursor)?;
                cursor.mark(';')?;
                module::local(cursor, &declared, &mut local, &mut names.symbols)?;
            }
            ".pragma" => cursor.skip_statement(),
            ".loc" | ".file" => cursor.skip_line(),
            mnemonic => {
                let dynamic = dynamic_start(&shared);
                instruction(cursor, &names, dynamic, mnemonic, None, &mut code, &mut jumps)?;
            }
        }
    }
    for jump in jumps {
        let Some(to) = names.target(jump.scope, jump.label) else { return Err(jump.error) };
        if let Op::Branch { target, .. } = &mut code[jump.instruction].op {
            *target = to;
        }
    }
    let end = text.len() as u32;
    let line = code.last().map_or(1, |last: &Instruction| last.line);
    // Whoever falls off the end has returned.
    code.push(Instruction {
        line,
        span: (end, end),
        guard: None,
        op: Op::Exit,
        writes: Box::default(),
        reads: Box::default(),
    });
    cfg::set_reconvergence(&mut code);
    let start = dynamic_start(&shared);
    Ok(Body {
        code,
        registers: names.registers,
        predicates: names.predicates,
        static_shared: if shared.dynamic_align == 0 { shared.bytes } else { start },
        local_bytes: local.bytes,
    })
}

/// `.reg .b32 %r<71>, %q;`
fn registers(cursor: &mut Cursor<'_>, names: &mut Names) -> Result<(), Error> {
    let ty = cursor.word("a type")?;
    let ty = ty.strip_prefix('.').and_then(Type::parse);
    let ty = ty.ok_or_else(|| cursor.error("registers need a type, such as `.b32`"))?;
    loop {
        let name = cursor.word("a register's name")?;
        let mut count = None;
        if cursor.take_mark('<') {
            count = Some(cursor.integer("a number of registers")?);
            cursor.mark('>')?;
        }
        names.declare(name, count, ty).map_err(|problem| cursor.error(problem))?;
        if cursor.take_mark(';') {
            return Ok(());
        }
        cursor.mark(',')?;
    }
}

fn instruction<'a>(
    cursor: &mut Cursor<'a>,
    names: &Names,
    dynamic_start: u64,
    mnemonic: &'a str,
    guard: Option<(Pred, bool)>,
    code: &mut Vec<Instruction>,
    jumps: &mut Vec<Jump<'a>>,
) -> Result<(), Error> {
    let operands = if decode::is_known(mnemonic) {
        operand::operands(cursor)?
    } else {
        return Err(cursor.error(decode::unknown(mnemonic)));
    };
    let mut decoder = Decoder::new(names, dynamic_start, &operands);
    let op = decoder.decode(mnemonic).map_err(|problem| cursor.error(problem))?;
    let (writes, reads) = (decoder.writes.into(), decoder.reads.into());
    if let Some(label) = decoder.label {
        let error = cursor.error(format!("there is no label `{label}` here"));
        jumps.push(Jump { instruction: code.len(), scope: names.scope(), label, error });
    }
    let (line, span) = cursor.place();
    code.push(Instruction { line, span, guard, op, writes, reads });
    Ok(())
}
