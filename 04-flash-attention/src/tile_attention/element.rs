//! The type of one kept number, and where in a tile it lies.

use super::codes::InDigits;
use super::ways::{InFloats, InPairs, Way};
use crate::kernels::activations::largest_bits;
use crate::kernels::digits::rows::{Code, MOST_SUMMED};
use crate::kernels::lanes::SMALLEST;
use bytemuck::{Pod, Zeroable};
use half::{bf16, f16};
use naive_decode::kernels::Vector;
use naive_decode::numerics::{to_bf16, to_f16, to_int};
use naive_decode::{Element, Error, KvSize, Result};
use ndarray::ArrayView1;
use std::fmt::{self, Display, Formatter};
use std::str::FromStr;

/// What keys and values are kept as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KvType {
    /// Numbers as the model made them, in the type that it rounds them to.
    Exact(Element),
    /// BF16 as the fast mode of attention meets it, which rounds queries and weights to BF16, too.
    Bf16Fast,
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

    /// "f32", "bf16", "bf16-fast", "f16" or "int8".
    fn from_str(name: &str) -> Result<Self> {
        match name {
            "f32" => Ok(Element::F32.into()),
            "bf16" => Ok(Element::Bf16.into()),
            "bf16-fast" => Ok(KvType::Bf16Fast),
            "f16" => Ok(Element::F16.into()),
            "int8" => Ok(KvType::Int8),
            _ => {
                let expected = "f32, bf16, bf16-fast, f16 or int8";
                Err(Error::invalid("type of keys and values", name, expected))
            }
        }
    }
}

impl Display for KvType {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KvType::Exact(Element::F32) => "f32",
            KvType::Exact(Element::Bf16) => "bf16",
            KvType::Exact(Element::F16) => "f16",
            KvType::Bf16Fast => "bf16-fast",
            KvType::Int8 => "int8",
        })
    }
}

impl KvType {
    /// What a model that fills such a cache rounds keys and values to where it makes them.
    pub fn rounded_to(self) -> Element {
        match self {
            KvType::Exact(element) => element,
            KvType::Bf16Fast => Element::Bf16,
            KvType::Int8 => Element::F32,
        }
    }

    /// Bytes of one number.
    pub fn number_bytes(self) -> usize {
        match self {
            KvType::Exact(element) => element.bytes(),
            KvType::Bf16Fast => size_of::<bf16>(),
            KvType::Int8 => 1,
        }
    }

    /// Bytes that one token of a layer costs.
    pub fn bytes(self, size: KvSize) -> usize {
        let scales = match self {
            KvType::Int8 => size.heads * (1 + usize::from(size.value_dim > 0)),
            _ => 0,
        };
        size.numbers() * self.number_bytes() + scales * size_of::<f32>()
    }

    /// Whether numbers that a model rounds to `made` can be kept so.
    ///
    /// # Errors
    /// If it is F16 and the model does not round to that: not every number has one that is near. BF16 has one for nearly all:
    /// those beyond its largest are kept as that.
    pub fn check_made(self, made: Element) -> Result<()> {
        if self == KvType::Exact(Element::F16) && made != Element::F16 {
            let expected = format!("{}, or another that holds its range", KvType::Exact(made));
            return Err(Error::invalid("type of keys and values for this model", "f16", expected));
        }
        Ok(())
    }

    /// Whether a layer's keys and values can be kept so.
    ///
    /// # Errors
    /// If keys are no whole number of fours, and this type's instructions take four of their numbers together; or if they are
    /// so wide that whole numbers of 32 bits do not hold sums of their products.
    pub fn check(self, size: KvSize) -> Result<()> {
        let most = match self {
            KvType::Exact(_) => return Ok(()),
            KvType::Bf16Fast => usize::MAX,
            KvType::Int8 => MOST_SUMMED,
        };
        if size.key_dim.is_multiple_of(4) && size.key_dim <= most {
            return Ok(());
        }
        let what = format!("width of a head kept as {self}");
        let expected = match most {
            usize::MAX => "a multiple of 4".to_string(),
            most => format!("a multiple of 4, at most {most}"),
        };
        Err(Error::invalid(&what, size.key_dim, expected))
    }
}

/// A number as the cache keeps it.
pub trait TileElement: Pod + Default + Send + Sync {
    /// How kernels meet it.
    type Way: Way<Self>;
    /// Whether numbers are codes: a key or a value is its codes times a scale of its own.
    const SCALED: bool = false;
    /// Neighbouring numbers of a key, or of a column of values, that lie together, as instructions take them: two of
    /// BF16, four bytes.
    const TOGETHER: usize = 1;
    /// The scale of a key or a value; 1 if numbers are not codes.
    fn scale(_row: &[f32]) -> f32 {
        1.0
    }
    /// The nearest finite number that this type holds. Unless it is a code, nothing is lost where the model rounded keys and
    /// values to the type as it made them.
    fn narrow(value: f32, scale: f32) -> Self;

    /// Where a tile of `lanes` keys has number `d` of the one in `lane`.
    #[inline(always)]
    fn key_at(lanes: usize, lane: usize, d: usize) -> usize {
        (d / Self::TOGETHER * lanes + lane) * Self::TOGETHER + d % Self::TOGETHER
    }

    /// Where values of `width` numbers have number `column` of the one at `place`; a tile is of `lanes` places.
    #[inline(always)]
    fn value_at(lanes: usize, width: usize, place: usize, column: usize) -> usize {
        let together = Self::TOGETHER.min(lanes);
        (place / together * width + column) * together + place % together
    }
}

/// Numbers that are narrowed in registers before they go to their places, which lie apart.
const NARROWED: usize = 64;

/// Calls `put` with some numbers of a row as the cache keeps them, and where in the row they begin, until all were there;
/// gives the row's scale.
#[inline(always)]
fn narrowed<E: TileElement>(row: ArrayView1<f32>, mut put: impl FnMut(usize, &[E])) -> f32 {
    let copy; // of a row whose numbers lie apart
    let numbers = match row.as_slice() {
        Some(numbers) => numbers,
        None => {
            copy = row.to_vec();
            &copy
        }
    };
    let scale = E::scale(numbers);
    let mut room = [E::default(); NARROWED];
    for (part, numbers) in numbers.chunks(NARROWED).enumerate() {
        let room = &mut room[..numbers.len()];
        room.iter_mut().zip(numbers).for_each(|(to, &number)| *to = E::narrow(number, scale));
        put(part * NARROWED, room);
    }
    scale
}

/// Writes a key `[D]` to its lane of a tile of `lanes` keys, and gives its scale.
pub fn put_key<E: TileElement>(
    tile: &mut [E],
    lanes: usize,
    lane: usize,
    key: ArrayView1<f32>,
) -> f32 {
    narrowed(key, |at, numbers: &[E]| {
        // Whole handfuls: `KvType::check` refuses other widths.
        for (d, numbers) in (at..).step_by(E::TOGETHER).zip(numbers.chunks_exact(E::TOGETHER)) {
            tile[E::key_at(lanes, lane, d)..][..E::TOGETHER].copy_from_slice(numbers);
        }
    })
}

/// Writes a value `[D_v]` to its place among values of `width` numbers, of which tiles have `lanes`, and gives its scale.
pub fn put_value<E: TileElement>(
    values: &mut [E],
    lanes: usize,
    width: usize,
    place: usize,
    value: ArrayView1<f32>,
) -> f32 {
    let together = E::TOGETHER.min(lanes);
    let own = &mut values[place / together * together * width..][..together * width];
    narrowed(value, |at, numbers: &[E]| {
        let columns = own[at * together..].chunks_exact_mut(together);
        columns.zip(numbers).for_each(|(to, &number)| to[place % together] = number);
    })
}

// ANCHOR: element
/// A number that kernels widen to a float in the register, never beforehand in memory.
pub trait Widened: TileElement {
    /// The first [`Vector::WIDTH`] numbers of a slice at least that long.
    ///
    /// # Safety
    /// The instruction set of `V` must be present, and the slice long enough.
    unsafe fn load<V: Vector>(from: &[Self]) -> V;
}
// ANCHOR_END: element

/// A BF16 number that lies beside its neighbour, which is multiplied with it.
#[derive(Debug, Clone, Copy, Default)]
#[repr(transparent)]
pub struct Paired(bf16);

// SAFETY: it is what a `bf16` is, all of whose bits mean something.
unsafe impl Zeroable for Paired {}
// SAFETY: as above.
unsafe impl Pod for Paired {}

impl TileElement for Paired {
    type Way = InPairs;
    const TOGETHER: usize = 2;
    #[inline]
    fn narrow(value: f32, _scale: f32) -> Self {
        Paired(finite_bf16(value))
    }
}

impl TileElement for f32 {
    type Way = InFloats;
    #[inline]
    fn narrow(value: f32, _scale: f32) -> Self {
        value
    }
}

impl Widened for f32 {
    #[inline(always)]
    unsafe fn load<V: Vector>(from: &[Self]) -> V {
        // SAFETY: the caller vouches for the instruction set and the length.
        unsafe { V::load(from) }
    }
}

impl TileElement for bf16 {
    type Way = InFloats;
    #[inline]
    fn narrow(value: f32, _scale: f32) -> Self {
        finite_bf16(value)
    }
}

/// The nearest finite number of BF16. Beyond its largest one, floats would round to infinity, and infinity times the weight
/// zero of a place that is not seen is no number.
#[inline(always)]
fn finite_bf16(value: f32) -> bf16 {
    to_bf16(value.clamp(f32::from(bf16::MIN), f32::from(bf16::MAX)))
}

impl Widened for bf16 {
    #[inline(always)]
    unsafe fn load<V: Vector>(from: &[Self]) -> V {
        // SAFETY: the caller vouches for the instruction set and the length.
        unsafe { V::load_bf16(from) }
    }
}

impl TileElement for f16 {
    type Way = InFloats;
    /// As for BF16. Other numbers are those of half precision already ([`KvType::check_made`]).
    #[inline]
    fn narrow(value: f32, _scale: f32) -> Self {
        to_f16(value.clamp(f32::from(f16::MIN), f32::from(f16::MAX)))
    }
}

impl Widened for f16 {
    #[inline(always)]
    unsafe fn load<V: Vector>(from: &[Self]) -> V {
        // SAFETY: the caller vouches for the instruction set and the length.
        unsafe { V::load_f16(from) }
    }
}

/// Symmetric codes: the largest number of a row becomes 127. Next to nothing counts as zero, as it does in activations: a
/// 127th of a subnormal number is not near what it should be.
impl TileElement for Code {
    type Way = InDigits;
    const SCALED: bool = true;
    const TOGETHER: usize = 4;
    #[inline]
    fn scale(row: &[f32]) -> f32 {
        let largest = f32::from_bits(largest_bits(row));
        if largest >= SMALLEST { largest / 127.0 } else { 1.0 }
    }
    /// Halves away from zero, as `round` has them, which the compiler calls for one number at a time.
    #[inline]
    fn narrow(value: f32, scale: f32) -> Self {
        let exact = value / scale;
        let whole = to_int(exact);
        let rest = exact - whole as f32;
        Code::new((whole + i32::from(rest >= 0.5) - i32::from(rest <= -0.5)) as i8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use naive_decode::numerics::LANES;

    #[test]
    fn a_code_is_the_nearest_whole_number_and_halves_go_away_from_zero() {
        let halves = (-508..=508).map(|quarter| quarter as f32 / 4.0);
        for value in halves.flat_map(|value| [value.next_down(), value, value.next_up()]) {
            let code = Code::new((value * 3.0 / 3.0).round() as i8);
            assert_eq!(Code::narrow(value * 3.0, 3.0), code, "{value}");
        }
        assert_eq!(Code::scale(&[0.5, -254.0, 3.0]), 2.0);
        assert_eq!(Code::scale(&[0.0, -0.0]), 1.0);
    }

    #[test]
    fn what_would_become_infinite_is_the_largest_number() {
        for value in [bf16::MAX.to_f32().next_up(), 3.4e38, f32::MAX] {
            assert_eq!(bf16::narrow(value, 1.0), bf16::MAX, "{value:e}");
            assert_eq!(bf16::narrow(-value, 1.0), bf16::MIN, "{value:e}");
            assert_eq!(Paired::narrow(-value, 1.0).0, bf16::MIN, "{value:e}");
        }
        for value in [70_000.0, f32::INFINITY] {
            assert_eq!(f16::narrow(value, 1.0), f16::MAX, "{value:e}");
            assert_eq!(f16::narrow(-value, 1.0), f16::MIN, "{value:e}");
        }
        // Whatever BF16 has itself stays what it is.
        let all = (0..=u16::MAX).map(bf16::from_bits).filter(|number| number.is_finite());
        for number in all {
            assert_eq!(bf16::narrow(number.into(), 1.0).to_bits(), number.to_bits(), "{number:e}");
        }
    }

    #[test]
    fn rows_that_are_next_to_nothing_are_zeros() {
        for number in [1e-44, 1e-42, 1e-38, 1e-31, SMALLEST.next_down()] {
            assert_eq!(Code::scale(&[number, -number, 0.0]), 1.0, "{number:e}");
            for number in [number, -number] {
                assert_eq!(Code::narrow(number, 1.0), Code::new(0), "{number:e}");
            }
        }
        let scale = Code::scale(&[0.0, -SMALLEST]);
        assert_eq!(scale, SMALLEST / 127.0);
        assert_eq!(Code::narrow(-SMALLEST, scale), Code::new(-127));
    }

    /// A row of more numbers than are narrowed at once, to its places among others that stay as they are.
    fn put<E: TileElement>(told: impl Fn(E) -> f32) {
        const WIDTH: usize = 2 * NARROWED + 4;
        let row: Vec<f32> = (0..WIDTH).map(|i| (i % 128) as f32 - 64.0).collect();
        for lane in [0, 5, LANES - 1] {
            let [mut keys, mut values] = [(); 2].map(|_| vec![E::narrow(0.0, 1.0); LANES * WIDTH]);
            let scale = put_key::<E>(&mut keys, LANES, lane, ArrayView1::from(&row));
            put_value::<E>(&mut values, LANES, WIDTH, lane, ArrayView1::from(&row));
            for place in 0..LANES {
                for (d, &number) in row.iter().enumerate() {
                    let key = told(keys[E::key_at(LANES, place, d)]);
                    let value = told(values[E::value_at(LANES, WIDTH, place, d)]);
                    let own = if place == lane { number } else { 0.0 };
                    let far = if E::SCALED { scale / 2.0 } else { 0.0 };
                    let near = |found: f32| (found * scale - own).abs() <= far;
                    assert!(near(key) && near(value), "{d} at {place}: {key}, {value}, not {own}");
                }
            }
        }
    }

    #[test]
    fn keys_and_values_of_any_width_come_to_their_places() {
        put::<f32>(|number| number);
        put::<bf16>(f32::from);
        put::<f16>(f32::from);
        put::<Paired>(|number| number.0.into());
        put::<Code>(|code| code.value().into());
    }
}
