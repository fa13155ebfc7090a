//! What the header of a kernel says: its names, and its configuration.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use crate::engine::{EngineConfig, Knob};
use crate::kernel::{KernelSpec, Lowering};
use crate::target::Arch;

/// Choices that a header lists one by one.
const LISTED_MAX: usize = 6;

/// The names of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KernelNames {
    /// As [`KernelSpec::stem`].
    pub(super) stem: String,
    /// As [`KernelSpec::template`].
    pub(super) template: &'static str,
    /// As [`KernelSpec::entry`].
    pub(super) entry: &'static str,
}

impl KernelNames {
    /// The kernel that the template renders with these parameters, a struct.
    pub(super) fn spec(self, arch: Arch, parameters: &impl Serialize) -> KernelSpec {
        let KernelNames { stem, template, entry } = self;
        let parameters = serde_json::to_value(parameters).expect("fields have names").into();
        KernelSpec { stem, template, entry, arch, parameters }
    }
}

/// Kernels with a line for each knob: its value, its choices, and what it changes. Those that
/// another engine made for this one list the knobs of that engine.
pub(super) fn described(mut lowering: Lowering, config: &EngineConfig, knobs: &[Knob]) -> Lowering {
    let line = |knob: &Knob| {
        let value = config.knob(knob.name).ok()?;
        Some(format!("{} = {value} ({}): {}", knob.name, choices(&knob.values), knob.about))
    };
    let lines: Vec<String> = knobs.iter().filter_map(line).collect();
    // Launches of one kernel go on sharing its parameters.
    let mut shared: Vec<[Arc<Value>; 2]> = Vec::new();
    for kernel in &mut lowering.kernels {
        let own = &mut kernel.spec.parameters;
        if !own["knobs"].is_null() {
            continue;
        }
        *own = match shared.iter().find(|[before, _]| Arc::ptr_eq(before, own)) {
            Some([_, described]) => described.clone(),
            None => {
                let before = own.clone();
                Arc::make_mut(own)["knobs"] = json!(lines);
                shared.push([before, own.clone()]);
                continue;
            }
        };
    }
    lowering
}

/// The values of a knob in words.
fn choices(values: &[i64]) -> String {
    let text: Vec<String> = values.iter().map(i64::to_string).collect();
    let doubled = values.windows(2).all(|pair| pair[1] == 2 * pair[0]);
    match (values, &text[..]) {
        ([one], _) => format!("only {one}"),
        (_, [first, .., last]) if text.len() > LISTED_MAX && doubled => {
            format!("powers of 2 from {first} to {last}")
        }
        _ => text.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_said_in_short() {
        assert_eq!(choices(&[3]), "only 3");
        assert_eq!(choices(&[1, 2, 4]), "1, 2, 4");
        assert_eq!(choices(&[1, 2, 4, 8, 16, 32, 64]), "powers of 2 from 1 to 64");
        assert_eq!(choices(&[1, 2, 3, 4, 5, 6, 7]), "1, 2, 3, 4, 5, 6, 7");
    }
}
