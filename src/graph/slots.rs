//! The names by which an operation's tensors are known.

/// The names of an operation's operands and results, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Slots {
    /// What is read.
    pub inputs: Vec<&'static str>,
    /// What is written.
    pub outputs: Vec<&'static str>,
}

impl Slots {
    pub(crate) fn new(inputs: &[&'static str], outputs: &[&'static str]) -> Slots {
        Slots { inputs: inputs.to_vec(), outputs: outputs.to_vec() }
    }
}
