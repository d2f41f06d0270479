//! Which arithmetic there is of which type.

use crate::isa::{AluOp, Type};

/// That PTX has the instruction for the type: what is executed is not asked again, and has no result for others.
///
/// # Errors
/// Which types it is for, or that it is not for this one.
pub(super) fn check(name: &str, op: AluOp, ty: Type) -> Result<(), String> {
    use AluOp::*;
    let half = matches!(ty, Type::F16 | Type::BF16 | Type::F16x2 | Type::BF16x2);
    let (single, double, integer) = (ty == Type::F32, ty == Type::F64, !ty.is_float());
    let is_there = match op {
        Add | Sub | Mul | Min | Max | Neg | Abs => integer || half || single || double,
        Div => integer || single || double,
        MinNan | MaxNan => half || single,
        // The other `mad` are of whole numbers.
        Fma if name == "mad" => single || double,
        Fma => half || single || double,
        FmaRelu => half,
        Sqrt | Rcp | Rsqrt | CopySign => single || double,
        Ex2 | Tanh => half || single,
        Lg2 | Sin | Cos => single,
        _ if integer => true,
        _ => return Err(format!("`{name}` needs an integer type")),
    };
    let needs_float =
        matches!(op, Fma | FmaRelu | Sqrt | Rcp | Rsqrt | CopySign | Ex2 | Tanh | Lg2 | Sin | Cos);
    match is_there {
        true => Ok(()),
        false if needs_float && integer => Err(format!("`{name}` needs a floating-point type")),
        false => Err(format!("`{name}` is not there for this type")),
    }
}
