//! Counts of launches, and what they mean for the time on a machine.

use kiln::device::{Counters, Estimate, InstructionClass};
use serde_json::{Value, json};

/// The counts of a launch by name, in the order of a table.
pub fn rows(counters: &Counters) -> Vec<(String, u64)> {
    let (total, global) = (&counters.total, &counters.total.global);
    let mut rows = vec![("warp instructions".to_owned(), total.warp_instructions)];
    let class = |class: InstructionClass| counters.class(class).warp_instructions;
    let classes = counters.classes.iter().map(|of| (format!("  {}", of.class), class(of.class)));
    rows.extend(classes);
    let rest = [
        ("diverged branches", total.diverged),
        ("global requests", global.requests),
        ("global sectors", global.sectors),
        ("bytes read", counters.dram_read_bytes),
        ("bytes written", counters.dram_written_bytes),
        ("shared wavefronts", total.shared_loads.wavefronts + total.shared_stores.wavefronts),
        ("shared conflicts", total.shared_loads.conflicts + total.shared_stores.conflicts),
    ];
    rows.extend(rest.map(|(name, count)| (name.to_owned(), count)));
    rows
}

/// Two launches' counts side by side: name, before, after.
pub fn compare(before: &Counters, after: &Counters) -> Vec<(String, u64, u64)> {
    let (was, is) = (rows(before), rows(after));
    let count = |rows: &[(String, u64)], name: &str| {
        rows.iter().find(|(known, _)| known == name).map_or(0, |(_, count)| *count)
    };
    // Classes that only one of the two has stand where that one has them.
    let mut names: Vec<&String> = was.iter().map(|(name, _)| name).collect();
    for (at, (name, _)) in is.iter().enumerate() {
        if !names.contains(&name) {
            names.insert(at.min(names.len()), name);
        }
    }
    names.into_iter().map(|name| (name.clone(), count(&was, name), count(&is, name))).collect()
}

/// `+3.1%`, or nothing where nothing changed.
pub fn change(was: f64, is: f64) -> String {
    match (was == is, was == 0.0) {
        (true, _) => String::new(),
        (_, true) => "new".to_owned(),
        _ => format!("{:+.1}%", 100.0 * (is - was) / was),
    }
}

/// The counts for programs.
pub fn json(counters: &Counters) -> Value {
    let named = |(name, count): (String, u64)| (name.trim_start().replace(' ', "_"), json!(count));
    Value::Object(rows(counters).into_iter().map(named).collect())
}

/// The least time of each part of a machine, that which binds first, for programs.
pub fn estimate_json(estimate: &Estimate) -> Value {
    let occupancy = estimate.occupancy;
    let parts = estimate.bounds.iter().filter(|bound| bound.us > 0.0);
    json!({
        "machine": estimate.machine,
        "blocks_per_multiprocessor": occupancy.blocks,
        "warps_per_multiprocessor": occupancy.warps,
        "occupancy": occupancy.share,
        "parts": parts
            .map(|bound| json!({"part": bound.part.to_string(), "us": bound.us}))
            .collect::<Vec<_>>(),
    })
}
