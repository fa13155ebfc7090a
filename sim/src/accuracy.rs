//! Results that PTX does not specify to the last bit: approximate functions, and the sums of tensor
//! cores.

use crate::format::Format;
use std::str::FromStr;

/// How such results are computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Accuracy {
    /// Functions are rounded to nearest, and products are added one after another, each sum rounded
    /// to nearest: as good as hardware is, or better.
    #[default]
    Nearest,
    /// Functions have the largest error that PTX documents, up or down as their operands' bits
    /// have it. Tensor cores truncate: of each step, the products and the sum so far are cut to the
    /// bits that hardware has been found to keep, relative to the largest of them, and their sum
    /// toward zero.
    ///
    /// Sources: *PTX ISA*, descriptions of the instructions; Fasi, Higham, Mikaitis and Pranesh,
    /// *Numerical behavior of NVIDIA tensor cores*, 2021, for the alignment and truncation;
    /// *DeepSeek-V3 Technical Report*, 2024, for the 14 bits of Hopper's products of 8-bit floats.
    Worst,
}

impl FromStr for Accuracy {
    type Err = String;

    fn from_str(text: &str) -> Result<Accuracy, String> {
        match text {
            "nearest" => Ok(Accuracy::Nearest),
            "worst" => Ok(Accuracy::Worst),
            other => Err(format!("unknown accuracy `{other}`: `nearest` or `worst`")),
        }
    }
}

/// How a tensor core adds: the number of products of a step, and the bits behind the leading one of
/// the largest addend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub products: usize,
    pub bits: i32,
}

impl Step {
    /// The step of an MMA with operands of a format, and this K, for a target such as `sm_90a`.
    pub fn of(target: &str, format: Format, k: usize) -> Step {
        let digits = target.chars().filter(char::is_ascii_digit).collect::<String>();
        let hopper_on = digits.parse().is_ok_and(|arch: u32| arch >= 90);
        let blackwell_on = digits.parse().is_ok_and(|arch: u32| arch >= 100);
        let narrow = format.bits() <= 8;
        Step {
            // Before Hopper a step takes 16 bytes of each row.
            products: if hopper_on { k } else { (128 / format.bits()).min(k) },
            bits: match (narrow, hopper_on) {
                (true, _) if !blackwell_on => 13,
                (_, true) => 25,
                _ => 24,
            },
        }
    }

    /// Adds products, exact in double precision, to a sum.
    pub fn add(self, sum: f32, products: &[f64]) -> f32 {
        products.chunks(self.products).fold(sum, |sum, step| self.add_step(sum, step))
    }

    fn add_step(self, sum: f32, products: &[f64]) -> f32 {
        let addends = || products.iter().copied().chain([f64::from(sum)]);
        let largest = addends().fold(0.0, |largest: f64, addend| largest.max(addend.abs()));
        if !addends().all(f64::is_finite) {
            return addends().sum::<f64>() as f32;
        }
        if largest == 0.0 {
            return sum;
        }
        // The leading bit, without the rest of the significand.
        let leading = f64::from_bits(largest.to_bits() & !((1 << 52) - 1));
        let last = leading * 2_f64.powi(-self.bits);
        let cut: f64 = addends().map(|addend| (addend / last).trunc()).sum();
        toward_zero(cut * last)
    }
}

/// Rounds to single precision toward zero; what is too large is infinite.
fn toward_zero(value: f64) -> f32 {
    let nearest = value as f32;
    let beyond = nearest.is_finite() && f64::from(nearest).abs() > value.abs();
    if beyond { f32::from_bits(nearest.to_bits() - 1) } else { nearest }
}

/// A value of a function of these bits that is off by almost `error`, within it.
#[inline(always)]
pub(crate) fn off(exact: f64, error: f64, bits: u32) -> f32 {
    let nearest = exact as f32;
    let up = bits.wrapping_mul(0x9e37_79b9) >> 31 != 0;
    let within = |value: f32| (f64::from(value) - exact).abs() <= error;
    let moved = if up { exact + error } else { exact - error } as f32;
    if !nearest.is_finite() || !moved.is_finite() || moved == 0.0 {
        return nearest;
    }
    if within(moved) {
        return moved;
    }
    // One step back toward the exact value.
    let outward = (f64::from(moved) > exact) == (moved > 0.0);
    let back = moved.to_bits().wrapping_add_signed(if outward { -1 } else { 1 });
    let back = f32::from_bits(back);
    if within(back) { back } else { nearest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_off_by_no_more_than_the_error() {
        let mut edges = [0_u32; 2];
        for at in 1..20_000_u32 {
            let exact = f64::from(at) / 777.0;
            let error = exact * 2_f64.powi(-22);
            let distance = (f64::from(off(exact, error, at)) - exact) / error;
            assert!(distance.abs() <= 1.0, "{at}: {distance}");
            // All but an ulp of it is used: half of the error, at most.
            assert!(distance.abs() > 0.5, "{at}: {distance}");
            edges[usize::from(distance > 0.0)] += 1;
        }
        assert!(edges.iter().all(|count| *count > 8_000), "{edges:?}");
    }

    #[test]
    fn tensor_cores_truncate_what_they_align() {
        let hopper = Step::of("sm_90a", Format::F16, 16);
        assert_eq!(hopper, Step { products: 16, bits: 25 });
        let (one, tiny) = (1.0, 2_f64.powi(-25));
        // 16 addends of 2^-25 stay, and of 2^-26 none; a sum is cut to 24 bits.
        assert_eq!(hopper.add(1.0, &[tiny; 16]), 1.0 + 2_f32.powi(-21));
        assert_eq!(hopper.add(1.0, &[tiny / 2.0; 16]), 1.0);
        assert_eq!(hopper.add(1.0, &[tiny; 3]), 1.0);
        assert_eq!(hopper.add(-1.0, &[one, -tiny]), -(tiny as f32));
        let ampere = Step::of("sm_80", Format::F16, 16);
        assert_eq!(ampere, Step { products: 8, bits: 24 });
        assert_eq!(Step::of("sm_80", Format::Tf32, 8).products, 4);
        for (target, bits) in [("sm_89", 13), ("sm_90a", 13), ("sm_100a", 25)] {
            assert_eq!(Step::of(target, Format::E4m3, 32).bits, bits, "{target}");
        }
        // Of 8-bit floats on Hopper nothing below 2^-13 of the largest is left.
        let narrow = Step::of("sm_90a", Format::E4m3, 32);
        assert_eq!(narrow.add(1.0, &[2_f64.powi(-14); 32]), 1.0);
        assert_eq!(narrow.add(0.0, &[0.0; 32]), 0.0);
        assert!(narrow.add(0.0, &[f64::INFINITY, f64::NEG_INFINITY]).is_nan());
    }
}
