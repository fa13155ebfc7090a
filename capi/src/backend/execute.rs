//! Plans, variant packs, and how a plan is executed (sections 8.2.2.5 and 8.2.2.31).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use kiln::VariantPack;
use kiln::device::Stream;
use kiln::plan::DeviceMemory;
use kiln::tensor::TensorDesc;

use crate::backend::names::AttributeName as N;
use crate::backend::node::{Backend, Node};
use crate::backend::product::{Config, Pack, Plan, Product};
use crate::backend::products::BEFORE;
use crate::handle::{Handle, handle_of};
use crate::kept::{aligned, workspace_bytes};
use crate::object::{Ref, number_to_come};
use crate::pointer::DataMut;
use crate::status::{Outcome, bad};

/// Makes a plan of a configuration, or of its text. Its kernels are compiled now.
pub fn plan(node: &Node) -> Outcome<Product> {
    let handle = handle_of(node.integer(N::EXECUTION_PLAN_HANDLE))?;
    let gpu = handle.gpu().clone();
    let text = node.integers(N::EXECUTION_PLAN_JSON_REPRESENTATION);
    let plan = match (node.optional_node(N::EXECUTION_PLAN_ENGINE_CONFIG), text.is_empty()) {
        (Some(config), _) => {
            let Product::Config(config) = config.product("the engine config")? else {
                return bad("the engine config is none");
            };
            let Config { engine, config } = &*config;
            match config {
                Some(config) => gpu.kiln.plan_with(&engine.graph.graph, config)?,
                None => gpu.kiln.plan(&engine.graph.graph)?,
            }
        }
        (None, false) => {
            let bytes = text.into_iter().take_while(|byte| *byte != 0).map(|byte| byte as u8);
            let text = String::from_utf8(bytes.collect());
            let text = text.or_else(|_| bad("the plan's text is not UTF-8"))?;
            gpu.kiln.plan_from_json(&text)?
        }
        (None, true) => {
            let [config, text] =
                [N::EXECUTION_PLAN_ENGINE_CONFIG, N::EXECUTION_PLAN_JSON_REPRESENTATION];
            return bad(format!("neither {} nor {} is set", config.shown(), text.shown()));
        }
    };
    static PLANS: AtomicU64 = AtomicU64::new(0);
    let number = PLANS.fetch_add(1, Ordering::Relaxed);
    Ok(Product::Plan(Arc::new(Plan { gpu, plan, number })))
}

/// Checks a variant pack.
pub fn pack(node: &Node) -> Outcome<Product> {
    let uids = node.integers(N::VARIANT_PACK_UNIQUE_IDS);
    let addresses = node.integers(N::VARIANT_PACK_DATA_POINTERS);
    if uids.len() != addresses.len() {
        return bad(format!("{} uids and {} pointers", uids.len(), addresses.len()));
    }
    let addresses = addresses.into_iter().map(|address| address as u64);
    Ok(Product::Pack(Arc::new(Pack {
        tensors: uids.into_iter().zip(addresses).collect(),
        workspace: node.integer(N::VARIANT_PACK_WORKSPACE) as u64,
        filled: Mutex::default(),
    })))
}

impl Pack {
    /// The address of a tensor: its own, or that of the result whose memory it reads.
    fn address(&self, plan: &Plan, tensor: &TensorDesc) -> Outcome<u64> {
        let find = |uid| self.tensors.iter().find(|(known, _)| *known == uid);
        let own = find(tensor.uid).or_else(|| {
            let name = tensor.name.strip_suffix(BEFORE)?;
            find(plan.plan.graph().tensor_named(name).ok()?.uid)
        });
        match own {
            Some((_, 0)) => bad(format!("the pointer of uid {} is NULL", tensor.uid)),
            Some((_, address)) => Ok(*address),
            None => bad(format!("the variant pack has no uid {}", tensor.uid)),
        }
    }
}

/// What a handle has executed last.
pub struct Executed {
    descriptors: [Ref<Backend>; 2],
    /// The number to come, before the descriptors were looked at.
    number: u64,
    plan: Weak<Plan>,
    pack: Weak<Pack>,
    stream: Stream,
}

/// Queues a plan on a handle's stream.
pub fn execute(handle: &Handle, plan: Ref<Backend>, pack: Ref<Backend>) -> Outcome {
    let (descriptors, number) = ([plan, pack], number_to_come());
    let mut last = handle.executed();
    // Nothing was set or destroyed since the same call was made.
    let same = last.as_mut().filter(|of| of.descriptors == descriptors && of.number == number);
    if let Some(of) = same
        && let (Some(plan), Some(pack)) = (of.plan.upgrade(), of.pack.upgrade())
    {
        handle.follow(&mut of.stream);
        return launch(&of.stream, &plan, &pack);
    }
    let (plan, pack) = (plan.get("executionPlan")?.node(), pack.get("variantPack")?.node());
    let Product::Plan(plan) = plan.product("executionPlan")? else {
        return bad("executionPlan is no execution plan");
    };
    let Product::Pack(pack) = pack.product("variantPack")? else {
        return bad("variantPack is no variant pack");
    };
    if !Arc::ptr_eq(&plan.gpu, handle.gpu()) {
        return bad("executionPlan is of another device than the handle");
    }
    let stream = handle.stream();
    let launched = launch(&stream, &plan, &pack);
    let (plan, pack) = (Arc::downgrade(&plan), Arc::downgrade(&pack));
    *last = Some(Executed { descriptors, number, plan, pack, stream });
    launched
}

fn launch(stream: &Stream, plan: &Plan, pack: &Pack) -> Outcome {
    // Threads that execute one pack at a time fill in their own.
    let mut kept = pack.filled.try_lock().ok();
    let known = kept.as_deref().and_then(Option::as_ref);
    if let Some((_, tensors)) = known.filter(|(number, _)| *number == plan.number) {
        return Ok(plan.plan.execute(stream, tensors)?);
    }
    let tensors = fill(plan, pack)?;
    plan.plan.execute(stream, &tensors)?;
    // Values are read at every call.
    let values = plan.plan.graph().tensors().iter().any(|tensor| tensor.by_value);
    if let (Some(kept), false) = (kept.as_mut(), values) {
        **kept = Some((plan.number, tensors));
    }
    Ok(())
}

/// What a plan is given of a pack.
fn fill(plan: &Plan, pack: &Pack) -> Outcome<VariantPack> {
    let mut tensors = VariantPack::new();
    for uid in plan.plan.tensors() {
        let tensor = plan.plan.graph().tensor(uid)?;
        let address = pack.address(plan, tensor)?;
        if tensor.by_value {
            let bytes = tensor.dtype.bytes();
            let host = DataMut::of(address).host::<u8>().array().all(bytes, "a value")?;
            tensors.set_value(uid, tensor.dtype.read(&host));
        } else {
            let bytes = tensor.span_bytes()?;
            // SAFETY: the program keeps its memory until the work of the call is done.
            unsafe { tensors.set_address(uid, DeviceMemory { address, bytes }) };
        }
    }
    let needed = plan.plan.workspace_bytes();
    if needed > 0 {
        if pack.workspace == 0 {
            return bad(format!("the plan needs a workspace of {needed} bytes, there is none"));
        }
        let memory = aligned(pack.workspace, workspace_bytes(needed));
        if let Some((address, bytes)) = memory {
            // SAFETY: as above; the program was told its size.
            unsafe { tensors.set_workspace_address(DeviceMemory { address, bytes }) };
        }
    }
    Ok(tensors)
}
