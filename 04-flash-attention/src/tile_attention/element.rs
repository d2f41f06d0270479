//! The type of one kept number, and how a kernel reads it.

use half::{bf16, f16};
use naive_decode::kernels::Vector;
use naive_decode::numerics::{LANES, from_f16, to_bf16, to_f16};
use naive_decode::{Element, Error, KvSize, Result};
use ndarray::ArrayView1;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// What keys and values are kept as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvType {
    /// Numbers as the model made them, in the type that it rounds them to.
    Exact(Element),
    /// A byte for each number, and a scale for each key and each value of a head.
    Int8,
}

impl From<Element> for KvType {
    fn from(element: Element) -> Self {
        KvType::Exact(element)
    }
}

impl FromStr for KvType {
    type Err = Error;

    /// "f32", "bf16", "f16" or "int8".
    fn from_str(name: &str) -> Result<Self> {
        match name {
            "f32" => Ok(Element::F32.into()),
            "bf16" => Ok(Element::Bf16.into()),
            "f16" => Ok(Element::F16.into()),
            "int8" => Ok(KvType::Int8),
            _ => Err(Error::invalid("type of keys and values", name, "f32, bf16, f16 or int8")),
        }
    }
}

impl Display for KvType {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KvType::Exact(Element::F32) => "f32",
            KvType::Exact(Element::Bf16) => "bf16",
            KvType::Exact(Element::F16) => "f16",
            KvType::Int8 => "int8",
        })
    }
}

impl KvType {
    /// What a model that fills such a cache rounds keys and values to where it makes them.
    pub fn rounded_to(self) -> Element {
        match self {
            KvType::Exact(element) => element,
            KvType::Int8 => Element::F32,
        }
    }

    /// Bytes that one token of a layer costs.
    pub fn bytes(self, size: KvSize) -> usize {
        let values_apart = usize::from(size.value_dim > 0);
        match self {
            KvType::Exact(element) => size.numbers() * element.bytes(),
            KvType::Int8 => size.numbers() + size.heads * (1 + values_apart) * size_of::<f32>(),
        }
    }
}

// ANCHOR: element
/// A number as the cache keeps it.
///
/// Kernels read it through [`TileElement::load`]: widened in the register, never beforehand in memory.
pub trait TileElement: bytemuck::Pod + Default + Send + Sync {
    /// Whether numbers are codes: a key or a value is its codes times a scale of its own.
    const SCALED: bool;
    /// The scale of a key or a value; 1 if numbers are not codes.
    fn scale(_row: ArrayView1<f32>) -> f32 {
        1.0
    }
    /// The nearest number that this type holds. Unless it is a code, nothing is lost: keys and values were
    /// rounded to the type where they were made.
    fn narrow(value: f32, scale: f32) -> Self;
    /// The first [`Vector::WIDTH`] numbers of a slice at least that long.
    ///
    /// # Safety
    /// The instruction set of `V` must be present, and the slice long enough.
    unsafe fn load<V: Vector>(from: &[Self]) -> V;
}
// ANCHOR_END: element

impl TileElement for f32 {
    const SCALED: bool = false;
    fn narrow(value: f32, _scale: f32) -> Self {
        value
    }
    #[inline(always)]
    unsafe fn load<V: Vector>(from: &[Self]) -> V {
        // SAFETY: the caller vouches for the instruction set and the length.
        unsafe { V::load(from) }
    }
}

impl TileElement for bf16 {
    const SCALED: bool = false;
    fn narrow(value: f32, _scale: f32) -> Self {
        to_bf16(value)
    }
    #[inline(always)]
    unsafe fn load<V: Vector>(from: &[Self]) -> V {
        // SAFETY: the caller vouches for the instruction set and the length.
        unsafe { V::load_bf16(from) }
    }
}

impl TileElement for f16 {
    const SCALED: bool = false;
    fn narrow(value: f32, _scale: f32) -> Self {
        to_f16(value)
    }
    #[inline(always)]
    unsafe fn load<V: Vector>(from: &[Self]) -> V {
        let mut wide = [0.0; LANES];
        for (wide, narrow) in wide.iter_mut().zip(&from[..V::WIDTH]) {
            *wide = from_f16(*narrow);
        }
        // SAFETY: the caller vouches for the instruction set; a register is no wider than LANES.
        unsafe { V::load(&wide) }
    }
}

/// Symmetric codes: the largest number of a row becomes 127.
impl TileElement for i8 {
    const SCALED: bool = true;
    fn scale(row: ArrayView1<f32>) -> f32 {
        let largest = row.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
        if largest > 0.0 { largest / 127.0 } else { 1.0 }
    }
    fn narrow(value: f32, scale: f32) -> Self {
        (value / scale).round() as i8
    }
    #[inline(always)]
    unsafe fn load<V: Vector>(from: &[Self]) -> V {
        let mut wide = [0.0; LANES];
        for (wide, &code) in wide.iter_mut().zip(&from[..V::WIDTH]) {
            *wide = f32::from(code);
        }
        // SAFETY: the caller vouches for the instruction set; a register is no wider than LANES.
        unsafe { V::load(&wide) }
    }
}
