//! oneDNN's primitives on a device.

use std::fmt;

use crate::device::{Buffer, Stream};
use crate::error::{Error, Result};
use crate::onednn::{Arg, Home, Primitive};
use crate::plan::{DeviceMemory, ExecutionPlan, Kiln, Memory, Slot, VariantPack};

/// A primitive, planned: executions launch and do nothing else.
///
/// It has memory of its own for what is reordered on the way, so one execution at a time runs.
///
/// ```
/// use kiln::device::DeviceChoice;
/// use kiln::onednn::{Arg, FormatTag, MemoryDesc, Primitive, PrimitiveAttr};
/// use kiln::{Config, DType, Kiln};
///
/// let device = Some(DeviceChoice::Sim("sim".to_owned()));
/// let kiln = Kiln::open(Config { device, ..Config::default() })?;
/// let [ldigo, ldgoi] = [FormatTag::Ldigo, FormatTag::Ldgoi]
///     .map(|tag| MemoryDesc::new(&[1, 1, 3, 4, 2], DType::F32, tag));
/// let reorder = Primitive::reorder(&ldigo?, &ldgoi?, &PrimitiveAttr::default())?;
/// let mut reorder = kiln.onednn_primitive(&reorder)?;
/// let from: Vec<u8> = (0..24).flat_map(|at| (at as f32).to_ne_bytes()).collect();
/// let from = kiln.device().upload(&from)?;
/// let to = kiln.device().alloc(96)?;
/// reorder.execute(&kiln.stream(), &[(Arg::FROM, (&from).into()), (Arg::TO, (&to).into())])?;
/// kiln.stream().synchronize()?;
/// let mut second = [0; 4];
/// to.read(4, &mut second)?;
/// assert_eq!(f32::from_ne_bytes(second), 8.0);
/// # Ok::<(), kiln::Error>(())
/// ```
pub struct OneDnnPrimitive {
    primitive: Primitive,
    plans: Vec<(ExecutionPlan, VariantPack)>,
    /// What steps share, and behind it the workspace of each.
    own: Buffer,
    owner: usize,
}

impl Kiln {
    /// Plans a primitive.
    ///
    /// # Errors
    /// As [`Kiln::plan`]; `Driver` when its own memory cannot be allocated.
    pub fn onednn_primitive(&self, primitive: &Primitive) -> Result<OneDnnPrimitive> {
        let mut plans = Vec::new();
        for step in primitive.steps() {
            let plan = self.plan(&step.graph)?;
            let mut pack = VariantPack::new();
            for uid in plan.tensors() {
                let bytes = step.graph.tensor(uid)?.span_bytes()?;
                pack.place(uid, DeviceMemory { address: 0, bytes });
            }
            plans.push((plan, pack));
        }
        let workspace = plans.iter().map(|(plan, _)| plan.workspace_bytes()).max().unwrap_or(0);
        let own = self.device().alloc((primitive.scratch_bytes() + workspace).max(1))?;
        own.write(0, primitive.constants())?;
        let owner = self.device().owner();
        Ok(OneDnnPrimitive { primitive: primitive.clone(), plans, own, owner })
    }
}

impl OneDnnPrimitive {
    /// What was planned.
    pub fn primitive(&self) -> &Primitive {
        &self.primitive
    }

    /// Plans of its steps.
    pub fn plans(&self) -> impl Iterator<Item = &ExecutionPlan> {
        self.plans.iter().map(|(plan, _)| plan)
    }

    /// Launches the primitive on a stream. Gradients of weights are added to what is in memory,
    /// unless the operation says otherwise.
    ///
    /// # Errors
    /// `BadParam` for an argument that is missing, given twice, too small, on another device, not
    /// aligned to 16 bytes, or not one of the primitive's; as [`ExecutionPlan::execute`].
    pub fn execute(&mut self, stream: &Stream, arguments: &[(Arg, Memory<'_>)]) -> Result<()> {
        let fail = |rule: String| Err(Error::bad_param(format!("onednn execute: {rule}")));
        for (at, (arg, memory)) in arguments.iter().enumerate() {
            let Some(desc) = self.primitive.desc(*arg) else {
                return fail(format!("the primitive has no {}", arg.name()));
            };
            if arguments[..at].iter().any(|(other, _)| other == arg) {
                return fail(format!("{} is given twice", arg.name()));
            }
            if memory.bytes() < desc.bytes() {
                let (name, bytes, needed) = (arg.name(), memory.bytes(), desc.bytes());
                return fail(format!("{name} has {bytes} bytes, its descriptor {needed}"));
            }
            if !memory.address().is_multiple_of(16) {
                let (name, address) = (arg.name(), memory.address());
                return fail(format!("{name} at {address:#x} is not aligned to 16 bytes"));
            }
            if let Slot::Memory { owner, .. } = memory.slot()
                && ![0, self.owner].contains(&owner)
            {
                return fail(format!("{} is on another device", arg.name()));
            }
        }
        let given = |arg: &Arg| arguments.iter().find(|(known, _)| known == arg);
        if let Some(arg) = self.primitive.descs().keys().find(|arg| given(arg).is_none()) {
            return fail(format!("{} is missing", arg.name()));
        }
        let own = Slot::of(&self.own);
        let scratch = self.primitive.scratch_bytes();
        for (step, (plan, pack)) in self.primitive.steps().iter().zip(&mut self.plans) {
            for (uid, slot) in &mut pack.entries {
                let Slot::Memory { bytes, .. } = *slot else { continue };
                let home = step.homes.iter().find(|(known, _)| known == uid);
                let (_, home) = home.expect("inputs and outputs have a place");
                *slot = match home {
                    Home::Scratch(offset) => own.piece(*offset, bytes),
                    Home::Argument(arg, offset) => {
                        let (_, memory) = given(arg).expect("all are there");
                        memory.slot().piece(*offset, bytes)
                    }
                };
            }
            pack.workspace = Some(own.piece(scratch, plan.workspace_bytes()));
            plan.execute(stream, pack)?;
        }
        Ok(())
    }
}

impl fmt::Debug for OneDnnPrimitive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OneDnnPrimitive({} steps)", self.plans.len())
    }
}
