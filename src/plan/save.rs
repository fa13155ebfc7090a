//! Plans written to documents and read from them.

use serde_json::Value;

use crate::engine::Part;
use crate::error::{Error, Result};
use crate::plan::build::Kiln;
use crate::plan::document::{document, parts_in};
use crate::plan::execute::ExecutionPlan;
use crate::plan::problem::Problem;

impl ExecutionPlan {
    /// The document that [`Kiln::plan_from_json`] reads.
    pub fn to_json(&self) -> String {
        let problem = serde_json::from_str(&self.graph().to_json());
        self.document(problem.expect("a graph's JSON is valid"))
    }

    /// The document of a plan together with its problem, whose tensors keep their names and shapes.
    ///
    /// # Errors
    /// `BadParam` where the text is no problem, or one of another graph than the plan's.
    pub fn to_json_of(&self, problem: &str) -> Result<String> {
        let read = Problem::from_json(problem)?;
        if read.only_graph()?.digest() != self.graph().digest() {
            return Err(Error::bad_param("failed to save a plan: the problem has another graph"));
        }
        let malformed =
            |error: serde_json::Error| Error::bad_param(format!("malformed problem: {error}"));
        Ok(self.document(serde_json::from_str(problem).map_err(malformed)?))
    }

    fn document(&self, problem: Value) -> String {
        let parts: Vec<Part> = self.parts().into_iter().cloned().collect();
        document(self.graph(), &parts, self.inner.device.target(), problem)
    }
}

impl Kiln {
    /// The plan that [`ExecutionPlan::to_json`] wrote, without asking any heuristic.
    ///
    /// # Errors
    /// `BadParam` for a malformed document, parts that do not cover the graph, each operation once
    /// and in an order that can run, or a knob that is not allowed; `NotSupported` for a document
    /// of another version or another GPU; whatever [`Kiln::plan_with`] finds.
    pub fn plan_from_json(&self, text: &str) -> Result<ExecutionPlan> {
        let (graph, parts) = parts_in(text, self.device().target())?;
        self.plan_parts(&graph, parts)
    }
}

impl Problem {
    /// The problem that a plan is of, from the plan's document.
    ///
    /// # Errors
    /// `BadParam` for a malformed document.
    pub fn of_plan(text: &str) -> Result<Problem> {
        let malformed =
            |error: serde_json::Error| Error::bad_param(format!("malformed plan: {error}"));
        let document: Value = serde_json::from_str(text).map_err(malformed)?;
        Problem::from_json(&document["problem"].to_string())
    }
}
