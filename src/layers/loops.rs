//! Networks with loops on a device: their graphs are planned once, whatever numbers of trips are
//! made later.

use std::fmt;
use std::sync::Arc;

use crate::device::Stream;
use crate::error::{Error, Result};
use crate::layers::loops_planned::Planned;
use crate::layers::loops_run::Run;
use crate::loops::{LoopStep, Network, Refusals, Step, WhileStep};
use crate::plan::{ALIGNMENT, ExecutionPlan, Kiln, Slot, VariantPack};
use crate::tensor::TensorDesc;

/// A network with loops, ready to run; clones share it.
///
/// The host goes through the loops: it launches the kernels of each trip, reads counts and
/// conditions that the device computes, and takes branches. Conditions of a loop whose trips need
/// nothing else of the host are read after 1, 2, 4 and at most 8 trips.
#[derive(Clone)]
pub struct LoopsPlan {
    pub(super) inner: Arc<Planned>,
}

impl Kiln {
    /// Plans a network with loops: the graph of each body, and what is outside of loops. Nothing is
    /// compiled when it runs.
    ///
    /// # Errors
    /// As [`Kiln::plan`]; `NotSupported` where a graph cannot say what a layer means.
    pub fn build_loops(&self, network: &Network) -> Result<LoopsPlan> {
        self.loops_without(network, Refusals::new())
    }

    /// As [`Kiln::build_loops`], with every loop launched by the host, trip by trip, to compare
    /// others with.
    ///
    /// # Errors
    /// As [`Kiln::build_loops`].
    pub fn build_launched_loops(&self, network: &Network) -> Result<LoopsPlan> {
        self.loops_without(network, network.all_refused("not asked for"))
    }

    fn loops_without(&self, network: &Network, refused: Refusals) -> Result<LoopsPlan> {
        let (program, plans) = network.served(refused, |graph| self.plan(graph))?;
        if network.is_on_device() {
            self.device().prepare_conditionals()?;
        }
        let zeros = self.device().upload(&vec![0; program.zero_bytes.max(1) as usize])?;
        let (network, owner) = (network.clone(), self.device().owner());
        let inner = Planned { network, program, plans, zeros, owner };
        Ok(LoopsPlan { inner: Arc::new(inner) })
    }
}

impl LoopsPlan {
    /// The network.
    pub fn network(&self) -> &Network {
        &self.inner.network
    }

    /// Plans of the graphs that it is made of.
    pub fn plans(&self) -> &[ExecutionPlan] {
        &self.inner.plans
    }

    /// Size in bytes of the workspace that [`LoopsPlan::execute`] needs in the pack.
    pub fn workspace_bytes(&self) -> u64 {
        let inner = self.inner.plans.iter().map(ExecutionPlan::workspace_bytes).max();
        self.inner.program.places.bytes + inner.unwrap_or(0)
    }

    /// Runs the network on a stream, with memory or values of its inputs and outputs by uid.
    ///
    /// Waits for the device where a count or a condition is needed that it computes. A stream may
    /// be captured into a CUDA graph where the network is [on the device](Network::on_device):
    /// conditional nodes are its loops and branches, replays make as many trips as counts and
    /// conditions then say, and [`LoopsPlan::check_replay`] tells of errors.
    ///
    /// # Errors
    /// `BadParam` when the pack lacks a tensor or has one that the network has not, when memory is
    /// too small, misaligned, overlaps or is on another device; then nothing was launched.
    /// `BadParam` too when an output needs an element of an iterator past the end of its tensor,
    /// when a loop makes more trips than an output has room for, and when its condition is still
    /// true after its most trips: the network has run then, and its outputs are undefined. Whether
    /// an element is needed is decided as by
    /// [`evaluate_network`](crate::reference::evaluate_network). `Driver` when a launch or a copy
    /// fails.
    pub fn execute(&self, stream: &Stream, pack: &VariantPack) -> Result<()> {
        let workspace = self.check(pack)?;
        Run::new(&self.inner, stream, pack, workspace).run()
    }

    /// What went wrong in the last run of a network on the device that was captured into a CUDA
    /// graph, of which an execution outside of captures tells itself: loops that are in no other
    /// loop or branch are looked at. Waits for the stream.
    ///
    /// # Errors
    /// As [`LoopsPlan::execute`].
    pub fn check_replay(&self, stream: &Stream, pack: &VariantPack) -> Result<()> {
        if !self.inner.network.is_on_device() {
            return Err(Error::bad_param("the network is not on the device: nothing replays it"));
        }
        let workspace = self.check(pack)?;
        Run::new(&self.inner, stream, pack, workspace).replayed()
    }

    /// Checks a pack; returns the address of the workspace.
    fn check(&self, pack: &VariantPack) -> Result<u64> {
        let network = &self.inner.network;
        let mut taken: Vec<(String, u64, u64, bool)> = Vec::new();
        for (tensor, written) in network
            .inputs()
            .map(|tensor| (tensor, false))
            .chain(network.outputs().map(|tensor| (tensor, true)))
        {
            let given = pack.entries.iter().find(|(uid, _)| *uid == tensor.uid);
            let Some((_, slot)) = given else { return Err(unfit(tensor, "is missing")) };
            let bytes = tensor.span_bytes()?;
            match (slot, tensor.by_value) {
                (Slot::Value(_), true) => {}
                (Slot::Memory { address, bytes: own, owner }, false) => {
                    if *own < bytes {
                        let rule = format!("has {own} bytes, the tensor spans {bytes}");
                        return Err(unfit(tensor, &rule));
                    }
                    if address % tensor.alignment as u64 != 0 && bytes > 0 {
                        let alignment = tensor.alignment;
                        let rule = format!("{address:#x} is not aligned to {alignment} bytes");
                        return Err(unfit(tensor, &rule));
                    }
                    if *owner != 0 && *owner != self.inner.owner {
                        return Err(unfit(tensor, "is on another device"));
                    }
                    taken.push((format!("tensor `{}`", tensor.name), *address, bytes, written));
                }
                (_, true) => return Err(unfit(tensor, "is by value but the pack holds memory")),
                (_, false) => return Err(unfit(tensor, "is in memory but the pack holds a value")),
            }
        }
        let known = |uid: i64| network.tensor(uid).is_ok_and(|tensor| !tensor.is_virtual);
        if let Some((uid, _)) = pack.entries.iter().find(|(uid, _)| !known(*uid)) {
            let text = format!("variant pack: the network has no input or output with uid {uid}");
            return Err(Error::bad_param(text));
        }
        let needed = self.workspace_bytes();
        let workspace = match pack.workspace {
            Some(Slot::Memory { address, bytes, owner }) if bytes >= needed => {
                if address % ALIGNMENT != 0 && needed > 0 {
                    return Err(Error::bad_param(format!(
                        "variant pack: workspace address {address:#x} is not aligned to \
                         {ALIGNMENT} bytes"
                    )));
                }
                if owner != 0 && owner != self.inner.owner {
                    let text = "variant pack: the workspace is on another device";
                    return Err(Error::bad_param(text));
                }
                address
            }
            _ if needed == 0 => 0,
            other => {
                let bytes = match other {
                    Some(Slot::Memory { bytes, .. }) => bytes,
                    _ => 0,
                };
                return Err(Error::bad_param(format!(
                    "variant pack: the workspace has {bytes} bytes, the network needs {needed}"
                )));
            }
        };
        taken.push(("the workspace".to_owned(), workspace, needed, true));
        for (at, (name, address, bytes, written)) in taken.iter().enumerate() {
            let overlaps = |(_, other, theirs, is_written): &&(String, u64, u64, bool)| {
                let apart = other.saturating_add(*theirs) <= *address
                    || address.saturating_add(*bytes) <= *other;
                (*written || *is_written) && !apart && *bytes > 0 && *theirs > 0
            };
            if let Some((other, ..)) = taken[..at].iter().find(overlaps) {
                let text = format!("variant pack: {name} overlaps {other}, and one is written");
                return Err(Error::bad_param(text));
            }
        }
        Ok(workspace)
    }
}

fn unfit(tensor: &TensorDesc, rule: &str) -> Error {
    let (name, uid) = (&tensor.name, tensor.uid);
    Error::bad_param(format!("variant pack: tensor `{name}` (uid {uid}) {rule}"))
}

impl fmt::Debug for LoopsPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn loops(steps: &[Step]) -> usize {
            let own = |step: &Step| match step {
                Step::Run(_) => 0,
                Step::Looped(_) => 1,
                Step::Loop(LoopStep { test, body, .. }) => 1 + loops(test) + loops(body),
                Step::While(WhileStep { body, .. }) => 1 + loops(body),
                Step::Conditional(of) => loops(&of.then) + loops(&of.otherwise),
            };
            steps.iter().map(own).sum()
        }
        let (plans, loops) = (self.inner.plans.len(), loops(&self.inner.program.steps));
        write!(f, "LoopsPlan({plans} plans in {loops} loops)")
    }
}
