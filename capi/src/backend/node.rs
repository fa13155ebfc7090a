//! Backend descriptors: attributes that are set, and what finalizing makes of them.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use crate::backend::names::AttributeName;
use crate::backend::product::Product;
use crate::backend::schema::{Default, Need, find};
use crate::backend::value::Value;
use crate::backend::values::DescriptorType;
use crate::object::{Ref, object};
use crate::status::{Outcome, Status, bad, fail, refuse};

/// `mcdnnBackendDescriptor_t`.
#[derive(Debug)]
pub struct Backend(Arc<Node>);
object!(Backend: "mcdnnBackendDescriptor_t", "backend descriptor", 13);

/// A descriptor. Descriptors that refer to it keep it, whatever a program destroys.
#[derive(Debug)]
pub struct Node {
    /// What it describes.
    pub kind: DescriptorType,
    state: RwLock<State>,
}

#[derive(Debug, Clone, std::default::Default)]
struct State {
    values: BTreeMap<i32, Value>,
    /// What it has been finalized to.
    product: Option<Product>,
}

impl Backend {
    /// A descriptor of a kind.
    pub fn new(kind: DescriptorType) -> Outcome<Ref<Backend>> {
        Ref::new(Backend(Node::new(kind, [])))
    }

    /// What it is.
    pub fn node(&self) -> Arc<Node> {
        self.0.clone()
    }

    /// What an execution plan runs: for each kernel its engine with the knobs, its name and where
    /// it came from.
    pub fn explain(&self) -> Outcome<String> {
        let Product::Plan(plan) = self.0.product("plan")? else {
            return bad("plan is no execution plan");
        };
        let kernels = plan.plan.kernels().iter().map(|kernel| {
            let report = kernel.report();
            format!("{}: {} ({})\n", kernel.config(), report.stem, report.origin.name())
        });
        Ok(kernels.collect())
    }
}

impl Node {
    fn new(
        kind: DescriptorType,
        values: impl IntoIterator<Item = (AttributeName, Value)>,
    ) -> Arc<Node> {
        let values = values.into_iter().map(|(name, value)| (name.0, value)).collect();
        Arc::new(Node { kind, state: RwLock::new(State { values, product: None }) })
    }

    /// A descriptor that the library makes, with its attributes.
    pub fn made(
        kind: DescriptorType,
        values: impl IntoIterator<Item = (AttributeName, Value)>,
        product: Product,
    ) -> Arc<Node> {
        let node = Node::new(kind, values);
        node.change(|state| state.product = Some(product));
        node
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        change(&mut self.state.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// Empties the descriptor.
    pub fn reset(&self) {
        self.change(|state| *state = State::default());
    }

    /// Makes the descriptor say what another of its kind does.
    pub fn become_like(&self, other: &Node) -> Outcome {
        if self.kind != other.kind {
            let [own, wanted] = [self.kind, other.kind].map(DescriptorType::shown);
            return bad(format!("the descriptor is a {own}, expected a {wanted}"));
        }
        let state = other.read().clone();
        self.change(|own| *own = state);
        Ok(())
    }

    /// What it has been finalized to; called so in messages.
    pub fn product(&self, name: &str) -> Outcome<Product> {
        match &self.read().product {
            Some(product) => Ok(product.clone()),
            None => bad(format!("{name} was not finalized")),
        }
    }

    /// Sets an attribute.
    pub fn set(&self, name: AttributeName, value: Value) -> Outcome {
        self.change(|state| {
            if state.product.is_some() {
                return fail(Status::NOT_INITIALIZED, "the descriptor was finalized");
            }
            state.values.insert(name.0, value);
            Ok(())
        })
    }

    /// Finalizes the descriptor.
    pub fn finalize(&self, make: impl FnOnce(&Node) -> Outcome<Product>) -> Outcome {
        if self.read().product.is_some() {
            return bad("the descriptor was finalized before");
        }
        let product = make(self)?;
        let values = product.attributes();
        self.change(|state| {
            state.values.extend(values.into_iter().map(|(name, value)| (name.0, value)));
            state.product = Some(product);
        });
        Ok(())
    }

    /// An attribute as it is, or its default; `None` where there is neither.
    pub fn value(&self, name: AttributeName) -> Option<Value> {
        if let Some(value) = self.read().values.get(&name.0) {
            return Some(value.clone());
        }
        match find(self.kind, name)?.default {
            Default::Nothing => None,
            Default::Integer(value) => Some(Value::Integers(vec![value])),
            Default::Float(value) => Some(Value::Floats(vec![value])),
        }
    }

    /// Integers of an attribute.
    pub fn integers(&self, name: AttributeName) -> Vec<i64> {
        match self.value(name) {
            Some(Value::Integers(all)) => all,
            _ => Vec::new(),
        }
    }

    /// The integer of an attribute that is there.
    pub fn integer(&self, name: AttributeName) -> i64 {
        self.integers(name).first().copied().unwrap_or(0)
    }

    /// The number of an attribute that is there.
    pub fn float(&self, name: AttributeName) -> f64 {
        match self.value(name) {
            Some(Value::Floats(all)) => all.first().copied().unwrap_or(0.0),
            _ => 0.0,
        }
    }

    /// Descriptors of an attribute.
    pub fn nodes(&self, name: AttributeName) -> Vec<Arc<Node>> {
        match self.value(name) {
            Some(Value::Nodes(all)) => all,
            _ => Vec::new(),
        }
    }

    /// The descriptor of an attribute, if there is one.
    pub fn optional_node(&self, name: AttributeName) -> Option<Arc<Node>> {
        self.nodes(name).into_iter().next()
    }

    /// The descriptor of an attribute.
    pub fn node(&self, name: AttributeName) -> Outcome<Arc<Node>> {
        match self.optional_node(name) {
            Some(node) => Ok(node),
            None => bad(format!("{} is not set", name.shown())),
        }
    }

    /// Refuses attributes that are missing, and descriptors of other kinds or not finalized.
    pub fn check_attributes(&self) -> Outcome {
        let Some(attributes) = crate::backend::schema::attributes(self.kind) else {
            return refuse(format!("a {} has no attributes", self.kind.shown()));
        };
        for attribute in attributes {
            let name = attribute.name.shown();
            let value = self.value(attribute.name);
            if attribute.need == Need::Required && value.is_none() {
                return bad(format!("{name} is not set"));
            }
            if let Some(Value::Nodes(nodes)) = value {
                for node in nodes {
                    if !attribute.of.contains(&node.kind) {
                        return bad(format!("{name} is a {}", node.kind.shown()));
                    }
                    node.product(&name)?;
                }
            }
        }
        Ok(())
    }
}

impl DescriptorType {
    /// Its name.
    pub fn shown(self) -> String {
        DescriptorType::TABLE.shown(self.0)
    }
}

impl AttributeName {
    /// Its name.
    pub fn shown(self) -> String {
        AttributeName::TABLE.shown(self.0)
    }
}
