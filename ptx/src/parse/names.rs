//! What names stand for: registers by scope, and variables by state space.

use std::collections::HashMap;

use crate::isa::{Pred, Reg, Space, Type};

/// The most registers that a kernel may declare; a wrong number in the text must not take all memory.
const MOST_REGISTERS: usize = 1 << 18;

/// A variable's place in its state space.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Symbol {
    pub(crate) space: Space,
    pub(crate) offset: u64,
}

/// A register as its kernel declares it.
#[derive(Debug, Clone)]
pub(crate) struct Register {
    pub(crate) name: String,
    pub(crate) bytes: u32,
}

/// What a register's name leads to.
#[derive(Debug, Clone, Copy)]
pub(super) enum Named {
    Reg(Reg),
    Pred(Pred),
}

#[derive(Debug, Clone, Copy)]
struct Declared {
    first: u32,
    /// `None` for one register, else as many as `%r<count>` says.
    count: Option<u32>,
    is_predicate: bool,
}

/// One pair of braces.
#[derive(Debug)]
struct Scope {
    parent: Option<usize>,
    registers: HashMap<String, Declared>,
    labels: HashMap<String, usize>,
}

/// All names of one kernel.
#[derive(Debug)]
pub(super) struct Names {
    scopes: Vec<Scope>,
    current: usize,
    pub(super) registers: Vec<Register>,
    pub(super) predicates: Vec<String>,
    pub(super) symbols: HashMap<String, Symbol>,
}

impl Names {
    /// `symbols` are those of the module.
    pub(super) fn new(symbols: HashMap<String, Symbol>) -> Self {
        let outermost = Scope { parent: None, registers: HashMap::new(), labels: HashMap::new() };
        Self { scopes: vec![outermost], current: 0, registers: vec![], predicates: vec![], symbols }
    }

    pub(super) fn open(&mut self) {
        let parent = Some(self.current);
        self.current = self.scopes.len();
        self.scopes.push(Scope { parent, registers: HashMap::new(), labels: HashMap::new() });
    }

    /// False if the outermost scope is closed: the kernel's end.
    pub(super) fn close(&mut self) -> bool {
        match self.scopes[self.current].parent {
            Some(parent) => {
                self.current = parent;
                true
            }
            None => false,
        }
    }

    pub(super) fn scope(&self) -> usize {
        self.current
    }

    pub(super) fn declare(
        &mut self,
        name: &str,
        count: Option<u64>,
        ty: Type,
    ) -> Result<(), String> {
        let is_predicate = ty == Type::Pred;
        let many = usize::try_from(count.unwrap_or(1)).unwrap_or(usize::MAX);
        if many > MOST_REGISTERS - self.registers.len().min(MOST_REGISTERS)
            || many > MOST_REGISTERS - self.predicates.len().min(MOST_REGISTERS)
        {
            return Err(format!("more registers than the {MOST_REGISTERS} that a kernel may have"));
        }
        let first = if is_predicate { self.predicates.len() } else { self.registers.len() } as u32;
        for index in 0..many {
            let name = count.map_or_else(|| name.to_string(), |_| format!("{name}{index}"));
            if is_predicate {
                self.predicates.push(name);
            } else {
                self.registers.push(Register { name, bytes: ty.bytes() });
            }
        }
        let count = count.map(|_| many as u32);
        let declared = Declared { first, count, is_predicate };
        self.scopes[self.current].registers.insert(name.to_string(), declared);
        Ok(())
    }

    /// The register of this name, from the innermost scope outwards.
    pub(super) fn register(&self, name: &str) -> Option<Named> {
        let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        let (prefix, number) = name.split_at(name.len() - digits);
        let mut scope = Some(self.current);
        while let Some(at) = scope {
            let registers = &self.scopes[at].registers;
            let single =
                registers.get(name).filter(|found| found.count.is_none()).map(|found| (found, 0));
            let ranged = || {
                let (found, index) = (registers.get(prefix)?, number.parse::<u32>().ok()?);
                (index < found.count?).then_some((found, index))
            };
            if let Some((found, index)) = single.or_else(ranged) {
                let index = found.first + index;
                return Some(if found.is_predicate {
                    Named::Pred(Pred(index))
                } else {
                    Named::Reg(Reg(index))
                });
            }
            scope = self.scopes[at].parent;
        }
        None
    }

    pub(super) fn label(&mut self, name: &str, at: usize) -> Result<(), String> {
        match self.scopes[self.current].labels.insert(name.to_string(), at) {
            None => Ok(()),
            Some(_) => Err(format!("the label `{name}` is there twice")),
        }
    }

    /// Where a label used in `scope` leads to.
    pub(super) fn target(&self, scope: usize, name: &str) -> Option<usize> {
        let mut scope = Some(scope);
        while let Some(at) = scope {
            if let Some(&target) = self.scopes[at].labels.get(name) {
                return Some(target);
            }
            scope = self.scopes[at].parent;
        }
        None
    }
}
