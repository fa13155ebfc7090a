//! `wmma`: matrices whose fragments have a layout of the machine's own.
//!
//! The elements of a lane follow each other in row-major order of the matrix, lane after lane; a
//! matrix that is smaller than its fragment is repeated. Loads and stores are those of elements.

use super::{Decoder, Modifiers};
use crate::access::{Access, Window};
use crate::ast::Instruction;
use crate::draft::Source;
use crate::error::Result;
use crate::format::Format;
use crate::lanes::{self, handler};
use crate::op::{Kind, Special};
use crate::types::{Class, Type};
use crate::unit::{Fragment, FragmentMultiply, Unit};

/// Which matrix: A, B, or an accumulator.
fn extent(matrix: &str, [m, n, k]: [u32; 3]) -> [u32; 2] {
    match matrix {
        "a" => [m, k],
        "b" => [k, n],
        _ => [m, n],
    }
}

/// The fragment of a matrix of a shape; `None` if PTX has none.
fn fragment(matrix: &str, shape: [u32; 3], format: Format) -> Option<Fragment> {
    let [rows, columns] = extent(matrix, shape);
    let square = matches!(shape, [16, 16, 16] | [32, 8, 16] | [8, 32, 16]);
    let operand = matches!(matrix, "a" | "b");
    let known = match format {
        Format::F16 => square,
        Format::F32 => !operand && (square || shape == [16, 16, 8]),
        Format::Bf16 | Format::S8 | Format::U8 => operand && square,
        Format::S32 => !operand && square,
        Format::Tf32 => operand && shape == [16, 16, 8],
        Format::F64 => shape == [8, 8, 4],
        _ => false,
    };
    known.then(|| Fragment::new([rows as u8, columns as u8], format, operand))
}

impl Decoder<'_> {
    pub(super) fn fragments(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let moves = m.take("load") || m.take("store");
        let multiplies = !moves && m.take("mma");
        let matrix = m.take_map(|text| ["a", "b", "c", "d"].into_iter().find(|&name| name == text));
        if !m.take("sync") || !m.take("aligned") {
            return Err(m.error("lacks `.sync.aligned`"));
        }
        if multiplies {
            return self.multiply_fragments(i, m);
        }
        let column = m.take("col");
        let layout = column || m.take("row");
        let shape = m.take_map(Format::shape);
        let window = self.take_window(m);
        let format = m.take_map(Format::from_name);
        let found = match (matrix, shape, format) {
            (Some(matrix), Some(shape), Some(format)) if moves && layout => {
                fragment(matrix, shape, format)
            }
            _ => None,
        };
        let Some(fragment) = found else {
            return Err(m.error("is not a supported form"));
        };
        let load = i.modifiers.first().is_some_and(|name| name == "load");
        let (data, address) = if load { (0, 1) } else { (1, 0) };
        if i.operands.len() != 2 && i.operands.len() != 3 {
            return Err(m.error("has an unsupported number of operands"));
        }
        let (window, address) = self.plain_address(&i.operands[address], window)?;
        let packed = if column { fragment.rows } else { fragment.columns };
        let stride = match i.operands.get(2) {
            Some(operand) => self.source(operand, Type::U32)?,
            None => Source::Word(packed.into()),
        };
        let count = usize::from(fragment.registers);
        let ty = if fragment.format == Format::F64 { Type::B64 } else { Type::B32 };
        if load {
            let writes = self.targets(m, &i.operands[data], count, ty.class())?;
            let places = self.places(fragment, column, stride, address);
            self.load_fragment(fragment, window, places, &writes);
        } else {
            let reads = self.vector(m, &i.operands[data], count, ty)?;
            let places = self.places(fragment, column, stride, address);
            self.store_fragment(fragment, window, places, &reads);
        }
        Ok(())
    }

    fn word(&mut self, kind: Kind, reads: Vec<Source>) -> Source {
        self.emit_new(Class::Word, kind, reads, 0)
    }

    /// Address of each of a lane's elements.
    fn places(
        &mut self,
        fragment: Fragment,
        column: bool,
        stride: Source,
        base: Source,
    ) -> Vec<Source> {
        let per = fragment.lane_elements();
        let size = u32::from(fragment.rows) * u32::from(fragment.columns);
        let lane = self.word(Kind::Special(Special::Lane), Vec::new());
        let first =
            self.lane_new::<lanes::IntMulLow<u32>>(Class::Word, vec![lane, Source::Word(per)]);
        let bytes = fragment.format.bits() as u32 / 8;
        let mut out = Vec::new();
        for element in 0..per {
            let at = vec![first, Source::Word(element)];
            let at = self.lane_new::<lanes::IntAdd<u32>>(Class::Word, at);
            let at = vec![at, Source::Word(size - 1)];
            let at = self.lane_new::<lanes::And<u32>>(Class::Word, at);
            let row = vec![at, Source::Word(u32::from(fragment.columns).trailing_zeros())];
            let row = self.lane_new::<lanes::ShiftRight<u32>>(Class::Word, row);
            let across = vec![at, Source::Word(u32::from(fragment.columns) - 1)];
            let across = self.lane_new::<lanes::And<u32>>(Class::Word, across);
            let (line, inner) = if column { (across, row) } else { (row, across) };
            let offset = vec![line, stride, inner];
            let offset = self.lane_new::<lanes::IntMadLow<u32>>(Class::Word, offset);
            let kind = Kind::Lane(handler::<lanes::IntMadWide<u32>>());
            let place = vec![offset, Source::Word(bytes), base];
            out.push(self.emit_new(Class::Wide, kind, place, 0));
        }
        out
    }

    fn load_fragment(
        &mut self,
        fragment: Fragment,
        window: Window,
        places: Vec<Source>,
        writes: &[crate::draft::Value],
    ) {
        let mut elements = Vec::new();
        for place in places {
            let value = self.new_value(fragment.class());
            let load = Kind::Load(fragment.access(window));
            self.emit(load, vec![value], vec![place], 0);
            elements.push(Source::Value(value));
        }
        for (write, parts) in writes.iter().zip(elements.chunks(fragment.per_register())) {
            let packed = match *parts {
                [a, b, c, d] => {
                    let low = self.lane_new::<lanes::PackBytes>(Class::Word, vec![a, b]);
                    let high = self.lane_new::<lanes::PackBytes>(Class::Word, vec![c, d]);
                    self.lane_new::<lanes::PackHalves>(Class::Word, vec![low, high])
                }
                [a, b] => self.lane_new::<lanes::PackHalves>(Class::Word, vec![a, b]),
                _ => parts[0],
            };
            self.copy(*write, packed);
        }
    }

    /// Only accumulators are stored.
    fn store_fragment(
        &mut self,
        fragment: Fragment,
        window: Window,
        places: Vec<Source>,
        reads: &[Source],
    ) {
        let mut places = places.into_iter();
        for &read in reads {
            let mut parts = vec![read];
            if fragment.per_register() == 2 {
                parts.push(self.lane_new::<lanes::HighHalf>(Class::Word, vec![read]));
            }
            for part in parts {
                let place = places.next().unwrap_or(Source::Wide(0));
                let store = Kind::Store(fragment.access(window));
                self.emit(store, Vec::new(), vec![place, part], 0);
            }
        }
    }

    fn multiply_fragments(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Result<()> {
        let layouts =
            [0; 2].map(|_| m.take_map(|text| matches!(text, "row" | "col").then_some(())));
        let shape = m.take_map(Format::shape);
        let saturate = m.take("satfinite");
        let mut format = || m.take_map(Format::from_name);
        let formats = [format(), format(), format(), format()];
        m.take("rn");
        let (d, a, b, c) = match formats {
            [Some(d), Some(c), None, None] => (d, Format::F16, Format::F16, c),
            [Some(d), Some(a), Some(b), Some(c)] => (d, a, b, c),
            _ => return Err(m.error("is not a supported form")),
        };
        let shape = shape.filter(|&shape| {
            let known = |matrix, format| fragment(matrix, shape, format).is_some();
            let whole = layouts == [Some(()); 2] && a == b;
            whole && known("a", a) && known("b", b) && known("c", c) && known("d", d)
        });
        let sums = match a {
            Format::F16 => [Format::F16, Format::F32],
            Format::Bf16 | Format::Tf32 => [Format::F32; 2],
            Format::F64 => [Format::F64; 2],
            _ => [Format::S32; 2],
        };
        let Some(shape) = shape.filter(|_| sums.contains(&c) && sums.contains(&d)) else {
            return Err(m.error("is not a supported form"));
        };
        if saturate && !a.integer() {
            return Err(m.error("saturates, which is supported for integers only"));
        }
        self.count(i, m, 4)?;
        let ty = if a == Format::F64 { Type::B64 } else { Type::B32 };
        let shape = shape.map(|extent| extent as u8);
        let op = FragmentMultiply { shape, operands: a, c, d, saturate };
        let [of_a, of_b, of_c, of_d] = op.fragments();
        let mut reads = Vec::new();
        for (operand, fragment) in i.operands[1..].iter().zip([of_a, of_b, of_c]) {
            reads.extend(self.vector(m, operand, fragment.registers.into(), ty)?);
        }
        let writes = self.targets(m, &i.operands[0], of_d.registers.into(), ty.class())?;
        self.emit(Kind::Unit(Unit::Fragments(op)), writes, reads, 0);
        Ok(())
    }
}

impl Fragment {
    fn class(self) -> Class {
        if self.format == Format::F64 { Class::Wide } else { Class::Word }
    }

    /// Access to an element.
    fn access(self, window: Window) -> Access {
        let bytes = (self.format.bits() / 8) as u8;
        Access::weak(window, bytes)
    }
}
