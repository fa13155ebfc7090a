//! `vprintf`: formatted output of a thread.

use crate::access::Window;
use crate::aim::{Attempt, Place, lanes_of, resolve};
use crate::block_state::BlockState;
use crate::context::Context;
use crate::failure::{Failure, misuse};
use crate::op::MicroOp;
use crate::registers::LANES;
use crate::warp::Warp;
use std::sync::atomic::Ordering::Relaxed;

/// Maximum length of a string in bytes.
const TEXT_MAX: u64 = 1 << 16;

/// Maximum width and precision of a field: those of Rust's own.
const FIELD_MAX: usize = u16::MAX as usize;

/// Reads a lane's memory through generic addresses.
struct Reader<'a, 'b> {
    warp: &'a mut Warp,
    block: &'a BlockState,
    cx: &'a Context<'b>,
    lane: usize,
}

impl Reader<'_, '_> {
    fn byte(&mut self, address: u64) -> Result<u8, Failure> {
        let attempt = Attempt { verb: "printf", bytes: 1 };
        let Reader { warp, block, cx, lane } = self;
        let place = resolve(warp, block, cx, Window::Generic, *lane, address, attempt)?;
        let (word, at) = match place {
            Place::Global(allocation, at) => (allocation.words[at as usize / 4].load(Relaxed), at),
            Place::Shared(at) => (block.shared[at as usize / 4], at),
            Place::Peer(rank, at) => (block.peers.shared[rank][at as usize / 4], at),
            Place::Local(at) => (warp.local[at as usize / 4], at),
            Place::Param(at) => (cx.params[at as usize / 4], at),
        };
        Ok((word >> (8 * (at % 4))) as u8)
    }

    fn text(&mut self, address: u64) -> Result<String, Failure> {
        let mut bytes = Vec::new();
        for at in 0..TEXT_MAX {
            match self.byte(address.wrapping_add(at))? {
                0 => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
                byte => bytes.push(byte),
            }
        }
        misuse(self.lane, format!("printf of a text of more than {TEXT_MAX} bytes"))
    }

    fn wide(&mut self, address: u64, bytes: u64) -> Result<u64, Failure> {
        (0..bytes).try_fold(0, |value, at| {
            Ok(value | u64::from(self.byte(address.wrapping_add(at))?) << (8 * at))
        })
    }
}

/// Prints for each lane, in order.
pub(super) fn print(
    warp: &mut Warp,
    block: &mut BlockState,
    cx: &Context<'_>,
    op: &MicroOp,
    active: u32,
) -> Result<(), Failure> {
    let (constants, slots) = (&cx.program.constants, cx.list(op));
    let formats = *warp.registers.wide(constants, slots[1]);
    let arguments = *warp.registers.wide(constants, slots[2]);
    let mut counts = [0; LANES];
    let mut out = String::new();
    for lane in lanes_of(active) {
        let mut reader = Reader { warp, block, cx, lane };
        let format = reader.text(formats[lane])?;
        counts[lane] = formatted(&mut reader, &format, arguments[lane], &mut out)?;
    }
    block.printed += &out;
    warp.registers.set_word(slots[0], &counts, active);
    Ok(())
}

/// Width and precision of a conversion.
#[derive(Default)]
struct Field {
    flags: String,
    width: usize,
    precision: Option<usize>,
    wide: bool,
}

impl Field {
    fn pad(&self, body: String, numeric: bool) -> String {
        let width = self.width;
        if self.flags.contains('-') {
            return format!("{body:<width$}");
        }
        if numeric && self.flags.contains('0') {
            let (sign, digits) = match body.strip_prefix('-') {
                Some(digits) => ("-", digits),
                None => ("", body.as_str()),
            };
            let left = width.saturating_sub(sign.len());
            return format!("{sign}{digits:0>left$}");
        }
        format!("{body:>width$}")
    }

    fn signed(&self, body: String) -> String {
        match body.starts_with('-') {
            false if self.flags.contains('+') => format!("+{body}"),
            false if self.flags.contains(' ') => format!(" {body}"),
            _ => body,
        }
    }
}

/// Formats as C does. Arguments are stored consecutively, each aligned to its size. Returns the
/// number of arguments.
fn formatted(
    reader: &mut Reader<'_, '_>,
    format: &str,
    mut at: u64,
    out: &mut String,
) -> Result<u32, Failure> {
    let mut chars = format.chars().peekable();
    let mut count = 0;
    while let Some(next) = chars.next() {
        if next != '%' {
            out.push(next);
            continue;
        }
        let mut field = Field::default();
        while let Some(flag) = chars.next_if(|c| "-+ #0".contains(*c)) {
            field.flags.push(flag);
        }
        let number = |chars: &mut std::iter::Peekable<std::str::Chars<'_>>| {
            let mut value = 0;
            while let Some(digit) = chars.next_if(char::is_ascii_digit) {
                let digit = digit.to_digit(10).unwrap_or(0) as usize;
                value = usize::min(value * 10 + digit, FIELD_MAX + 1);
            }
            value
        };
        field.width = number(&mut chars);
        if chars.next_if_eq(&'.').is_some() {
            field.precision = Some(number(&mut chars));
        }
        if field.width.max(field.precision.unwrap_or(0)) > FIELD_MAX {
            let text = format!("printf of a field of more than {FIELD_MAX} characters");
            return misuse(reader.lane, text);
        }
        while let Some(length) = chars.next_if(|c| "hlzjt".contains(*c)) {
            field.wide |= length != 'h';
        }
        let Some(conversion) = chars.next() else { break };
        if conversion == '%' {
            out.push('%');
            continue;
        }
        count += 1;
        let size = match conversion {
            'd' | 'i' | 'u' | 'x' | 'X' | 'o' | 'c' if !field.wide => 4,
            _ => 8,
        };
        at = at.checked_next_multiple_of(size).unwrap_or(0);
        let bits = reader.wide(at, size)?;
        at = at.wrapping_add(size);
        *out += &converted(reader, &field, conversion, bits)?;
    }
    Ok(count)
}

fn converted(
    reader: &mut Reader<'_, '_>,
    field: &Field,
    conversion: char,
    bits: u64,
) -> Result<String, Failure> {
    let signed = if field.wide { bits as i64 } else { i64::from(bits as i32) };
    let real = f64::from_bits(bits);
    let digits = field.precision.unwrap_or(6);
    let prefix = |text: &'static str| if field.flags.contains('#') { text } else { "" };
    Ok(match conversion {
        'd' | 'i' => field.pad(field.signed(signed.to_string()), true),
        'u' => field.pad(bits.to_string(), true),
        'x' => field.pad(format!("{}{bits:x}", prefix("0x")), true),
        'X' => field.pad(format!("{}{bits:X}", prefix("0X")), true),
        'o' => field.pad(format!("{}{bits:o}", prefix("0")), true),
        'p' => field.pad(format!("{bits:#x}"), false),
        'c' => field.pad(char::from(bits as u8).to_string(), false),
        's' => {
            let text = reader.text(bits)?;
            let kept = text.chars().take(field.precision.unwrap_or(usize::MAX)).collect();
            field.pad(kept, false)
        }
        'f' | 'F' => field.pad(field.signed(format!("{real:.digits$}")), true),
        'e' | 'E' | 'g' | 'G' => {
            let body = match conversion.to_ascii_lowercase() {
                'e' => exponential(real, digits),
                _ => general(real, digits.max(1)),
            };
            let body = if conversion.is_uppercase() { body.to_uppercase() } else { body };
            field.pad(field.signed(body), true)
        }
        other => return misuse(reader.lane, format!("printf with the conversion `%{other}`")),
    })
}

/// `%e`, with at least two exponent digits.
fn exponential(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$e}");
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ('-', exponent),
        None => ('+', exponent),
    };
    format!("{mantissa}e{sign}{exponent:0>2}")
}

/// `%g`: the shorter form, without trailing zeros.
fn general(value: f64, digits: usize) -> String {
    let scientific = exponential(value, digits - 1);
    let exponent = scientific.split_once('e').and_then(|(_, e)| e.parse::<i64>().ok());
    let Some(exponent) = exponent else { return scientific };
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text.to_string(),
    };
    if exponent < -4 || exponent >= digits as i64 {
        let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, ""));
        return format!("{}e{exponent}", trim(mantissa));
    }
    let decimals = (digits as i64 - 1 - exponent).max(0) as usize;
    trim(&format!("{value:.decimals$}"))
}
