//! Calls leave the context of their thread as it was: another library's, or none.

#![expect(unsafe_code, reason = "contexts are the CUDA driver's")]

use std::ptr;

use cudarc::driver::sys;
use kiln::expr::{Mode, Pointwise};
use kiln::{DType, OperationGraph, VariantPack};

use crate::harness;

/// The context that is current on this thread.
fn current() -> sys::CUcontext {
    let mut context = ptr::null_mut();
    // SAFETY: `context` is valid for a write.
    unsafe { sys::cuCtxGetCurrent(&mut context) }.result().unwrap();
    context
}

#[test]
fn a_call_leaves_the_threads_context_as_it_was() {
    let kiln = harness::kiln();
    if kiln.device().kind() != "cuda" {
        eprintln!("skipped: no contexts without a CUDA driver");
        return;
    }
    let mut own = ptr::null_mut();
    // SAFETY: `own` is valid for a write; parameters may be null.
    unsafe { sys::cuCtxCreate_v4(&mut own, ptr::null_mut(), 0, 0) }.result().unwrap();
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[300], DType::F32);
    let y = graph.pointwise(Pointwise::new(Mode::Neg), &[x]).unwrap();
    graph.output(y, "y", DType::F32);
    let graph = graph.build().unwrap();
    let device = kiln.device();
    for wanted in [own, ptr::null_mut()] {
        // SAFETY: the context is alive, or none.
        unsafe { sys::cuCtxSetCurrent(wanted) }.result().unwrap();
        let kept = |what: &str| assert_eq!(current(), wanted, "{what}");
        let x = device.upload(&1f32.to_ne_bytes().repeat(300)).unwrap();
        kept("a copy to the GPU");
        let y = device.alloc(1200).unwrap();
        kept("an allocation");
        let plan = kiln.plan(&graph).unwrap();
        kept("planning");
        let stream = device.stream().unwrap();
        kept("a stream");
        let before = stream.record().unwrap();
        kept("an event");
        let uids: Vec<i64> = plan.tensors().collect();
        let pack = VariantPack::new().with(uids[0], &x).with(uids[1], &y);
        plan.execute(&stream, &pack).unwrap();
        kept("a launch");
        assert!(stream.record().unwrap().elapsed_ms(&before).unwrap() >= 0.0);
        kept("a time");
        stream.synchronize().unwrap();
        kept("a wait");
        assert_eq!(y.to_vec().unwrap(), (-1f32).to_ne_bytes().repeat(300));
        kept("a copy from the GPU");
        plan.execute(&stream, &VariantPack::new()).unwrap_err();
        kept("a refusal");
        device.alloc(1 << 62).unwrap_err();
        kept("a failure");
        drop((before, pack, plan, stream, x, y));
        kept("releases");
        drop(kiln::device::Device::cuda(0).unwrap());
        kept("opening and closing the GPU");
    }
    // SAFETY: it is destroyed once, and nothing uses it.
    unsafe { sys::cuCtxDestroy_v2(own) }.result().unwrap();
}

#[test]
fn so_does_the_simulated_driver_see_it() {
    harness::passes_on_simulated_driver("contexts::a_call_leaves_the_threads_context_as_it_was");
}
