//! Cubins that NVRTC and ptxas compiled, against what NVIDIA's disassembler printed of them.

use kiln_machine::Machine;
use kiln_sass::{Bound, Cubin, Estimate, Flow, Jump, Launch, Pipe, Stream, TileOrder};
use std::collections::BTreeMap;
use std::path::Path;

fn read(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn parse(name: &str) -> Cubin {
    Cubin::parse(&read(&format!("{name}.cubin"))).unwrap_or_else(|error| panic!("{name}: {error}"))
}

const LISTED: [(&str, u32); 5] =
    [("sm_75", 75), ("sm_80", 80), ("sm_90a", 90), ("sm_100a", 100), ("sm_120", 120)];

/// Mnemonics that stand for several of the disassembler's.
fn is_named(ours: &str, theirs: &str) -> bool {
    match ours {
        "REDG" => matches!(theirs, "RED" | "REDG"),
        "ERRBAR" => matches!(theirs, "ERRBAR" | "CGAERRBAR"),
        "UCGABAR" => theirs.starts_with("UCGABAR"),
        "UTCMMA" => theirs.starts_with("UTC"),
        _ => ours == theirs,
    }
}

#[test]
fn names_and_targets_are_those_of_the_disassembler() {
    for (name, architecture) in LISTED {
        let cubin = parse(name);
        assert_eq!(cubin.architecture, architecture, "{name}");
        let [code] = &cubin.codes[..] else { panic!("{name}: {} codes", cubin.codes.len()) };
        let listing = String::from_utf8(read(&format!("{name}.txt"))).expect("text");
        assert_eq!(listing.lines().count(), code.instructions.len(), "{name}");
        for (line, instruction) in listing.lines().zip(&code.instructions) {
            let mut words = line.split(' ');
            let address = words.next().unwrap_or_default();
            assert_eq!(address, format!("{:#x}", instruction.address), "{name}");
            let mnemonic = words.next().unwrap_or_default();
            let theirs = mnemonic.split('.').next().unwrap_or_default();
            let ours = instruction.name();
            assert!(is_named(ours, theirs), "{name} {address}: {ours}, not {theirs}");
            let widths = ["LDG", "STG", "LDS", "STS", "LDGSTS"];
            if widths.contains(&ours) {
                let bits = mnemonic.split('.').filter_map(|part| part.parse::<u32>().ok()).next();
                let short = if mnemonic.contains("16") { 16 } else { 32 };
                let short = if mnemonic.contains("U8") { 8 } else { short };
                assert_eq!(instruction.bytes() * 8, bits.unwrap_or(short), "{name} {line}");
            }
            if let (Some(target), Some(Jump::To { target: ours, .. })) =
                (words.next(), instruction.jump())
            {
                assert_eq!(format!("{ours:#x}"), target, "{name} {line}");
            }
        }
    }
}

#[test]
fn a_cubin_says_what_its_kernel_takes() {
    let taken = LISTED.map(|(name, _)| {
        let code = parse(name).codes.remove(0);
        (code.registers, code.shared_bytes, code.local_bytes)
    });
    let registers: Vec<u32> = taken.iter().map(|taken| taken.0).collect();
    assert!(registers.iter().all(|registers| (8..=255).contains(registers)), "{registers:?}");
    let code = parse("sum").codes.remove(0);
    assert_eq!((code.registers, code.local_bytes), (14, 0));
    let load = code.instructions.iter().find(|of| of.name() == "LDG").expect("a load");
    assert_eq!(code.ptx_of(load), Some("ld.global.f32 %f2, [%rd1];"));
}

#[test]
fn files_that_are_no_cubins() {
    let message = |bytes: &[u8]| Cubin::parse(bytes).expect_err("no cubin").to_string();
    assert!(message(b"").starts_with("damaged ELF file"));
    let own = std::fs::read("/proc/self/exe").expect("this program");
    assert_eq!(message(&own), "an ELF file, but not one of a GPU");
    // Every cut and every damaged byte of the header ends in an answer.
    let bytes = read("sum.cubin");
    for length in (0..bytes.len()).step_by(97) {
        let _ = Cubin::parse(&bytes[..length]);
    }
    // Where the bytes are in memory does not matter.
    for offset in 0..8 {
        let moved = [&vec![0; offset], &bytes[..]].concat();
        assert!(Cubin::parse(&moved[offset..]).is_ok(), "{offset}");
    }
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0xff;
        if let Ok(cubin) = Cubin::parse(&damaged) {
            for code in &cubin.codes {
                Estimate::uncounted(code, &Machine::H100);
            }
        }
    }
}

/// An estimate of a kernel, whose loop a warp repeats so often, in blocks of so many warps.
fn estimated(name: &str, [blocks, warps]: [u64; 2], repeats: u64) -> Estimate {
    launched(name, [blocks, warps], repeats, None)
}

/// The same, with the order in which blocks read.
fn launched(
    name: &str,
    [blocks, warps]: [u64; 2],
    repeats: u64,
    order: Option<&TileOrder>,
) -> Estimate {
    launched_of(name, [blocks, warps], repeats, (order, blocks))
}

/// The same, of so many blocks that were counted.
fn launched_of(
    name: &str,
    [blocks, warps]: [u64; 2],
    repeats: u64,
    (order, counted): (Option<&TileOrder>, u64),
) -> Estimate {
    let code = parse(name).codes.remove(0);
    let text = String::from_utf8(read(&format!("{name}.ptx"))).expect("text");
    let mut lines = BTreeMap::new();
    let mut counts = false;
    let all = blocks * warps;
    let each = |count: u64| vec![count / warps; warps as usize];
    for (number, line) in (1..).zip(text.lines()) {
        let label = line.trim_end().strip_suffix(':');
        counts = match label {
            Some(label) => label == "LOOP",
            None => counts,
        };
        lines.insert(number, each(if counts { all * repeats } else { all }));
    }
    let launch = Launch {
        blocks,
        counted,
        threads: warps as u32 * 32,
        shared_bytes: 0,
        lines: &lines,
        wavefronts: 0,
        paired: 0,
        copied_bytes: 0,
        cluster_sectors: 0,
        l2_bytes: all * repeats * 128,
        beyond_l1_bytes: all * repeats * 128,
        dram_bytes: all * repeats * 128,
        order,
    };
    Estimate::of(&code, &Machine::H100, &launch)
}

/// Clocks of a bound.
fn clocks(estimate: &Estimate, bound: Bound) -> f64 {
    estimate.bounds.iter().filter(|of| of.bound == bound).map(|of| of.clocks).sum()
}

#[test]
fn counts_of_lines_are_those_of_unrolled_loops() {
    for repeats in [100, 103, 1000] {
        let estimate = estimated("sum", [1, 1], repeats);
        let [of] = &estimate.loops[..] else { panic!("{:?}", estimate.loops) };
        // Four loads at a time; what is left over is executed behind the loop.
        let expected = repeats as f64 / 4.0;
        assert!((of.trips / expected - 1.0).abs() < 0.15, "{repeats}: {} trips", of.trips);
        let loads = estimate.mix.pipes["LSU"].0;
        assert!((loads / repeats as f64 - 1.0).abs() < 0.1, "{repeats}: {loads} loads");
    }
}

#[test]
fn a_chain_of_loads_waits_and_many_warps_do_not() {
    let alone = estimated("sum", [1, 1], 1000);
    assert_eq!(alone.bounds[0].bound, Bound::Latency);
    // Each iteration waits for one load from device memory: 479 clocks.
    let iteration = alone.loops[0].walk;
    assert!((479.0..600.0).contains(&iteration), "{iteration}");
    let path = alone.path;
    assert!((250.0 * iteration * 0.8..250.0 * iteration * 1.3).contains(&path), "{path}");
    // A full GPU is bound by memory, not by any warp.
    let full = estimated("sum", [132 * 32, 1], 1000);
    assert_eq!(full.bounds[0].bound, Bound::Dram, "{:?}", full.bounds);
    // Its warps do not wait for each other, and tensor cores that are idle leave boost.
    assert_eq!(clocks(&full, Bound::Phases), 0.0);
    assert_eq!(full.clock_hz, Machine::H100.clock_hz);
}

#[test]
fn what_barriers_part_does_not_overlap() {
    let repeats = 100;
    let each = |warps: u64| {
        let estimate = estimated("phases", [132, warps], repeats);
        let of = |bound| clocks(&estimate, bound) / repeats as f64;
        let [special, fma] = [Pipe::Special, Pipe::Fma].map(|pipe| of(Bound::Pipe(pipe)));
        (special, fma, of(Bound::Phases), of(Bound::Latency))
    };
    // 16 exponentials in 8 clocks each, then 64 FMAs, of four warps of each scheduler.
    let (special, fma, phases, latency) = each(16);
    assert!((special / 512.0 - 1.0).abs() < 0.05, "{special}");
    assert!((fma / 256.0 - 1.0).abs() < 0.1, "{fma}");
    assert!((1.0..1.3).contains(&(phases / (special + fma))), "{phases}");
    assert!(latency < special, "{latency}");
    // Four warps have a scheduler each, and share only what accesses memory.
    let (.., four, _) = each(4);
    let (.., one, alone) = each(1);
    assert!((1.0..1.1).contains(&(four / one)), "{four} {one}");
    assert!((one / alone - 1.0).abs() < 0.02, "{one} {alone}");
}

#[test]
fn what_l2_does_not_keep_is_read_again() {
    // Four rounds of resident blocks read the same 64 MiB, more than L2 holds, or 16 MiB.
    let resident = 132 * 32;
    let read = |bytes: u32| {
        let stream = Stream { first: 0, chunks: 16, bytes: bytes / 16 };
        let tiles = vec![vec![stream]; 4 * resident];
        let order = TileOrder { tiles, blocks: 1, persistent: false };
        let estimate = launched("sum", [4 * resident as u64, 1], 1, Some(&order));
        assert_eq!(estimate.resident_blocks, 32);
        clocks(&estimate, Bound::Dram)
    };
    let (kept, again) = (read(16 << 20), read(64 << 20));
    let seconds = 3.0 * f64::from(64 << 20) / Machine::H100.dram_bytes_second;
    let more = (again - kept) / Machine::H100.clock_hz / seconds;
    // Nine tenths of the data sheet's bandwidth.
    assert!((more * 0.9 - 1.0).abs() < 0.01, "{more}");
}

/// Of a persistent launch whose tiles differ, the block that has the most decides what an SM takes.
#[test]
fn the_busiest_block_counts() {
    let tile = |chunks: u32| vec![Stream { first: 0, chunks, bytes: 1 }];
    let order = |steps: &dyn Fn(usize) -> u32| {
        let tiles = (0..2 * 132).map(|at| tile(steps(at % 132))).collect();
        TileOrder { tiles, blocks: 1, persistent: true }
    };
    let uneven_steps = |block: usize| if block == 66 { 6 } else { 3 };
    let of = |order: TileOrder| launched("phases", [132, 1], 100, Some(&order));
    let (even, uneven) = (of(order(&|_| 3)), of(order(&uneven_steps)));
    for bound in [Bound::Latency, Bound::Issue, Bound::Pipe(Pipe::Fma)] {
        let times = clocks(&uneven, bound) / clocks(&even, bound);
        assert!((times / (2.0 * 132.0 / 133.0) - 1.0).abs() < 1e-9, "{bound}: {times}");
    }
    assert_eq!(clocks(&uneven, Bound::Dram), clocks(&even, Bound::Dram));
    // Of two blocks that were counted, one is the busiest, and so counts half.
    let sampled = launched_of("phases", [132, 1], 100, (Some(&order(&uneven_steps)), 2));
    let times = clocks(&sampled, Bound::Latency) / clocks(&even, Bound::Latency);
    assert!((times / (6.0 / 4.5) - 1.0).abs() < 1e-9, "{times}");
}

#[test]
fn loops_of_a_kernel_are_found() {
    for (name, _) in LISTED {
        let code = parse(name).codes.remove(0);
        let flow = Flow::of(&code);
        for each in &flow.loops {
            let entered = flow.blocks[each.header].entered_by.iter();
            let back = entered.filter(|&&edge| each.blocks.contains(&flow.edges[edge].from));
            assert!(back.count() > 0, "{name}");
        }
        let estimate = Estimate::uncounted(&code, &Machine::H100);
        assert_eq!(estimate.loops.len(), flow.loops.len());
        for each in &estimate.loops {
            let busy = each.mix.pipes.values().map(|of| of.1).fold(0.0, f64::max);
            assert!(each.walk > 0.0 && busy >= 0.0, "{name} {each:?}");
        }
        assert!(Pipe::ALL.iter().any(|pipe| estimate.mix.pipes.contains_key(pipe.name())));
    }
}
