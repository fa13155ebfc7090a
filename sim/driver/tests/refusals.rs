//! What Kiln says when the driver refuses an image or a kernel fails. One test, since nothing works
//! on a device after a kernel has failed on it.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]
#![allow(unsafe_code, reason = "the interface of the CUDA driver")]

use std::path::PathBuf;

use kiln::device::DeviceChoice;
use kiln::expr::{Mode, Pointwise};
use kiln::plan::DeviceMemory;
use kiln::{Config, DType, ErrorKind, Kiln, OperationGraph, VariantPack};

fn open() -> Kiln {
    let cache_dir = Some(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("kernels"));
    let config = Config { device: Some(DeviceChoice::Cuda(0)), cache_dir, ..Config::default() };
    Kiln::open(config).expect("the GPU opens")
}

#[test]
fn refusals_say_what_was_attempted() {
    let test = std::env::current_exe().unwrap();
    // SAFETY: the library runs nothing when it is loaded.
    let library = unsafe { libloading::Library::new(test.with_file_name("libkiln_sim_driver.so")) };
    let _library = library.expect("the driver loads");
    let mut graph = OperationGraph::builder();
    let x = graph.input("x", &[4096], DType::F32);
    let y = graph.pointwise(Pointwise::new(Mode::ReluFwd), &[x]).unwrap();
    graph.output(y, "y", DType::F32);
    let graph = graph.build().unwrap();

    // This driver takes no cubins.
    let error = open().plan(&graph).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Compile);
    let text = error.to_string();
    assert!(text.contains("the driver rejected an image of"), "{text}");
    assert!(text.contains("CUDA_ERROR_NO_BINARY_FOR_GPU"), "{text}");

    // SAFETY: no other thread reads the environment.
    unsafe { std::env::set_var("CUDA_FORCE_PTX_JIT", "1") };
    let kiln = open();
    let plan = kiln.plan(&graph).unwrap();
    let device = kiln.device();
    let y = device.alloc(4 * 4096).unwrap();
    let x_uid = graph.inputs().next().unwrap().uid;
    let y_uid = graph.outputs().next().unwrap().uid;
    let error = device.alloc(1 << 62).unwrap_err();
    let text = "failed to allocate memory: CUDA_ERROR_OUT_OF_MEMORY";
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::OutOfMemory, text));
    // An address that no buffer has, as from another process.
    let mut pack = VariantPack::new().with(y_uid, &y);
    // SAFETY: the simulated driver checks every address; this one is to be refused.
    unsafe { pack.set_address(x_uid, DeviceMemory { address: 0x10_0000, bytes: 4 * 4096 }) };
    let stream = device.stream().unwrap();
    plan.execute(&stream, &pack).expect("a launch does not wait for its kernel");
    let error = stream.synchronize().unwrap_err();
    let stem = &plan.kernels()[0].source().stem;
    let lost = format!("the device is lost: CUDA_ERROR_ILLEGAL_ADDRESS in `{stem}`");
    let is_lost = |error: kiln::Error, attempt: &str| {
        assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error:?}");
        assert_eq!(error.to_string(), format!("failed to {attempt}: {lost}"));
    };
    is_lost(error, "run queued work");
    // Every later call says so instead of what it was about, through another handle too.
    is_lost(device.alloc(16).unwrap_err(), "allocate memory");
    is_lost(plan.execute(&stream, &pack).unwrap_err(), "launch a kernel");
    is_lost(y.to_vec().unwrap_err(), "copy from the GPU");
    is_lost(stream.record().unwrap_err(), "record an event");
    is_lost(device.stream().unwrap_err(), "create a stream");
    is_lost(kiln::device::Device::cuda(0).unwrap_err(), "open the GPU");
    // Handles that outlive the device's health are dropped without a word.
    drop((stream, y, plan));
}
