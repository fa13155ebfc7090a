//! Kernels whose threads and blocks work together.

use crate::run::{device, dialects, download, launch, line, seeded, upload};
use kiln_sim::{Device, DeviceConfig, Launch, Module};
use std::collections::HashSet;

fn values(count: usize) -> Vec<u32> {
    (0..count as u32).map(|i| i.wrapping_mul(2_654_435_761) >> 3).collect()
}

#[test]
fn row_softmax() {
    let (rows, columns) = (5, 1000);
    let x: Vec<f32> = values(rows * columns).iter().map(|v| (v % 1000) as f32 / 100.0).collect();
    let device = device();
    for module in dialects("blocks") {
        let kernel = module.kernel("row_softmax").unwrap();
        let out = upload(&device, &vec![0_f32; x.len()]);
        let arguments = [upload(&device, &x), out, columns as u64];
        launch(&device, &kernel, line(rows as u32, 256), &arguments);
        let out: Vec<f32> = download(&device, out, x.len());
        for (x, y) in x.chunks(columns).zip(out.chunks(columns)) {
            let sum: f64 = x.iter().map(|&v| f64::from(v).exp()).sum();
            for (x, y) in x.iter().zip(y) {
                let want = f64::from(*x).exp() / sum;
                assert!((f64::from(*y) - want).abs() < want * 1e-5, "{y} {want}");
            }
        }
    }
}

#[test]
fn tiled_matmul() {
    let (m, n, k) = (50, 33, 70);
    let a: Vec<f32> = values(m * k).iter().map(|v| (v % 13) as f32 - 6.0).collect();
    let b: Vec<f32> = values(k * n).iter().map(|v| (v % 11) as f32 - 5.0).collect();
    let device = device();
    for module in dialects("blocks") {
        let kernel = module.kernel("matmul").unwrap();
        assert_eq!(kernel.shared_bytes(), 2 * 16 * 17 * 4);
        assert_eq!(kernel.block_threads_max(), Some(256));
        let out = upload(&device, &vec![0_f32; m * n]);
        let buffers = [upload(&device, &a), upload(&device, &b), out];
        let sizes = [m as u64, n as u64, k as u64];
        let shape = Launch { grid: [3, 4, 1], block: [16, 16, 1], ..line(1, 1) };
        launch(&device, &kernel, shape, &[buffers, sizes].concat());
        let out: Vec<f32> = download(&device, out, m * n);
        for (at, got) in out.iter().enumerate() {
            let (row, column) = (at / n, at % n);
            let want: f32 = (0..k).map(|i| a[row * k + i] * b[i * n + column]).sum();
            assert_eq!(*got, want, "{row} {column}");
        }
    }
}

#[test]
fn histogram_in_dynamic_shared_memory() {
    let x = values(10_000);
    let mut want = vec![0; 64];
    x.iter().for_each(|v| want[*v as usize & 63] += 1);
    let device = device();
    for module in dialects("blocks") {
        let kernel = module.kernel("histogram").unwrap();
        let bins = upload(&device, &[0_u32; 64]);
        let shape = Launch { shared_bytes: 256, ..line(7, 96) };
        launch(&device, &kernel, shape, &[upload(&device, &x), bins, 10_000]);
        assert_eq!(download::<u32>(&device, bins, 64), want);
    }
}

#[test]
fn votes_and_barrier_reductions() {
    let x: Vec<i32> = (0..64).map(|i| (i * 5) % 11).collect();
    let device = device();
    for module in dialects("blocks") {
        let kernel = module.kernel("votes").unwrap();
        let out = upload(&device, &[0_u32; 64 * 6]);
        launch(&device, &kernel, line(1, 64), &[upload(&device, &x), out]);
        let out: Vec<u32> = download(&device, out, 64 * 6);
        for (thread, out) in out.chunks(6).enumerate() {
            let warp = &x[thread / 32 * 32..][..32];
            let mask = |f: &dyn Fn(i32) -> bool| {
                warp.iter().enumerate().fold(0_u32, |m, (i, &v)| m | u32::from(f(v)) << i)
            };
            let sum: i32 = warp.iter().sum();
            let odd = x.iter().filter(|&&v| v & 1 != 0).count() as u32;
            let any = u32::from(x.contains(&7));
            let mine = x[thread] & 3;
            let want = [mask(&|v| v > 3), sum as u32, mask(&|v| v & 3 == mine), any, odd, !0];
            assert_eq!(out, want, "thread {thread}");
        }
    }
}

#[test]
fn grid_barriers_progress_on_any_number_of_workers() {
    let rounds = 3;
    for workers in [1, 2, 3] {
        let device = Device::new(DeviceConfig { workers, ..DeviceConfig::default() });
        for module in dialects("blocks") {
            let kernel = module.kernel("grid_barrier").unwrap();
            let arrived = upload(&device, &[0_u32]);
            let (data, out) = (upload(&device, &[0_u32; 16]), upload(&device, &[0_u32; 16]));
            let shape = Launch { cooperative: true, ..line(16, 64) };
            launch(&device, &kernel, shape, &[arrived, data, out, rounds]);
            let out: Vec<u32> = download(&device, out, 16);
            for (block, got) in out.iter().enumerate() {
                let next = (block as u32 + 1) % 16;
                assert_eq!(*got, (0..3).map(|round| round * 100 + next).sum::<u32>());
            }
        }
    }
}

#[test]
fn lanes_take_a_spinlock() {
    let device = device();
    for module in dialects("blocks") {
        for name in ["spinlock", "spinlock_entered"] {
            let kernel = module.kernel(name).unwrap();
            let (lock, count) = (upload(&device, &[0_u32]), upload(&device, &[0_u32]));
            launch(&device, &kernel, line(3, 70), &[lock, count]);
            assert_eq!(download::<u32>(&device, count, 1), [210]);
        }
    }
}

#[test]
fn device_functions_are_called() {
    let x: Vec<f32> = (0..100).map(|i| i as f32 / 50.0).collect();
    let polynomial =
        |x: f32, degree: usize| (0..=degree).fold(0_f32, |sum, i| sum.mul_add(x, i as f32));
    let device = device();
    for module in dialects("blocks") {
        let kernel = module.kernel("calls").unwrap();
        let out = upload(&device, &[0_f32; 100]);
        launch(&device, &kernel, line(4, 32), &[upload(&device, &x), out, 100]);
        let out: Vec<f32> = download(&device, out, 100);
        for i in 0..100 {
            assert_eq!(out[i], polynomial(x[i], i % 7) + polynomial(x[i], 2), "{i}");
        }
    }
}

#[test]
fn switches_diverge() {
    let x = values(1000);
    let device = device();
    for module in dialects("blocks") {
        let kernel = module.kernel("switches").unwrap();
        let out = upload(&device, &[0_u32; 1000]);
        launch(&device, &kernel, line(4, 256), &[upload(&device, &x), out, 1000]);
        let out: Vec<u32> = download(&device, out, 1000);
        for (i, (&v, &got)) in x.iter().zip(&out).enumerate() {
            let want = match v & 7 {
                0 => v.wrapping_mul(3),
                1 => v ^ 0x55,
                2 => v.wrapping_add(i as u32),
                3 => v.count_ones(),
                4 => v >> 3,
                5 => v / 7,
                6 => !v,
                _ => 0,
            };
            assert_eq!(got, want, "{i}");
        }
    }
}

#[test]
fn local_memory_is_each_lanes_own() {
    let x = values(300);
    let device = device();
    for module in dialects("blocks") {
        let kernel = module.kernel("local_array").unwrap();
        let out = upload(&device, &[0_u32; 300]);
        launch(&device, &kernel, line(5, 64), &[upload(&device, &x), out, 300]);
        let out: Vec<u32> = download(&device, out, 300);
        for i in 0..300 {
            let mut table = [0; 16];
            for j in 0..16 {
                table[(x[i] as usize + j * 5) & 15] = x[(i + j) % 300];
            }
            let want = (0..16).fold(0_u32, |sum, j| {
                sum.wrapping_mul(31).wrapping_add(table[(j + (x[i] >> 4) as usize) & 15])
            });
            assert_eq!(out[i], want, "{i}");
        }
    }
}

#[test]
fn module_variables_last_between_launches() {
    let device = device();
    for module in dialects("blocks") {
        let kernel = module.kernel("variables").unwrap();
        let (out, seen) = (upload(&device, &[0_f32; 8]), upload(&device, &[0_u32]));
        for launched in 40..43 {
            launch(&device, &kernel, line(1, 8), &[out, seen]);
            assert_eq!(download::<u32>(&device, seen, 1), [launched]);
        }
        let out: Vec<f32> = download(&device, out, 8);
        assert_eq!(out, [0.5, -1.25, 2.0, 8.0, 0.5, -1.25, 2.0, 8.0]);
    }
}

#[test]
fn neighbouring_bytes_of_blocks_are_kept() {
    let device = device();
    for module in dialects("blocks") {
        let kernel = module.kernel("bytes").unwrap();
        let out = upload(&device, &[0_u8; 4001]);
        launch(&device, &kernel, line(16, 256), &[out, 4001]);
        let want: Vec<u8> = (0..4001_u32).map(|i| (i * 7) as u8).collect();
        assert_eq!(download::<u8>(&device, out, 4001), want);
    }
}

#[test]
fn runs_are_the_same_every_time() {
    let x: Vec<f32> = values(5000).iter().map(|v| (v % 1000) as f32 / 100.0).collect();
    let device = Device::new(DeviceConfig { workers: 1, ..DeviceConfig::default() });
    let kernel = dialects("blocks")[0].kernel("row_softmax").unwrap();
    let mut reports = Vec::new();
    for _ in 0..3 {
        let out = upload(&device, &vec![0_f32; x.len()]);
        let report = launch(&device, &kernel, line(5, 256), &[upload(&device, &x), out, 1000]);
        let bits: Vec<u32> =
            download::<f32>(&device, out, 5000).iter().map(|v| v.to_bits()).collect();
        reports.push((report, bits));
    }
    assert!(reports.windows(2).all(|pair| pair[0] == pair[1]));
}

/// Each warp notes the number that it draws.
const TICKETS: &str = "
    .version 8.0 .target sm_80 .address_size 64
    .visible .entry tickets(.param .u64 next, .param .u64 drawn)
    {
        .reg .b32 %r<3>; .reg .b64 %rd<4>;
        ld.param.u64 %rd1, [next];
        ld.param.u64 %rd2, [drawn];
        mov.u32 %r1, %tid.x;
        shr.u32 %r1, %r1, 5;
        mul.wide.u32 %rd3, %r1, 4;
        add.s64 %rd2, %rd2, %rd3;
        atom.global.inc.u32 %r2, [%rd1], 1024;
        st.global.u32 [%rd2], %r2;
        ret;
    }";

#[test]
fn every_seed_is_another_order() {
    let module = Module::load(TICKETS).unwrap();
    let kernel = module.kernel("tickets").unwrap();
    let orders: HashSet<Vec<u32>> = (0..16)
        .map(|seed| {
            let device = seeded(seed);
            let (next, drawn) = (upload(&device, &[0_u32]), upload(&device, &[0_u32; 32]));
            launch(&device, &kernel, line(1, 1024), &[next, drawn]);
            download(&device, drawn, 32)
        })
        .collect();
    assert_eq!(orders.len(), 16);
}
