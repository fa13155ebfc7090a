//! Loads a text as PTX and runs its kernels for a while: whatever the text, there is an answer or
//! an error that says where, the checks change nothing, and a second run is like the first.
//!
//! Texts that do not load stay out of the corpus: one that does is a mutation away from as many
//! errors, and others that load too.

#![no_main]

mod mutate;

use kiln_sim::{
    Checks, Device, DeviceConfig, Error, ErrorKind, Kernel, Launch, Module, TensorMap, TensorType,
    Tiled,
};
use libfuzzer_sys::{Corpus, fuzz_mutator, fuzz_target};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of the buffer that each pointer parameter points to.
const BUFFER_BYTES: usize = 8192;
/// Kernels of a module that are run.
const KERNELS_MAX: usize = 4;

fuzz_target!(|data: &[u8]| -> Corpus {
    let module = match Module::load(&String::from_utf8_lossy(data)) {
        Ok(module) => module,
        Err(error) => {
            assert!(error.line().is_some(), "an error of loading without a line: {error}");
            return Corpus::Reject;
        }
    };
    count(&LOADED);
    for name in module.kernels().take(KERNELS_MAX) {
        let kernel = module.kernel(name).expect("the module names it");
        let watched = outcome(&kernel, Checks::ALL, true);
        let plain = outcome(&kernel, Checks::NONE, false);
        if watched.is_ok() {
            count(&COMPLETED);
        }
        assert_eq!(watched, plain, "checks and counters changed what `{name}` did");
    }
    Corpus::Keep
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    mutate::mutate(data, size, max_size, seed)
});

/// Texts that loaded, and kernels that ran to their end: printed with libFuzzer's figures.
static LOADED: AtomicU64 = AtomicU64::new(0);
static COMPLETED: AtomicU64 = AtomicU64::new(0);

fn count(of: &AtomicU64) {
    unsafe extern "C" {
        safe fn atexit(run: extern "C" fn()) -> i32;
    }
    extern "C" fn print() {
        eprintln!("stat::loaded_units:            {}", LOADED.load(Relaxed));
        eprintln!("stat::completed_kernels:       {}", COMPLETED.load(Relaxed));
    }
    static PRINT: Once = Once::new();
    PRINT.call_once(|| {
        atexit(print);
    });
    of.fetch_add(1, Relaxed);
}

/// What a kernel left in memory, or its failure.
fn outcome(kernel: &Kernel, checks: Checks, counters: bool) -> Result<Vec<u8>, String> {
    let device = Device::new(DeviceConfig {
        memory_bytes: 4 << 20,
        shared_bytes_max: 64 << 10,
        sm_count: 4,
        workers: 1,
        ..DeviceConfig::default()
    });
    let buffer = device.alloc(BUFFER_BYTES as u64).expect("the device has room for a buffer");
    let pattern: Vec<u8> = (0..BUFFER_BYTES).map(|at| (at % 251) as u8).collect();
    device.write(buffer, &pattern).expect("the buffer is live");
    let blocks = kernel.cluster().unwrap_or([1; 3]);
    let launch = Launch {
        grid: if blocks == [1; 3] { [2, 1, 1] } else { blocks },
        block: kernel.block().unwrap_or([kernel.block_threads_max().unwrap_or(64).min(160), 1, 1]),
        shared_bytes: 4096,
        cooperative: true,
        checks,
        counters,
        warp_instructions_max: Some(1_000),
        ..Launch::default()
    };
    match device.launch(kernel, &launch, &parameters(kernel, buffer)) {
        Ok(_) => {
            let mut bytes = vec![0; BUFFER_BYTES];
            device.read(buffer, &mut bytes).expect("the buffer is live");
            Ok(bytes)
        }
        Err(error) => Err(failure(&error)),
    }
}

/// A failure's text; one of a kernel that ran must say where.
fn failure(error: &Error) -> String {
    let refused = [ErrorKind::BadLaunch, ErrorKind::OutOfMemory];
    assert!(refused.contains(&error.kind()) || error.place().is_some(), "no place: {error}");
    error.to_string()
}

/// A tensor map for parameters that can hold one, the buffer's address for those of 8 bytes, small
/// numbers for the rest.
fn parameters(kernel: &Kernel, buffer: u64) -> Vec<u8> {
    let map = TensorMap::encode_tiled(&Tiled {
        data_type: TensorType::F32,
        address: buffer,
        dims: &[32, 16],
        strides: &[128],
        box_dims: &[16, 8],
        element_strides: &[1, 1],
        interleave: Default::default(),
        swizzle: Default::default(),
        l2_promotion: Default::default(),
        fill: Default::default(),
    });
    let map = map.expect("the map keeps the rules");
    let mut block = vec![0; kernel.param_bytes()];
    for (index, param) in kernel.params().iter().enumerate() {
        let value = match param.bytes {
            8 => buffer.to_le_bytes().to_vec(),
            128 => map.bytes().to_vec(),
            bytes => (0..bytes).map(|at| if at % 4 == 0 { 3 + index as u8 } else { 0 }).collect(),
        };
        block[param.offset..param.offset + param.bytes].copy_from_slice(&value);
    }
    block
}
