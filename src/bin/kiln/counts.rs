//! Counters of launches, and time estimates based on them.

use kiln::device::{Counters, Estimate, InstructionClass};
use serde_json::{Value, json};

/// Counts by name, in table order.
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

/// Counts of two launches side by side: name, before, after.
pub fn compare(before: &Counters, after: &Counters) -> Vec<(String, u64, u64)> {
    let (was, is) = (rows(before), rows(after));
    let count = |rows: &[(String, u64)], name: &str| {
        rows.iter().find(|(known, _)| known == name).map_or(0, |(_, count)| *count)
    };
    // A class that only one of the two has is inserted at its position there.
    let mut names: Vec<&String> = was.iter().map(|(name, _)| name).collect();
    for (at, (name, _)) in is.iter().enumerate() {
        if !names.contains(&name) {
            names.insert(at.min(names.len()), name);
        }
    }
    names.into_iter().map(|name| (name.clone(), count(&was, name), count(&is, name))).collect()
}

/// Relative change such as `+3.1%`; empty if there is none.
pub fn change(was: f64, is: f64) -> String {
    match (was == is, was == 0.0) {
        (true, _) => String::new(),
        (_, true) => "new".to_owned(),
        _ => format!("{:+.1}%", 100.0 * (is - was) / was),
    }
}

/// Counts as JSON.
pub fn json(counters: &Counters) -> Value {
    let named = |(name, count): (String, u64)| (name.trim_start().replace(' ', "_"), json!(count));
    Value::Object(rows(counters).into_iter().map(named).collect())
}

/// Time bounds of each part of a GPU as JSON, the limiting one first.
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
