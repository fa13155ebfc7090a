//! Construction of a network from its tensors and layers: all checks, and the removal of what no
//! output needs.

use std::collections::{BTreeSet, HashMap};

use crate::error::{Error, Result};
use crate::graph::check_tensors;
use crate::loops::layer::{Layer, TripLimit};
use crate::loops::nest::Nesting;
use crate::loops::nesting::nesting;
use crate::loops::network::{LoopDescriptor, Network};
use crate::loops::order::ordered;
use crate::loops::validate::check_layer;
use crate::tensor::TensorDesc;

impl Network {
    /// Validates tensors and layers, which may be in any order.
    ///
    /// # Errors
    /// `BadParam` or `NotSupported`, naming the tensors, layers and loops, and the rule that they
    /// violate.
    pub fn new(
        mut tensors: Vec<TensorDesc>,
        layers: Vec<Layer>,
        loops: Vec<LoopDescriptor>,
    ) -> Result<Network> {
        tensors.sort_by_key(|tensor| tensor.uid);
        check_tensors(&tensors)?;
        check_names(&loops)?;
        let resolve = |layer| match layer {
            Layer::Operation(operation) => Layer::Operation(operation.resolved(&tensors)),
            layer => layer,
        };
        let layers: Vec<Layer> = layers.into_iter().map(resolve).collect();
        let (nest, on_device) = (Nesting::default(), false);
        let mut network = Network { tensors, layers, loops, nesting: nest, on_device };
        for layer in &network.layers {
            check_layer(&network, layer)?;
        }
        let writers = network.writers()?;
        network.check_written(&writers)?;
        network.remove_unused(&writers)?;
        network.check_limits()?;
        network.nesting = nesting(&network)?;
        network.layers = ordered(&network)?;
        Ok(network)
    }

    /// The layer that writes each tensor, by its position.
    fn writers(&self) -> Result<HashMap<i64, usize>> {
        let mut writers = HashMap::new();
        for (at, layer) in self.layers.iter().enumerate() {
            for uid in layer.outputs() {
                let name = self.reference(uid);
                if writers.insert(uid, at).is_some() {
                    let text = format!("tensor `{name}` is written by two layers");
                    return Err(Error::bad_param(text));
                }
                if self.tensor(uid)?.by_value {
                    let text = format!("tensor `{name}` is by value but is written");
                    return Err(Error::bad_param(text));
                }
            }
        }
        Ok(writers)
    }

    fn check_written(&self, writers: &HashMap<i64, usize>) -> Result<()> {
        for uid in self.layers.iter().flat_map(Layer::inputs) {
            let tensor = self.tensor(uid)?;
            if tensor.is_virtual && !writers.contains_key(&uid) {
                let name = self.reference(uid);
                let text = format!("tensor `{name}` is virtual but no layer writes it");
                return Err(Error::bad_param(text));
            }
        }
        let mut outputs = self.tensors.iter().filter(|of| writers.contains_key(&of.uid));
        match outputs.find(|of| !of.is_virtual && of.may_overlap()) {
            None => Ok(()),
            Some(tensor) => {
                let text = format!("output {tensor} is written but its elements may overlap");
                Err(Error::not_supported(text))
            }
        }
    }

    /// Removes what no output needs.
    fn remove_unused(&mut self, writers: &HashMap<i64, usize>) -> Result<()> {
        let outputs = self.tensors.iter().filter(|of| !of.is_virtual).map(|of| of.uid);
        let mut open: Vec<i64> = outputs.filter(|uid| writers.contains_key(uid)).collect();
        if open.is_empty() {
            return Err(Error::bad_param("the network has no output"));
        }
        let mut used: BTreeSet<i64> = BTreeSet::new();
        let mut kept: BTreeSet<usize> = BTreeSet::new();
        while let Some(uid) = open.pop() {
            let Some(at) = writers.get(&uid).filter(|_| used.insert(uid)) else {
                used.insert(uid);
                continue;
            };
            if kept.insert(*at) {
                open.extend(self.layers[*at].inputs());
            }
            let Some(of) = self.layers[*at].of_loop() else { continue };
            for (number, layer) in self.layers.iter().enumerate() {
                let limits = matches!(layer, Layer::TripLimit { of: own, .. } if *own == of);
                if limits && kept.insert(number) {
                    open.extend(layer.inputs());
                }
            }
        }
        let mut at = 0..;
        self.layers.retain(|_| at.next().is_some_and(|at| kept.contains(&at)));
        let touched: BTreeSet<i64> =
            self.layers.iter().flat_map(|of| [of.inputs(), of.outputs()].concat()).collect();
        self.tensors.retain(|tensor| touched.contains(&tensor.uid));
        Ok(())
    }

    /// Checks that each loop that is left has a limit, and none twice.
    fn check_limits(&self) -> Result<()> {
        for of in self.loops().filter(|of| self.boundaries(*of).next().is_some()) {
            let name = &self.descriptor(of).name;
            let limits = |kind| {
                let own = self.boundaries(of);
                own.filter(
                    move |layer| matches!(layer, Layer::TripLimit { limit, .. } if *limit == kind),
                )
            };
            let mut count = 0;
            for kind in [TripLimit::Count, TripLimit::While] {
                let own: Vec<String> =
                    limits(kind).flat_map(Layer::inputs).map(|uid| self.reference(uid)).collect();
                if let [first, second, ..] = &own[..] {
                    let kind = kind.name();
                    return Err(Error::bad_param(format!(
                        "loop `{name}` has two {kind} limits, `{first}` and `{second}`: expected \
                         one of a kind at most"
                    )));
                }
                count += own.len();
            }
            if count == 0 {
                let text = format!("loop `{name}` has no trip limit, expected a count or a while");
                return Err(Error::bad_param(text));
            }
        }
        Ok(())
    }
}

fn check_names(loops: &[LoopDescriptor]) -> Result<()> {
    for (at, LoopDescriptor { name, trips_max }) in loops.iter().enumerate() {
        if name.is_empty() {
            return Err(Error::bad_param(format!("loop {at} has no name")));
        }
        if loops[..at].iter().any(|other| other.name == *name) {
            return Err(Error::bad_param(format!("two loops are named `{name}`")));
        }
        if *trips_max < 0 {
            let text = format!("loop `{name}`: the bound of {trips_max} trips is negative");
            return Err(Error::bad_param(text));
        }
    }
    Ok(())
}
