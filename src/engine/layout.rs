//! Which layouts of its tensors an engine prefers.

use std::fmt;

/// An order of dimensions in memory for tensors `[N, C, ..]` (`mcdnnBackendLayoutType_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LayoutType {
    /// As the dimensions are counted: the last one is packed.
    Nchw,
    /// The second one, the channels, is packed.
    Nhwc,
}

/// The layouts that an engine prefers for a tensor (`MCDNN_BACKEND_LAYOUT_INFO_DESCRIPTOR`, section
/// 8.2.2.9): in these it reads or writes whole vectors.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LayoutInfo {
    /// The tensor, by its uid in the graph.
    pub uid: i64,
    /// Each as good as the others.
    pub types: Vec<LayoutType>,
}

impl LayoutType {
    /// The name in texts.
    pub fn name(self) -> &'static str {
        match self {
            LayoutType::Nchw => "nchw",
            LayoutType::Nhwc => "nhwc",
        }
    }
}

impl fmt::Display for LayoutType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
