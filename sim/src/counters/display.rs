//! Counters as tables.

use super::{Counters, ratio};
use std::fmt;

/// Number of PTX or CUDA lines that a table shows, those with the most instructions.
const ROWS_MAX: usize = 12;

impl fmt::Display for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = &self.total;
        writeln!(f, "{:<18} {:>14} {:>16}", "instructions", "of warps", "of lanes")?;
        for of in &self.classes {
            let (warps, lanes) = (of.warp_instructions, of.lane_instructions);
            writeln!(f, "  {:<16} {warps:>14} {lanes:>16}", of.class)?;
        }
        let (warps, lanes) = (total.warp_instructions, total.lane_instructions);
        writeln!(f, "  {:<16} {warps:>14} {lanes:>16}", "all")?;
        for of in &self.products {
            let (warps, each) = (of.warp_instructions, of.multiply_adds);
            writeln!(f, "matrix products    {warps} of {}, {each} multiply-adds", of.operands)?;
        }
        let (active, diverged) = (total.active_lanes(), total.diverged);
        writeln!(f, "divergence         {active:.2} lanes active, {diverged} branches diverged")?;
        let global = &total.global;
        let (requests, each) = (global.requests, global.sectors_per_request());
        writeln!(
            f,
            "global memory      {requests} requests, {} bytes, {} sectors ({each:.2} each), {} \
             lines",
            global.bytes, global.sectors, global.lines
        )?;
        let (read, written) = (self.dram_read_bytes, self.dram_written_bytes);
        write!(f, "device memory      {read} bytes read, {written} written")?;
        if let Some(least) = self.bytes_min {
            write!(f, ", {:.2} times the least", ratio(self.dram_bytes(), least))?;
        }
        writeln!(f)?;
        for (name, shared) in [("loads", &total.shared_loads), ("stores", &total.shared_stores)] {
            let (requests, passes) = (shared.requests, shared.wavefronts);
            let conflicts = shared.conflicts;
            writeln!(
                f,
                "shared {name:<11} {requests} requests, {passes} wavefronts, {conflicts} of them \
                 conflicts"
            )?;
        }
        if self.sources.is_empty() { self.by_line(f) } else { self.by_source(f) }
    }
}

impl Counters {
    fn by_line(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows: Vec<_> = self.lines.iter().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.count.warp_instructions));
        head(f, "ptx line")?;
        for row in rows.into_iter().take(ROWS_MAX) {
            self.row(f, &format!("{}", row.line), &row.count, &row.text)?;
        }
        Ok(())
    }

    fn by_source(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows: Vec<_> = self.sources.iter().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.count.warp_instructions));
        head(f, "source")?;
        for row in rows.into_iter().take(ROWS_MAX) {
            self.row(f, &format!("{}:{}", row.file, row.line), &row.count, "")?;
        }
        Ok(())
    }

    fn row(
        &self,
        f: &mut fmt::Formatter<'_>,
        name: &str,
        count: &super::Count,
        text: &str,
    ) -> fmt::Result {
        let share = 100.0 * ratio(count.warp_instructions, self.total.warp_instructions);
        let conflicts = count.shared_loads.conflicts + count.shared_stores.conflicts;
        let line = format!(
            "{name:<18} {:>14} {share:>6.1}% {:>12} {conflicts:>12}  {text}",
            count.warp_instructions, count.global.sectors
        );
        writeln!(f, "{}", line.trim_end())
    }
}

fn head(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    writeln!(
        f,
        "{name:<18} {:>14} {:>7} {:>12} {:>12}",
        "of warps", "share", "sectors", "conflicts"
    )
}
