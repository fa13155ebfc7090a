//! Launches that wait for each other: of one device, of two, and in vain.

#![expect(unsafe_code, reason = "devices share memory of the process")]

use crate::run::{download, line, params, upload};
use kiln_sim::{Checks, Device, DeviceConfig, ErrorKind, Kernel, Launch, Module};
use std::ptr::{self, NonNull};
use std::thread;
use std::time::{Duration, Instant};

/// `turns` takes turns with another launch of itself: so many times it waits until the flag `own`
/// is `first` and two for each turn before, adds 1 to `data`, and sets the flag `other` to one
/// more. `until` waits for `own` until it has seen `first`, or its time has passed.
const PTX: &str = ".version 8.6\n.target sm_80\n.address_size 64\n\
    .visible .entry turns(.param .u64 own, .param .u64 other, .param .u64 data,\n\
        .param .u32 first, .param .u32 count)\n{\n\
        .reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %rd<4>;\n\
        ld.param.u64 %rd1, [own]; ld.param.u64 %rd2, [other]; ld.param.u64 %rd3, [data];\n\
        ld.param.u32 %r1, [first]; ld.param.u32 %r2, [count];\n\
        again: ld.acquire.sys.global.u32 %r3, [%rd1];\n\
        setp.ne.u32 %p1, %r3, %r1; @%p1 bra again;\n\
        ld.global.u32 %r4, [%rd3]; add.u32 %r4, %r4, 1; st.global.u32 [%rd3], %r4;\n\
        add.u32 %r5, %r1, 1; fence.acq_rel.sys; st.release.sys.global.u32 [%rd2], %r5;\n\
        add.u32 %r1, %r1, 2; sub.u32 %r2, %r2, 1;\n\
        setp.ne.u32 %p2, %r2, 0; @%p2 bra again;\n\
        ret;\n}\n\
    .visible .entry until(.param .u64 own, .param .u64 first, .param .u64 time)\n{\n\
        .reg .pred %p<3>; .reg .b32 %r<3>; .reg .b64 %rd<6>;\n\
        ld.param.u64 %rd1, [own]; ld.param.u64 %rd2, [first]; ld.param.u64 %rd3, [time];\n\
        cvt.u32.u64 %r2, %rd2; mov.u64 %rd4, %globaltimer;\n\
        again: ld.acquire.sys.global.u32 %r1, [%rd1];\n\
        setp.eq.u32 %p1, %r1, %r2; @%p1 bra done;\n\
        mov.u64 %rd5, %globaltimer; sub.u64 %rd5, %rd5, %rd4;\n\
        setp.lt.u64 %p2, %rd5, %rd3; @%p2 bra again;\n\
        done: ret;\n}\n";

fn kernel(name: &str) -> Kernel {
    Module::load(PTX).unwrap().kernel(name).unwrap()
}

fn device(patience: Duration) -> Device {
    Device::new(DeviceConfig { patience, ..DeviceConfig::default() })
}

fn checked() -> Launch {
    Launch { checks: Checks::ALL, ..line(1, 1) }
}

/// Takes so many turns.
fn take_turns(device: &Device, places: [u64; 3], first: u64, count: u64) {
    let kernel = kernel("turns");
    let [own, other, data] = places;
    let values = params(&kernel, &[own, other, data, first, count]);
    let report = device.launch(&kernel, &checked(), &values).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(report.findings, []);
}

#[test]
fn two_launches_take_turns() {
    let device = device(Duration::from_secs(60));
    let kernel = kernel("turns");
    assert!(kernel.reads_at_system_scope());
    for late in [0, 1] {
        let [a, b, data] = [0, 0, 0].map(|word: u32| upload(&device, &[word]));
        let run = |which: u64| {
            let places = if which == 0 { [a, b, data] } else { [b, a, data] };
            take_turns(&device, places, which, 500);
        };
        thread::scope(|scope| {
            scope.spawn(|| run(1 - late));
            thread::sleep(Duration::from_millis(5));
            run(late);
        });
        assert_eq!(download::<u32>(&device, data, 1), [1000]);
        assert_eq!([a, b].map(|at| download::<u32>(&device, at, 1)[0]), [1000, 999]);
    }
}

#[test]
fn two_devices_take_turns_in_memory_of_the_host() {
    let devices = [0, 1].map(|_| device(Duration::from_secs(60)));
    let own = devices[0].alloc_host(12).unwrap();
    let start = NonNull::new(ptr::with_exposed_provenance_mut(own as usize)).unwrap();
    // SAFETY: the first device keeps it until the test ends, and the host does not use it while
    // kernels run.
    let other = unsafe { devices[1].map_host(start, 12) }.unwrap();
    assert_eq!(other, own);
    thread::scope(|scope| {
        scope.spawn(|| take_turns(&devices[1], [own + 4, own, own + 8], 1, 200));
        take_turns(&devices[0], [own, own + 4, own + 8], 0, 200);
    });
    assert_eq!(download::<u32>(&devices[0], own, 3), [400, 399, 400]);
}

#[test]
fn a_launch_that_waits_in_vain_is_hung() {
    for patience in [0, 50] {
        let patience = Duration::from_millis(patience);
        let device = device(patience);
        let word = upload(&device, &[7_u32]);
        let kernel = kernel("turns");
        let begun = Instant::now();
        let values = params(&kernel, &[word, word, word, 8, 1]);
        let error = device.launch(&kernel, &checked(), &values).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Deadlock, "{error}");
        assert!(begun.elapsed() >= patience);
    }
}

#[test]
fn clocks_of_a_launch_that_waits_are_the_hosts() {
    let device = device(Duration::from_secs(60));
    let kernel = kernel("until");
    let word = upload(&device, &[7_u32]);
    let wait = |first: u64, time: Duration| {
        let values = params(&kernel, &[word, first, time.as_nanos() as u64]);
        let begun = Instant::now();
        device.launch(&kernel, &checked(), &values).unwrap();
        begun.elapsed()
    };
    let time = Duration::from_millis(20);
    let took = wait(8, time);
    assert!((time..100 * time).contains(&took), "{took:?}");
    assert!(wait(7, Duration::from_secs(1000)) < Duration::from_secs(10));
    // The host's own writes are seen, and nothing ends before them.
    let hour = Duration::from_secs(3600);
    let (written, ended) = thread::scope(|scope| {
        let waits = scope.spawn(|| {
            wait(9, hour);
            Instant::now()
        });
        thread::sleep(time);
        let written = Instant::now();
        device.write(word, &9_u32.to_le_bytes()).unwrap();
        (written, waits.join().unwrap())
    });
    assert!(ended >= written && ended - written < Duration::from_secs(10));
}
