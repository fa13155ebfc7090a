//! Names of an operation's tensors.

/// Names of an operation's operands and results, in order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Slots {
    /// Operands.
    pub inputs: Vec<&'static str>,
    /// Results.
    pub outputs: Vec<&'static str>,
}

impl Slots {
    pub(crate) fn new(inputs: &[&'static str], outputs: &[&'static str]) -> Slots {
        Slots { inputs: inputs.to_vec(), outputs: outputs.to_vec() }
    }
}
