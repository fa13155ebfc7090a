//! Building kernels before the first call: manifests, recording, warm-up, packs.

pub(in crate::plan) mod kernel_pack;
pub(in crate::plan) mod manifest;
pub(in crate::plan) mod recorder;
pub(in crate::plan) mod warm;
