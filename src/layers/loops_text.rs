//! Text of how a network with loops is run.

use std::fmt::Write;

use crate::layers::loops::LoopsPlan;
use crate::loops::{ConditionalStep, LoopStep, Step, TripLimit};

impl LoopsPlan {
    /// What is launched, a line for each graph, loop and branch; graphs are counted from 1 as in
    /// [`LoopsPlan::plans`].
    ///
    /// A loop says the step that was taken of the ways to run one: GEMMs that do not depend on
    /// recurrences are hoisted, and what is left is launched by the host, trip by trip.
    pub fn steps(&self) -> String {
        let mut text = String::new();
        self.write(&self.inner.program.steps, 0, &mut text);
        text
    }

    fn write(&self, steps: &[Step], depth: usize, text: &mut String) {
        let indent = "  ".repeat(depth);
        let mut line = |what: String| {
            // A string takes everything.
            let _ = writeln!(text, "{indent}{what}");
        };
        match steps.split_first() {
            None => {}
            Some((Step::Run(graph), rest)) => {
                let plan = &self.inner.plans[*graph];
                let parts: Vec<String> =
                    plan.parts().iter().map(|part| part.config.to_string()).collect();
                line(format!("graph {}: {}", graph + 1, parts.join(", ")));
                self.write(rest, depth, text);
            }
            Some((Step::Loop(step), rest)) => {
                self.trips(step).into_iter().for_each(&mut line);
                self.write(&step.test, depth + 1, text);
                self.write(&step.body, depth + 1, text);
                self.write(rest, depth, text);
            }
            Some((Step::Conditional(ConditionalStep { condition, then, otherwise, .. }), rest)) => {
                let name = self.inner.network.reference(*condition);
                line(format!("if {name}, which the host reads"));
                self.write(then, depth + 1, text);
                let _ = writeln!(text, "{indent}else");
                self.write(otherwise, depth + 1, text);
                self.write(rest, depth, text);
            }
        }
    }

    /// How a loop is run.
    fn trips(&self, step: &LoopStep) -> Vec<String> {
        let network = &self.inner.network;
        let limits = [TripLimit::Count, TripLimit::While].into_iter().filter_map(|kind| {
            let uid = network.limit(step.of, kind)?;
            Some(format!(", {} {}", kind.name(), network.reference(uid)))
        });
        let (name, limits) = (&network.descriptor(step.of).name, limits.collect::<String>());
        let mut lines = vec![format!("loop {name}{limits}: launched by the host, trip by trip")];
        if step.condition.is_some() {
            lines.push(match step.ahead {
                1 => "  its condition is read in every trip".to_owned(),
                ahead => format!("  its condition is read after 1, 2, 4 and at most {ahead} trips"),
            });
        }
        lines
    }
}
