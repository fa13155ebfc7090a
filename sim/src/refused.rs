//! Instructions that the machine does not run, and why.

/// Opcodes, and what they would need.
const REFUSED: [(&[&str], &str); 6] = [
    (&["tex", "tld4", "txq", "istypep"], "textures are not simulated"),
    (&["suld", "sust", "sured", "suq"], "surfaces are not simulated"),
    (&["alloca", "stacksave", "stackrestore"], "the stack has a fixed size"),
    (&["multimem"], "memory of several devices is not simulated"),
    (&["clusterlaunchcontrol"], "launches of clusters cannot be cancelled"),
    (
        &["vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr", "vmad", "vset"],
        "no compiler emits video instructions of one part",
    ),
];

/// Why an opcode is refused, if it is one of PTX.
pub(crate) fn reason(opcode: &str) -> Option<&'static str> {
    let row = REFUSED.iter().find(|(opcodes, _)| opcodes.contains(&opcode));
    row.map(|&(_, why)| why)
}
