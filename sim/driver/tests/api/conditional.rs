//! Conditional nodes of graphs, as the driver's document has them: a `while` around an `if`, bodies
//! that streams are captured into, defaults, what is refused.

use std::ffi::c_void;
use std::ptr;

use crate::code::*;
use crate::driver::{ADD_ONE, Driver, call};

const IF: u32 = 0;
const WHILE: u32 = 1;
const SWITCH: u32 = 2;

/// `CUgraphNodeParams` of a conditional node.
#[repr(C)]
struct Params {
    node_type: u32,
    reserved: [u32; 3],
    handle: u64,
    kind: u32,
    size: u32,
    graphs: *const u64,
    context: u64,
    rest: [u64; 26],
}

impl Params {
    fn of(handle: u64, kind: u32, size: u32) -> Params {
        let (graphs, reserved, rest) = (ptr::null(), [0; 3], [0; 26]);
        Params { node_type: 13, reserved, handle, kind, size, graphs, context: 0, rest }
    }

    fn body(&self, at: usize) -> u64 {
        unsafe { *self.graphs.add(at) }
    }
}

/// Counts down, and decides by what is left: `cudaGraphSetConditional(first, n > 0)`, and
/// `(second, n % 2)`.
const COUNT_DOWN: &str = "
.version 7.0
.target sm_75
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);
.visible .entry count_down(.param .u64 first, .param .u64 second, .param .u64 n, .param .u64 by) {
    .reg .pred %p;
    .reg .b32 %n, %by, %go, %odd;
    .reg .b64 %first, %second, %at, %by_long;
    .param .b64 handle;
    .param .b32 value;
    .param .b64 other;
    .param .b32 odd;
    ld.param.u64 %first, [first];
    ld.param.u64 %second, [second];
    ld.param.u64 %at, [n];
    ld.param.u64 %by_long, [by];
    cvt.u32.u64 %by, %by_long;
    ld.global.u32 %n, [%at];
    sub.u32 %n, %n, %by;
    st.global.u32 [%at], %n;
    setp.gt.s32 %p, %n, 0;
    selp.u32 %go, 1, 0, %p;
    and.b32 %odd, %n, 1;
    st.param.b64 [handle], %first;
    st.param.b32 [value], %go;
    call.uni cudaGraphSetConditional, (handle, value);
    st.param.b64 [other], %second;
    st.param.b32 [odd], %odd;
    call.uni cudaGraphSetConditional, (other, odd);
    ret;
}
";

fn info(driver: &Driver, stream: u64) -> u64 {
    let (mut status, mut id, mut graph, mut count) = (0_u32, 0_u64, 0_u64, 0_usize);
    let mut dependencies: *const u64 = ptr::null();
    let asked = call!(
        driver,
        cuStreamGetCaptureInfo_v2(
            stream,
            &mut status,
            &mut id,
            &mut graph,
            &mut dependencies,
            &mut count
        )
    );
    assert_eq!((asked, status), (SUCCESS, 1));
    graph
}

fn handle(driver: &Driver, graph: u64, value: u32, flags: u32) -> u64 {
    let mut handle = 0_u64;
    let made =
        call!(driver, cuGraphConditionalHandleCreate(&mut handle, graph, 0_u64, value, flags));
    assert_eq!(made, SUCCESS);
    handle
}

fn add(driver: &Driver, graph: u64, params: &mut Params) -> i32 {
    let (mut node, none) = (0_u64, ptr::null::<u64>());
    call!(driver, cuGraphAddNode_v2(&mut node, graph, none, none, 0_usize, ptr::from_mut(params)))
}

fn begin(driver: &Driver, stream: u64, graph: u64) -> i32 {
    let none = ptr::null::<u64>();
    call!(driver, cuStreamBeginCaptureToGraph(stream, graph, none, none, 0_usize, 1_u32))
}

#[test]
fn a_while_with_an_if_in_it() {
    let driver = Driver::open();
    let (down, ones) = (driver.load(COUNT_DOWN), driver.load(ADD_ONE));
    let (down, add_one) = (driver.kernel(down, "count_down"), driver.kernel(ones, "add_one"));
    let (n, trips, odds, evens) =
        (driver.alloc(4), driver.alloc(4), driver.alloc(4), driver.alloc(4));
    let [stream, inner, then, otherwise] = [(); 4].map(|()| driver.stream());
    assert_eq!(call!(driver, cuStreamBeginCapture_v2(stream, 1_u32)), SUCCESS);
    let around = info(&driver, stream);
    let goes = handle(&driver, around, 0, 0);
    let mut loops = Params::of(goes, WHILE, 1);
    assert_eq!(add(&driver, around, &mut loops), SUCCESS);
    let body = loops.body(0);
    assert_eq!(begin(&driver, inner, body), SUCCESS);
    assert_eq!(info(&driver, inner), body);
    assert_eq!(begin(&driver, then, body), INVALID_VALUE);
    let odd = handle(&driver, body, 0, 0);
    assert_eq!(driver.launch(add_one, 1, inner, &[trips]), SUCCESS);
    assert_eq!(driver.launch(down, 1, inner, &[goes, odd, n, 1]), SUCCESS);
    let mut branches = Params::of(odd, IF, 2);
    assert_eq!(add(&driver, body, &mut branches), SUCCESS);
    for (stream, at, counted) in [(then, 0, odds), (otherwise, 1, evens)] {
        let mut graph = 0_u64;
        assert_eq!(begin(&driver, stream, branches.body(at)), SUCCESS);
        assert_eq!(driver.launch(add_one, 1, stream, &[counted]), SUCCESS);
        assert_eq!(call!(driver, cuStreamEndCapture(stream, &mut graph)), SUCCESS);
        assert_eq!(graph, branches.body(at));
    }
    let (mut graph, mut exec) = (0_u64, 0_u64);
    assert_eq!(call!(driver, cuStreamEndCapture(inner, &mut graph)), SUCCESS);
    assert_eq!(call!(driver, cuStreamEndCapture(stream, &mut graph)), SUCCESS);
    assert_eq!(call!(driver, cuGraphInstantiateWithFlags(&mut exec, graph, 0_u64)), SUCCESS);
    // The number has no default at launches: the first one finds what it was created with.
    driver.write(n, &7_u32.to_le_bytes());
    for address in [trips, odds, evens] {
        driver.write(address, &[0; 4]);
    }
    assert_eq!(call!(driver, cuGraphLaunch(exec, stream)), SUCCESS);
    assert_eq!(driver.words(trips, 1), [0]);
    assert_eq!(driver.launch(down, 1, stream, &[goes, odd, n, 0]), SUCCESS);
    assert_eq!(call!(driver, cuGraphLaunch(exec, stream)), SUCCESS);
    // 6, 5, 4, 3, 2, 1, 0.
    let counted = [trips, odds, evens, n].map(|address| driver.words(address, 1)[0]);
    assert_eq!(counted, [7, 3, 4, 0]);
    assert_eq!(call!(driver, cuGraphExecDestroy(exec)), SUCCESS);
    assert_eq!(call!(driver, cuGraphDestroy(graph)), SUCCESS);
}

#[test]
fn a_switch_by_hand_has_its_default_at_every_launch() {
    let driver = Driver::open();
    let module = driver.load(ADD_ONE);
    let add_one = driver.kernel(module, "add_one");
    let (counted, stream, mut graph, mut exec) = (driver.alloc(12), driver.stream(), 0_u64, 0_u64);
    driver.write(counted, &[0; 12]);
    assert_eq!(call!(driver, cuGraphCreate(&mut graph, 0_u32)), SUCCESS);
    let chosen = handle(&driver, graph, 2, 1);
    let mut params = Params::of(chosen, SWITCH, 3);
    assert_eq!(add(&driver, graph, &mut params), SUCCESS);
    for at in 0..3 {
        let mut own = 0_u64;
        assert_eq!(begin(&driver, stream, params.body(at)), SUCCESS);
        assert_eq!(driver.launch(add_one, 1, stream, &[counted + 4 * at as u64]), SUCCESS);
        assert_eq!(call!(driver, cuStreamEndCapture(stream, &mut own)), SUCCESS);
    }
    assert_eq!(call!(driver, cuGraphInstantiateWithFlags(&mut exec, graph, 0_u64)), SUCCESS);
    for _ in 0..2 {
        assert_eq!(call!(driver, cuGraphLaunch(exec, stream)), SUCCESS);
    }
    assert_eq!(driver.words(counted, 3), [0, 0, 2]);
}

extern "C" fn nothing(_value: *mut c_void) {}

#[test]
fn what_no_conditional_node_may_be() {
    let driver = Driver::open();
    let (stream, mut graph, mut exec) = (driver.stream(), 0_u64, 0_u64);
    assert_eq!(call!(driver, cuGraphCreate(&mut graph, 0_u32)), SUCCESS);
    let mut other = 0_u64;
    let create = |graph: u64, context: u64, flags: u32, place: *mut u64| {
        call!(driver, cuGraphConditionalHandleCreate(place, graph, context, 0_u32, flags))
    };
    assert_eq!(create(0xbad, 0, 0, &mut other), INVALID_VALUE);
    assert_eq!(create(graph, 0, 2, &mut other), INVALID_VALUE);
    assert_eq!(create(graph, 0xbad, 0, &mut other), INVALID_CONTEXT);
    assert_eq!(create(graph, 0, 0, ptr::null_mut()), INVALID_VALUE);
    let own = handle(&driver, graph, 0, 0);
    for (handle, kind, size) in [
        (0xbad, WHILE, 1),
        (own, WHILE, 2),
        (own, IF, 0),
        (own, IF, 3),
        (own, SWITCH, 0),
        (own, 3, 1),
    ] {
        assert_eq!(add(&driver, graph, &mut Params::of(handle, kind, size)), INVALID_VALUE);
    }
    assert_eq!(add(&driver, 0xbad, &mut Params::of(own, IF, 1)), INVALID_HANDLE);
    let kernel_node = Params { node_type: 0, ..Params::of(own, IF, 1) };
    assert_eq!(add(&driver, graph, &mut { kernel_node }), NOT_SUPPORTED);
    assert_eq!(begin(&driver, stream, 0xbad), INVALID_HANDLE);
    assert_eq!(begin(&driver, 0, graph), CAPTURE_UNSUPPORTED);
    // A function of the host has no place in a body.
    let mut params = Params::of(own, IF, 1);
    assert_eq!(add(&driver, graph, &mut params), SUCCESS);
    let function: extern "C" fn(*mut c_void) = nothing;
    let (none, mut body) = (ptr::null::<c_void>(), 0_u64);
    assert_eq!(begin(&driver, stream, params.body(0)), SUCCESS);
    assert_eq!(call!(driver, cuLaunchHostFunc(stream, function, none)), SUCCESS);
    assert_eq!(call!(driver, cuStreamEndCapture(stream, &mut body)), SUCCESS);
    let made = call!(driver, cuGraphInstantiateWithFlags(&mut exec, graph, 0_u64));
    assert_eq!(made, INVALID_VALUE);
    let none = ptr::null::<u64>();
    let update =
        call!(driver, cuStreamUpdateCaptureDependencies_v2(stream, none, none, 0_usize, 1_u32));
    assert_eq!(update, ILLEGAL_STATE);
}
