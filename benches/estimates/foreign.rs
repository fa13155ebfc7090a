//! Kernels that others compiled: run on the simulator, a sample of their blocks, and estimated.

use std::collections::BTreeMap;
use std::path::Path;

use kiln_machine::Machine;
use kiln_sass::{Cubin, Estimate};
use kiln_sim::{Device, DeviceConfig, Module};
use serde::Deserialize;

use crate::{Result, SAMPLE};

/// A launch, as `triton_kernels.py` writes it.
#[derive(Deserialize)]
struct Launch {
    grid: [u32; 3],
    threads: u32,
    shared_bytes: u32,
    /// Bytes of all operands.
    bytes_min: u64,
    arguments: Vec<Argument>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Argument {
    /// Memory of so many bytes.
    Bytes(u64),
    I32(i32),
    F32(f32),
}

/// The least estimate of a row's configurations, and which it is.
pub fn best(folder: &Path, row: &str, machine: &Machine) -> Result<(usize, Estimate)> {
    let mut all = Vec::new();
    while folder.join(format!("{row}.{}.json", all.len())).exists() {
        all.push(estimated(folder, &format!("{row}.{}", all.len()), machine)?);
    }
    let least = all.into_iter().enumerate().min_by(|a, b| a.1.us.total_cmp(&b.1.us));
    least.ok_or_else(|| format!("`{}` has no kernel for {row}", folder.display()).into())
}

fn estimated(folder: &Path, stem: &str, machine: &Machine) -> Result<Estimate> {
    let file = |ending: &str| folder.join(format!("{stem}.{ending}"));
    let job: Launch = serde_json::from_str(&std::fs::read_to_string(file("json"))?)?;
    let cubin = Cubin::parse(&std::fs::read(file("cubin"))?)?;
    let code = cubin.codes.first().ok_or("the cubin has no kernel")?;
    let module = Module::load(&std::fs::read_to_string(file("ptx"))?)?;
    let kernel = module.kernel(&code.name).ok_or("the PTX has another kernel than the cubin")?;
    // Memory is as never written: zeros, and what is executed does not depend on it.
    let device = Device::new(DeviceConfig::default());
    let mut params = vec![0; kernel.param_bytes()];
    for (argument, param) in job.arguments.iter().zip(kernel.params()) {
        let bytes = match argument {
            Argument::Bytes(bytes) => device.alloc(*bytes)?.to_le_bytes().to_vec(),
            Argument::I32(value) => value.to_le_bytes().to_vec(),
            Argument::F32(value) => value.to_le_bytes().to_vec(),
        };
        params[param.offset..][..param.bytes].copy_from_slice(&bytes);
    }
    let launch = kiln_sim::Launch {
        grid: job.grid,
        block: [job.threads, 1, 1],
        shared_bytes: job.shared_bytes,
        counters: true,
        clusters_max: Some(SAMPLE.into()),
        ..kiln_sim::Launch::default()
    };
    let report = device.launch(&kernel, &launch, &params)?;
    let counters = report.counters.ok_or("nothing was counted")?;
    let blocks = job.grid.iter().map(|&size| u64::from(size)).product();
    // The other blocks do as much as those of the sample.
    let all = |count: u64| count * blocks / counters.blocks;
    let lines = counters.lines.iter();
    let lines: BTreeMap<u32, Vec<u64>> =
        lines.map(|line| (line.line, line.warps.iter().map(|&of| all(of)).collect())).collect();
    let total = &counters.total;
    let launch = kiln_sass::Launch {
        blocks,
        counted: counters.blocks,
        threads: job.threads,
        shared_bytes: job.shared_bytes,
        lines: &lines,
        wavefronts: all(total.shared_loads.wavefronts + total.shared_stores.wavefronts),
        paired: all(total.shared_loads.paired),
        copied_bytes: all(total.copies.bytes),
        cluster_sectors: all(total.copies.cluster_sectors),
        l2_bytes: all(total.global.sectors * 32),
        beyond_l1_bytes: all(total.global.beyond_l1(counters.dram_read_bytes)),
        dram_bytes: job.bytes_min,
        order: None,
    };
    Ok(Estimate::of(code, machine, &launch))
}
