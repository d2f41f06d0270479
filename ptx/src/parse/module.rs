//! The outside of a module: directives, variables, and the heads of kernels.

use std::collections::HashMap;
use std::sync::Arc;

use super::body;
use super::cursor::Cursor;
use super::lexer::Token;
use super::names::{Names, Symbol};
use crate::Error;
use crate::isa::{Space, Type};
use crate::kernel::{Kernel, Parameter};

/// The most bytes that one variable may have.
const MOST_BYTES: u64 = 1 << 24;

/// What a module declares outside of its kernels.
#[derive(Debug, Default)]
pub(super) struct Variables {
    symbols: HashMap<String, Symbol>,
    /// Contents of `.global` and `.const` variables.
    image: Vec<u8>,
    shared: Layout,
}

/// Where a state space's variables go: one after another, aligned.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Layout {
    pub(super) bytes: u64,
    pub(super) dynamic_align: u64,
}

impl Layout {
    fn place(&mut self, bytes: u64, align: u64) -> u64 {
        let offset = self.bytes.next_multiple_of(align);
        self.bytes = offset + bytes;
        offset
    }
}

/// A variable's declaration, after its state space.
#[derive(Debug)]
pub(super) struct Declaration<'a> {
    name: &'a str,
    align: u64,
    /// `None` for an array of open size.
    bytes: Option<u64>,
    ty: Type,
}

/// All kernels of a module's text.
pub(crate) fn module(source: &str) -> Result<Vec<Arc<Kernel>>, Error> {
    let text: Arc<str> = source.into();
    let mut cursor = Cursor::new(source)?;
    let (mut variables, mut kernels) = (Variables::default(), Vec::new());
    while let Some(token) = cursor.peek() {
        cursor.begin();
        let Token::Word(word) = token else { return Err(cursor.error("expected a directive")) };
        match word {
            ".version" | ".target" | ".address_size" | ".file" => {
                cursor.next();
                cursor.skip_line();
            }
            ".visible" | ".weak" | ".extern" | ".common" => {
                cursor.next();
            }
            ".section" => {
                cursor.next();
                cursor.word("a section's name")?;
                cursor.skip_braces();
            }
            ".shared" | ".global" | ".const" => {
                cursor.next();
                variables.declare(&mut cursor, word)?;
            }
            ".entry" => {
                cursor.next();
                kernels.push(Arc::new(kernel(&mut cursor, &variables, &text)?));
            }
            ".func" => {
                return Err(cursor.error(
                    "functions are not known to the interpreter; inline them into the kernel",
                ));
            }
            _ => {
                return Err(cursor.error(format!(
                    "`{word}` is not known outside of a kernel; known: .version .target .address_size .entry .shared .global .const"
                )));
            }
        }
    }
    Ok(kernels)
}

/// `.align 16 .b8 name[64]`, up to before `=`, `,` or `;`.
pub(super) fn declaration<'a>(cursor: &mut Cursor<'a>) -> Result<Declaration<'a>, Error> {
    let (mut align, mut ty, mut vector) = (None, None, 1);
    let name = loop {
        match cursor.word("a type or a name")? {
            ".align" => align = Some(cursor.integer("an alignment")?),
            ".v2" => vector = 2,
            ".v4" => vector = 4,
            // Of a parameter: a pointer, and what it points to.
            ".ptr" | ".shared" | ".global" | ".const" | ".local" => {}
            word if word.starts_with('.') => {
                let found = Type::parse(&word[1..]);
                ty = Some(found.ok_or_else(|| cursor.error(format!("`{word}` is not a type")))?);
            }
            name => break name,
        }
    };
    let ty = ty.ok_or_else(|| cursor.error("a variable needs a type, such as `.b32`"))?;
    let mut bytes = Some(u64::from(ty.bytes()) * vector);
    while cursor.take_mark('[') {
        if cursor.take_mark(']') {
            bytes = None;
            continue;
        }
        let count = cursor.integer("a number of elements")?;
        cursor.mark(']')?;
        bytes = bytes.and_then(|bytes| bytes.checked_mul(count));
        if bytes.is_none_or(|bytes| bytes > MOST_BYTES) {
            return Err(cursor.error(format!("a variable has at most {MOST_BYTES} bytes here")));
        }
    }
    let align = align.unwrap_or(u64::from(ty.bytes()) * vector);
    if !align.is_power_of_two() || align > 4096 {
        return Err(
            cursor.error(format!("{align} is not an alignment: a power of two up to 4096 is"))
        );
    }
    Ok(Declaration { name, align, bytes, ty })
}

impl Variables {
    fn declare(&mut self, cursor: &mut Cursor<'_>, space: &str) -> Result<(), Error> {
        let declared = declaration(cursor)?;
        if space == ".shared" {
            cursor.mark(';')?;
            return shared(cursor, &declared, &mut self.shared, &mut self.symbols);
        }
        let Some(bytes) = declared.bytes else {
            return Err(cursor.error("a variable in global or constant memory needs its size"));
        };
        let start = (self.image.len() as u64).next_multiple_of(declared.align);
        if start + bytes > MOST_BYTES {
            return Err(
                cursor.error(format!("a module's variables have at most {MOST_BYTES} bytes here"))
            );
        }
        self.image.resize((start + bytes) as usize, 0);
        let mut at = start as usize;
        if cursor.take_mark('=') {
            let mut depth = 0usize;
            loop {
                let mut negative = false;
                while cursor.take_mark('{') {
                    depth += 1;
                }
                while cursor.take_mark('-') {
                    negative ^= true;
                }
                let width = declared.ty.bytes() as usize;
                let value = match (cursor.next(), declared.ty) {
                    (Some(Token::Integer(value)), _) if negative => value.wrapping_neg(),
                    (Some(Token::Integer(value)), _) => value,
                    (Some(Token::Single(bits)), Type::F32) => {
                        u64::from(bits ^ u32::from(negative) << 31)
                    }
                    (Some(Token::Double(bits)), Type::F64) => bits ^ u64::from(negative) << 63,
                    _ => return Err(cursor.error("a variable's value is a number of its type")),
                };
                if at + width > (start + bytes) as usize {
                    return Err(cursor.error("more values than the variable has elements"));
                }
                self.image[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
                at += width;
                while depth > 0 && cursor.take_mark('}') {
                    depth -= 1;
                }
                if !cursor.take_mark(',') {
                    break;
                }
            }
        }
        cursor.mark(';')?;
        let space = if space == ".const" { Space::Const } else { Space::Global };
        let symbol = Symbol { space, offset: crate::memory::MODULE_WINDOW + start };
        self.symbols.insert(declared.name.to_string(), symbol);
        Ok(())
    }
}

/// A variable in shared memory. One of open size begins where the others end: at an offset that [`kernel`] fills in.
pub(super) fn shared(
    cursor: &Cursor<'_>,
    declared: &Declaration<'_>,
    layout: &mut Layout,
    symbols: &mut HashMap<String, Symbol>,
) -> Result<(), Error> {
    let offset = match declared.bytes {
        Some(bytes) => layout.place(bytes, declared.align),
        None => {
            layout.dynamic_align = layout.dynamic_align.max(declared.align);
            DYNAMIC
        }
    };
    if layout.bytes > MOST_BYTES {
        return Err(cursor.error(format!("at most {MOST_BYTES} bytes of shared variables")));
    }
    symbols.insert(declared.name.to_string(), Symbol { space: Space::Shared, offset });
    Ok(())
}

/// What stands for the offset of dynamic shared memory until all static variables have theirs.
pub(super) const DYNAMIC: u64 = u64::MAX;

/// A variable of each thread's own.
pub(super) fn local(
    cursor: &Cursor<'_>,
    declared: &Declaration<'_>,
    layout: &mut Layout,
    symbols: &mut HashMap<String, Symbol>,
) -> Result<(), Error> {
    let bytes = declared.bytes.ok_or_else(|| cursor.error("a local variable needs its size"))?;
    let offset = layout.place(bytes, declared.align);
    if layout.bytes > 1 << 20 {
        return Err(cursor.error("at most a megabyte of local variables"));
    }
    symbols.insert(declared.name.to_string(), Symbol { space: Space::Local, offset });
    Ok(())
}

fn kernel(
    cursor: &mut Cursor<'_>,
    variables: &Variables,
    text: &Arc<str>,
) -> Result<Kernel, Error> {
    let name = cursor.word("the kernel's name")?.to_string();
    let mut names = Names::new(variables.symbols.clone());
    let (mut layout, mut parameters) = (Layout::default(), Vec::new());
    if cursor.take_mark('(') {
        while !cursor.take_mark(')') {
            if !cursor.take_word(".param") {
                return Err(cursor.error("expected `.param`"));
            }
            let declared = declaration(cursor)?;
            let Some(bytes) = declared.bytes else {
                return Err(cursor.error("a parameter needs its size"));
            };
            let offset = layout.place(bytes, declared.align);
            if layout.bytes > 1 << 16 {
                return Err(cursor.error("at most 64 KiB of parameters"));
            }
            let symbol = Symbol { space: Space::Param, offset };
            names.symbols.insert(declared.name.to_string(), symbol);
            let parameter = Parameter {
                name: declared.name.into(),
                offset: offset as u32,
                bytes: bytes as u32,
            };
            parameters.push(parameter);
            cursor.take_mark(',');
        }
    }
    let (mut most_threads, mut exact_threads) = (None, None);
    while !cursor.take_mark('{') {
        match cursor.word("`{` or a directive such as `.maxntid`")? {
            ".maxntid" => most_threads = Some(dimensions(cursor)?),
            ".reqntid" => exact_threads = Some(dimensions(cursor)?),
            ".minnctapersm" | ".maxnctapersm" | ".maxnreg" => {
                cursor.integer("a number")?;
            }
            ".pragma" => cursor.skip_statement(),
            ".noreturn" => {}
            word => {
                return Err(
                    cursor.error(format!("the interpreter does not know `{word}` of a kernel"))
                );
            }
        }
    }
    let body = body::body(cursor, names, variables.shared, text)?;
    Ok(Kernel {
        name,
        text: text.clone(),
        parameters,
        parameter_bytes: layout.bytes as u32,
        image: variables.image.clone(),
        most_threads,
        exact_threads,
        code: body.code,
        registers: body.registers,
        predicates: body.predicates,
        static_shared: body.static_shared as u32,
        local_bytes: body.local_bytes as u32,
    })
}

/// `256, 1, 1`, of which the later ones may be missing.
fn dimensions(cursor: &mut Cursor<'_>) -> Result<[u32; 3], Error> {
    let mut found = [1; 3];
    for (axis, slot) in found.iter_mut().enumerate() {
        if axis > 0 && !cursor.take_mark(',') {
            break;
        }
        let value = cursor.integer("a number of threads")?;
        *slot = u32::try_from(value).map_err(|_| cursor.error("too many threads"))?;
    }
    Ok(found)
}
