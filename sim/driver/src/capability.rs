//! The compute capability that a target names.

/// Major and minor number of `sm_90a`, `sm_120` and the like; 0 for what is none.
pub fn capability(target: &str) -> (u32, u32) {
    let digits = target.trim_start_matches(|c: char| !c.is_ascii_digit());
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let number: u32 = digits[..end].parse().unwrap_or(0);
    (number / 10, number % 10)
}
