//! Saving plans as documents and loading them.

use serde_json::Value;

use crate::engine::Part;
use crate::error::{Error, Result};
use crate::plan::build::Kiln;
use crate::plan::document::{document, parts_in};
use crate::plan::execute::ExecutionPlan;
use crate::plan::problem::Problem;

impl ExecutionPlan {
    /// Writes the document that [`Kiln::plan_from_json`] reads.
    pub fn to_json(&self) -> String {
        let problem = serde_json::from_str(&self.graph().to_json());
        self.document(problem.expect("a graph's JSON is valid"))
    }

    /// As [`ExecutionPlan::to_json`], with this problem document, whose tensors keep their names
    /// and shapes.
    ///
    /// # Errors
    /// `BadParam` if the text is not a problem document, or is one of another graph.
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
    /// Builds the plan that [`ExecutionPlan::to_json`] wrote, without any heuristic.
    ///
    /// # Errors
    /// `BadParam` for a malformed document, for parts that do not cover each operation once in an
    /// executable order, and for a knob value that is not allowed; `NotSupported` for a document of
    /// another version or GPU; as [`Kiln::plan_with`].
    pub fn plan_from_json(&self, text: &str) -> Result<ExecutionPlan> {
        let (graph, parts) = parts_in(text, self.device().target())?;
        self.plan_parts(&graph, parts)
    }
}

impl Problem {
    /// Reads the problem of a plan's document.
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
