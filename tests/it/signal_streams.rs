//! Signals between streams: graphs that wait for each other in either order, values that are
//! visible behind a wait, and waits that end by their time.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use kiln::device::{Buffer, DeviceChoice, Stream};
use kiln::expr::{Mode, Pointwise};
use kiln::graph::{PassThrough, Signal, SignalMode};
use kiln::plan::ExecutionPlan;
use kiln::{DType, ErrorKind, Kiln, OperationGraph, VariantPack};

use crate::harness;
use crate::signal::{passed, with_bug};

const COUNT: i64 = 1000;

/// One at a time: a wait holds up what other tests write to the device, until its time has ended.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Devices that no other test writes to.
fn devices() -> Vec<Kiln> {
    let open = |device| Kiln::open(harness::checked(device)).unwrap();
    match harness::kiln().device().kind() {
        "sim" => ["sim", "sim120"].map(|of| open(Some(DeviceChoice::Sim(of.to_owned())))).into(),
        _ => vec![open(None)],
    }
}

/// Whether streams run side by side.
fn run_beside() -> bool {
    let preloaded = std::env::var("LD_PRELOAD").unwrap_or_default();
    let beside = !preloaded.contains("kiln_sim_driver");
    if !beside {
        println!("skipped: the simulated driver runs a launch before the next one");
    }
    beside
}

/// A step of one of two that take turns: once `own` is `turn`, `to` is `from` and 1, and then
/// `other` is set to the next turn.
fn step(turn: i64, next: i64) -> OperationGraph {
    let mut graph = OperationGraph::builder();
    let from = graph.input("from", &[COUNT], DType::F32);
    let own = graph.input("own", &[1], DType::I32);
    let other = graph.input("other", &[1], DType::I32);
    let one = graph.scalar("one", 1, DType::F32);
    let from = graph.signal(Signal::wait(turn), own, from).unwrap();
    let sum = graph.pointwise(Pointwise::new(Mode::Add), &[from, one]).unwrap();
    let to = graph.signal(Signal::set(next), other, sum).unwrap();
    graph.output(to, "to", DType::F32);
    graph.build().unwrap()
}

/// What both have in memory: two tensors and two flags.
struct Shared {
    tensors: [Buffer; 2],
    flags: [Buffer; 2],
}

impl Shared {
    fn new(kiln: &Kiln, flag: i32) -> Shared {
        let zeros = vec![0; 4 * COUNT as usize];
        let tensor = || kiln.device().upload(&zeros).unwrap();
        let flag = || kiln.device().upload(&flag.to_le_bytes()).unwrap();
        Shared { tensors: [tensor(), tensor()], flags: [flag(), flag()] }
    }

    /// The pack of a step of the first or the second.
    fn pack(&self, graph: &OperationGraph, which: usize) -> VariantPack {
        let uid = |name: &str| graph.tensor_named(name).unwrap().uid;
        VariantPack::new()
            .with(uid("from"), &self.tensors[which])
            .with(uid("to"), &self.tensors[1 - which])
            .with(uid("own"), &self.flags[which])
            .with(uid("other"), &self.flags[1 - which])
            .with_value(uid("one"), 1.0)
    }

    fn values(&self, which: usize) -> Vec<f32> {
        let bytes = self.tensors[which].to_vec().unwrap();
        bytes.chunks(4).map(|of| f32::from_le_bytes(of.try_into().unwrap())).collect()
    }
}

/// Plans of a step, with what they run on.
fn planned(
    kiln: &Kiln,
    shared: &Shared,
    turns: [i64; 2],
    which: usize,
) -> (ExecutionPlan, VariantPack) {
    let graph = step(turns[0], turns[1]);
    let plan = kiln.plan(&graph).unwrap();
    assert_eq!((plan.kernels().len(), plan.workspace_bytes()), (3, 0));
    let pack = shared.pack(&graph, which);
    (plan, pack)
}

#[test]
fn a_graph_waits_for_another_in_either_order() {
    if !run_beside() {
        return;
    }
    let _alone = alone();
    for kiln in devices() {
        let streams = [kiln.device().stream().unwrap(), kiln.device().stream().unwrap()];
        for order in [[0, 1], [1, 0]] {
            for threads in [false, true] {
                let shared = Shared::new(&kiln, -7);
                // The first waits for what is there.
                let plans = [
                    planned(&kiln, &shared, [-7, i64::from(i32::MIN)], 0),
                    planned(&kiln, &shared, [i64::from(i32::MIN), -1], 1),
                ];
                let run = |at: usize| plans[at].0.execute(&streams[at], &plans[at].1).unwrap();
                if threads {
                    thread::scope(|scope| {
                        scope.spawn(|| run(order[0]));
                        thread::sleep(Duration::from_millis(5));
                        run(order[1]);
                    });
                } else {
                    order.into_iter().for_each(run);
                }
                streams.iter().for_each(|stream| stream.synchronize().unwrap());
                assert_eq!(shared.values(0), [2.0; COUNT as usize], "{order:?}");
                let flags = [0, 1].map(|at| shared.flags[at].to_vec().unwrap());
                assert_eq!(flags, [(-1_i32).to_le_bytes(), i32::MIN.to_le_bytes()], "{order:?}");
            }
        }
    }
}

#[test]
fn two_streams_take_a_hundred_turns() {
    const ROUNDS: i64 = 100;
    if !run_beside() {
        return;
    }
    let _alone = alone();
    for kiln in devices() {
        let shared = Shared::new(&kiln, 0);
        let plans: Vec<Vec<(ExecutionPlan, VariantPack)>> = (0..2)
            .map(|which| {
                let turns = |round| if which == 0 { [round, round + 1] } else { [round + 1; 2] };
                (0..ROUNDS).map(|at| planned(&kiln, &shared, turns(at), which)).collect()
            })
            .collect();
        let kernels = plans[1].iter().map(|(plan, _)| plan.kernels()[0].report().key);
        assert!(kernels.clone().all(|key| Some(key) == kernels.clone().next()), "one for all");
        let streams = [kiln.device().stream().unwrap(), kiln.device().stream().unwrap()];
        let run = |which: usize| {
            plans[which]
                .iter()
                .for_each(|(plan, pack)| plan.execute(&streams[which], pack).unwrap());
        };
        // All of the first, then all of the second, from one thread; then the second from another.
        for threads in [false, true] {
            for at in [0, 1] {
                shared.tensors[at].write(0, &vec![0; 4 * COUNT as usize]).unwrap();
                shared.flags[at].write(0, &[0; 4]).unwrap();
            }
            match threads {
                false => [0, 1].into_iter().for_each(run),
                true => thread::scope(|scope| {
                    scope.spawn(|| run(1));
                    run(0);
                }),
            }
            streams.iter().for_each(|stream| stream.synchronize().unwrap());
            assert_eq!(shared.values(0), [2.0 * ROUNDS as f32; COUNT as usize]);
            assert_eq!(shared.values(1), [2.0 * ROUNDS as f32 - 1.0; COUNT as usize]);
        }
    }
}

const WAIT: Signal =
    Signal { mode: SignalMode::Wait, value: 5, timeout_ms: 20, pass: PassThrough::Default };

/// A wait for 5 that ends after 20 ms, and what it runs on; the flag is uid 2.
struct Waiting {
    plan: ExecutionPlan,
    pack: VariantPack,
    y: Buffer,
    flag: Buffer,
}

impl Waiting {
    fn new(kiln: &Kiln, flag: i32) -> Waiting {
        Waiting::of(kiln, &passed(WAIT, DType::F32), flag)
    }

    fn of(kiln: &Kiln, graph: &OperationGraph, flag: i32) -> Waiting {
        let plan = kiln.plan(graph).unwrap();
        let uid = |name: &str| graph.tensor_named(name).unwrap().uid;
        let flag = kiln.device().upload(&flag.to_le_bytes()).unwrap();
        let x = kiln.device().upload(&[1; 480]).unwrap();
        let y = kiln.device().upload(&[0; 480]).unwrap();
        let pack = VariantPack::new().with(uid("x"), &x).with(uid("flag"), &flag);
        let pack = match graph.tensor_named("y") {
            Ok(tensor) => pack.with(tensor.uid, &y),
            Err(_) => pack,
        };
        Waiting { plan, pack, y, flag }
    }

    fn run(&self, stream: &Stream) {
        self.plan.execute(stream, &self.pack).unwrap();
    }
}

#[track_caller]
fn ended<T: std::fmt::Debug>(result: kiln::Result<T>, seen: i32) {
    let error = result.unwrap_err();
    let text = format!("wait for flag `flag` (uid 2) to be 5 ended after 20 ms: it is {seen}");
    assert_eq!((error.kind(), error.to_string()), (ErrorKind::Driver, text));
}

#[test]
fn a_wait_that_is_in_vain_is_an_error_of_its_stream() {
    let _alone = alone();
    for kiln in devices() {
        let [a, b] = [kiln.device().stream().unwrap(), kiln.device().stream().unwrap()];
        for seen in [0, 6, 7, -5, i32::MIN, i32::MAX] {
            let waiting = Waiting::new(&kiln, seen);
            let begun = Instant::now();
            waiting.run(&a);
            b.synchronize().unwrap();
            ended(a.synchronize(), seen);
            let took = begun.elapsed();
            // The simulated driver's clock leaps.
            let least = if run_beside() { 20 } else { 0 };
            assert!((least..2000).contains(&took.as_millis()), "{took:?}");
            // It is told once, and the stream works.
            a.synchronize().unwrap();
            waiting.flag.write(0, &5_i32.to_le_bytes()).unwrap();
            waiting.run(&a);
            a.synchronize().unwrap();
            assert_eq!(waiting.y.to_vec().unwrap(), [1; 480]);
        }
        let waiting = Waiting::new(&kiln, 4);
        // A copy waits for all streams, but the errors of another are not its own.
        waiting.run(&b);
        assert_eq!(waiting.y.to_vec().unwrap(), [1; 480]);
        ended(b.synchronize(), 4);
        let default = kiln.device().default_stream();
        waiting.run(&default);
        ended(waiting.y.to_vec(), 4);
        let start = a.record().unwrap();
        waiting.run(&a);
        ended(a.record().unwrap().elapsed_ms(&start), 4);
        // Two waits of one plan on two streams, one of them in vain.
        let lucky = Waiting::new(&kiln, 5);
        waiting.run(&a);
        lucky.run(&b);
        b.synchronize().unwrap();
        ended(a.synchronize(), 4);
    }
}

#[test]
fn what_comes_behind_a_wait_in_vain_still_runs() {
    let _alone = alone();
    for kiln in devices() {
        let stream = kiln.device().stream().unwrap();
        let waiting = Waiting::new(&kiln, 1);
        waiting.run(&stream);
        waiting.run(&stream);
        ended(stream.synchronize(), 1);
        assert_eq!(waiting.y.to_vec().unwrap(), [1; 480]);
    }
}

#[test]
fn a_plan_may_be_dropped_while_it_waits() {
    let _alone = alone();
    for kiln in devices() {
        let stream = kiln.device().stream().unwrap();
        let Waiting { plan, pack, y, flag } = Waiting::new(&kiln, 1);
        plan.execute(&stream, &pack).unwrap();
        drop((plan, pack));
        ended(stream.synchronize(), 1);
        drop((stream, y, flag));
        let stream = kiln.device().stream().unwrap();
        Waiting::new(&kiln, 2).run(&stream);
        drop(stream);
        kiln.stream().synchronize().unwrap();
    }
}

#[test]
fn bugs_in_the_wait_are_found() {
    if harness::kiln().device().kind() != "sim" {
        println!("skipped: the kernels of a GPU are not exchanged");
        return;
    }
    let _alone = alone();
    let outcome = |from: &str, to: &str, flag: i32| {
        let (kiln, _folder) = with_bug(WAIT, from, to);
        let mut graph = OperationGraph::builder();
        let x = graph.input("x", &[5, 24], DType::F32);
        let own = graph.input("flag", &[1], DType::I32);
        graph.signal(WAIT.without_result(), own, x).unwrap();
        let graph = graph.build().unwrap();
        let stream = kiln.device().stream().unwrap();
        Waiting::of(&kiln, &graph, flag).run(&stream);
        stream.synchronize().map_err(|error| error.to_string())
    };
    let said =
        |seen| Err(format!("wait for flag `flag` (uid 2) to be 5 ended after 20 ms: it is {seen}"));
    let equal = "seen == value";
    assert_eq!(outcome(equal, equal, 5), Ok(()));
    assert_eq!(outcome(equal, equal, 6), said(6));
    // Greater, other, and any values end the wait.
    assert_eq!(outcome(equal, "seen >= value", 6), Ok(()));
    assert_eq!(outcome(equal, "seen != value", 4), Ok(()));
    assert_eq!(outcome(equal, "unsigned(seen) >= value", -1), Ok(()));
    // It does not say so, or not what it saw.
    assert_eq!(outcome("if (report->ended == 0) *report = {1, seen};", "", 6), Ok(()));
    assert_eq!(outcome("*report = {1, seen}", "*report = {1, 0}", 6), said(0));
    assert_eq!(outcome("report->ended == 0", "report->ended != 0", 6), Ok(()));
}
