//! `execute` allocates nothing, however many tensors a plan has, and launches nothing when it
//! fails.

#![expect(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use kiln::device::DeviceChoice;
use kiln::expr::{Mode, Pointwise};
use kiln::plan::{Background, Tier};
use kiln::{Config, DType, ErrorKind, Kiln, OperationGraph, VariantPack};

use crate::harness::{self, Values};

/// The system's allocator, counting per thread: tests that run beside this one do not disturb it.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that is ending has no counter any more, and nobody who reads it.
    let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
}

// SAFETY: every call is the system allocator's own, with the arguments given; counting touches a
// thread-local integer only, which neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above. Left to the default, zeroing would touch every page.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: as above. Left to the default, growing would always copy.
        unsafe { System.realloc(block, layout, bytes) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above; `block` came from the system allocator.
        unsafe { System.dealloc(block, layout) }
    }
}

/// How often `work` allocates on this thread.
pub fn allocations_of<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let before = ALLOCATIONS.get();
    let result = work();
    (result, ALLOCATIONS.get() - before)
}

/// The sum of all but one of `tensors` tensors, which is the output.
fn sum_of(tensors: usize) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let mut sum = graph.input("x0", &[8, 16], DType::F32);
    for index in 1..tensors - 1 {
        let x = graph.input(&format!("x{index}"), &[8, 16], DType::F32);
        sum = graph.pointwise(Pointwise::new(Mode::Add), &[sum, x]).expect("valid");
    }
    graph.output(sum, "y", DType::F32);
    graph.build().expect("valid")
}

pub fn null() -> Kiln {
    let device = Some(DeviceChoice::Null("sim".to_owned()));
    Kiln::open(Config { device, ..harness::config() }).expect("the null device opens")
}

fn inputs(graph: &OperationGraph) -> Values {
    graph.inputs().map(|tensor| (tensor.uid, harness::fill(tensor, 3, 1.0))).collect()
}

#[test]
fn the_counter_counts() {
    let (_, allocations) = allocations_of(|| std::hint::black_box(Box::new(7)));
    assert_eq!(allocations, 1);
}

#[test]
fn execute_allocates_nothing() {
    let kiln = null();
    let stream = kiln.stream();
    for tensors in [4, 20, 70] {
        let graph = sum_of(tensors);
        let plan = kiln.plan(&graph).expect("supported");
        let mut uids: Vec<i64> = plan.tensors().collect();
        let buffers: Vec<_> = uids.iter().map(|_| kiln.device().alloc(8 * 16 * 4)).collect();
        // Backwards, every lookup takes its slow path.
        for order in ["in order", "backwards"] {
            let mut pack = VariantPack::new();
            for (uid, buffer) in uids.iter().zip(&buffers) {
                pack = pack.with(*uid, buffer.as_ref().expect("the null device has memory"));
            }
            let (result, allocations) = allocations_of(|| plan.execute(&stream, &pack));
            assert!(result.is_ok(), "{tensors} tensors {order}: {result:?}");
            assert_eq!(allocations, 0, "{tensors} tensors {order}");
            uids.reverse();
        }
    }
}

#[test]
fn a_plan_that_changes_its_kernel_allocates_nothing() {
    let folder = tempfile::tempdir().expect("temporary folder");
    let open = |queue| {
        Kiln::open(Config {
            device: Some(DeviceChoice::Null("sim".to_owned())),
            cache_dir: Some(folder.path().to_owned()),
            background: Some(Background { threads: 1, queue }),
            ..Config::default()
        })
        .expect("the null device opens")
    };
    // A kernel serves every number of elements that its vectors divide.
    let shape = |columns| {
        let mut graph = OperationGraph::builder();
        let x = graph.input("x", &[1, columns], DType::F32);
        let y = graph.pointwise(Pointwise::new(Mode::Neg), &[x]).expect("valid");
        graph.output(y, "y", DType::F32);
        graph.build().expect("valid")
    };
    let kiln = open(4);
    kiln.plan(&shape(16)).expect("supported");
    assert!(kiln.settle(Duration::from_secs(60)), "the general kernel compiles");
    for (kiln, settled) in [(open(0), Tier::Deferred), (kiln, Tier::Special)] {
        let graph = shape(13);
        let plan = kiln.plan(&graph).expect("supported");
        let stream = kiln.stream();
        let buffers: Vec<_> = plan.tensors().map(|uid| (uid, kiln.device().alloc(512))).collect();
        let mut pack = VariantPack::new();
        for (uid, buffer) in &buffers {
            pack = pack.with(*uid, buffer.as_ref().expect("the null device has memory"));
        }
        for round in ["at first", "settled"] {
            let (result, allocations) = allocations_of(|| plan.execute(&stream, &pack));
            assert!(result.is_ok(), "{settled:?} {round}: {result:?}");
            assert_eq!(allocations, 0, "{settled:?} {round}");
            plan.settle(Duration::from_secs(if settled == Tier::Special { 60 } else { 0 }))
                .expect("it compiles");
        }
        assert_eq!(plan.tier(), settled);
    }
}

#[test]
fn a_failed_execute_launches_nothing() {
    let kiln = harness::kiln();
    let stream = kiln.stream();
    for tensors in [4, 20, 70] {
        let graph = sum_of(tensors);
        let plan = kiln.plan(&graph).expect("supported");
        let bound = harness::bind(kiln, &graph, &inputs(&graph)).expect("bound");
        let output = graph.tensor_named("y").expect("the output");
        let untouched = bound.buffers[&output.uid].to_vec().expect("readable");
        let last = plan.tensors().last().expect("a plan has tensors");
        let buffer = &bound.buffers[&last];
        let (address, bytes) = (buffer.address(), output.span_bytes().expect("small"));
        // What is wrong concerns the tensor that is looked at last.
        for (address, bytes, complaint) in
            [(address + 4, bytes, "is not aligned"), (address, bytes - 1, "the buffer has")]
        {
            let mut pack = bound.pack.clone();
            harness::place(&mut pack, last, address, bytes);
            let error = plan.execute(&stream, &pack).expect_err("the pack does not fit");
            assert_eq!(error.kind(), ErrorKind::BadParam);
            assert!(error.to_string().contains(complaint), "{error}");
        }
        stream.synchronize().expect("nothing runs");
        let now = bound.buffers[&output.uid].to_vec().expect("readable");
        assert_eq!(now, untouched, "{tensors} tensors: the output was written");
        plan.execute(&stream, &bound.pack).expect("the plan still runs");
        let values = harness::run_plan(kiln, &plan, &inputs(&graph)).expect("the plan still runs");
        harness::compare(&graph, &inputs(&graph), &values, "after a failure");
    }
}
