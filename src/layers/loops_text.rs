//! Text of how a network with loops is run.

use std::fmt::Write;

use crate::layers::loops::LoopsPlan;
use crate::loops::{ConditionalStep, Loop, LoopStep, Step, TripLimit, WhileStep};

impl LoopsPlan {
    /// What is launched, a line for each graph, loop and branch; graphs are counted from 1 as in
    /// [`LoopsPlan::plans`].
    ///
    /// A loop says the step that was taken of the ways to run one, and why those before it were
    /// not: GEMMs that do not depend on recurrences are hoisted in any case; a loop that is a
    /// recurrent layer, a pointwise or a resident loop is an operation of the graph in front of its
    /// line; any other is launched by the host, trip by trip.
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
            Some((Step::While(WhileStep { of, body, .. }), rest)) => {
                let limits = self.limits(*of);
                line(format!("{limits}: the device says whether there is another trip"));
                self.refused(*of).into_iter().for_each(&mut line);
                self.write(body, depth + 1, text);
                self.write(rest, depth, text);
            }
            Some((Step::Looped(step), rest)) => {
                let limits = self.limits(step.of);
                line(format!("{limits}: a {} of the graph above", step.step));
                self.refused(step.of).into_iter().for_each(&mut line);
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

    /// A loop's name and limits.
    fn limits(&self, of: Loop) -> String {
        let network = &self.inner.network;
        let limits = [TripLimit::Count, TripLimit::While].into_iter().filter_map(|kind| {
            let uid = network.limit(of, kind)?;
            Some(format!(", {} {}", kind.name(), network.reference(uid)))
        });
        let (name, limits) = (&network.descriptor(of).name, limits.collect::<String>());
        format!("loop {name}{limits}")
    }

    /// Why steps before the one that was taken were not.
    fn refused(&self, of: Loop) -> Vec<String> {
        let reasons = self.inner.program.ladder.refused.get(&of);
        reasons.into_iter().flatten().map(|reason| format!("  {reason}")).collect()
    }

    /// How a loop is run.
    fn trips(&self, step: &LoopStep) -> Vec<String> {
        let of = self.limits(step.of);
        let mut lines = vec![format!("{of}: launched by the host, trip by trip")];
        lines.extend(self.refused(step.of));
        if step.condition.is_some() {
            lines.push(match step.ahead {
                1 => "  its condition is read in every trip".to_owned(),
                ahead => format!("  its condition is read after 1, 2, 4 and at most {ahead} trips"),
            });
        }
        lines
    }
}
