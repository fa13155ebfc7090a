//! The seven functions of the backend (section 8.2.1).

use crate::backend::execute;
use crate::backend::finalize::finalize;
use crate::backend::names::AttributeName;
use crate::backend::node::{Backend, Node};
use crate::backend::schema::{Attribute, Need, attributes, find};
use crate::backend::value::{read, write};
use crate::backend::values::{AttributeType, DescriptorType};
use crate::declare::functions;
use crate::handle::Handle;
use crate::object::Ref;
use crate::pointer::{Data, DataMut, Out};
use crate::status::{Outcome, Status, bad, fail, refuse};

/// Bytes of what mcdnnBackendInitialize is given: a descriptor's pointer.
const DESCRIPTOR_BYTES: usize = size_of::<usize>();

/// The attribute of a descriptor, which has elements of a type.
fn attribute(node: &Node, name: AttributeName, of: AttributeType) -> Outcome<&'static Attribute> {
    let Some(attribute) = find(node.kind, name) else {
        return bad(format!("a {} has no {}", node.kind.shown(), name.shown()));
    };
    match attribute.types.contains(&of) {
        true => Ok(attribute),
        false => {
            let wanted = attribute.types.iter().map(|of| AttributeType::TABLE.shown(of.0));
            let wanted = wanted.collect::<Vec<_>>().join(" or ");
            let given = AttributeType::TABLE.shown(of.0);
            bad(format!("elements of {} are {wanted}, not {given}", name.shown()))
        }
    }
}

functions! { FUNCTIONS:
    /// Makes a descriptor of a kind (8.2.1.1).
    fn mcdnnBackendCreateDescriptor(
        descriptorType: DescriptorType,
        descriptor: Out<Ref<Backend>>,
    ) {
        let place = descriptor.required("descriptor")?;
        let made = descriptorType != DescriptorType::INTERMEDIATE_INFO_DESCRIPTOR;
        if !made || attributes(descriptorType).is_none() {
            return refuse(format!("descriptorType is {}", descriptorType.shown()));
        }
        place.put(Backend::new(descriptorType)?);
        Ok(())
    }

    /// Destroys a descriptor (8.2.1.2). Those that it was set in keep what it says.
    fn mcdnnBackendDestroyDescriptor(descriptor: Ref<Backend>) {
        drop(descriptor.get("descriptor")?);
        descriptor.destroy("descriptor")
    }

    /// Empties a descriptor (8.2.1.6).
    fn mcdnnBackendInitialize(
        descriptor: Ref<Backend>,
        descriptorType: DescriptorType,
        sizeInBytes: usize,
    ) {
        let node = descriptor.get("descriptor")?.node();
        if sizeInBytes < DESCRIPTOR_BYTES {
            return bad(format!("sizeInBytes is {sizeInBytes}, expected {DESCRIPTOR_BYTES}"));
        }
        if node.kind != descriptorType {
            return bad(format!("the descriptor is a {}", node.kind.shown()));
        }
        node.reset();
        Ok(())
    }

    /// Sets an attribute (8.2.1.7). Other descriptors are looked at when this one is finalized.
    fn mcdnnBackendSetAttribute(
        descriptor: Ref<Backend>,
        attributeName: AttributeName,
        attributeType: AttributeType,
        elementCount: i64,
        arrayOfElements: Data,
    ) {
        let node = descriptor.get("descriptor")?.node();
        let attribute = attribute(&node, attributeName, attributeType)?;
        let name = attributeName.shown();
        match attribute.need {
            Need::ReadOnly => return refuse(format!("{name} cannot be set")),
            Need::Refused => return refuse(format!("{name} is not supported")),
            Need::Required | Need::Optional => {}
        }
        if !(1..=attribute.most).contains(&elementCount) {
            let most = attribute.most;
            return bad(format!("{name} of {elementCount} elements, expected 1 to {most}"));
        }
        let value = read(attributeType, elementCount as usize, arrayOfElements);
        let value = value.map_err(|failure| crate::status::Failure {
            text: format!("{name}: {failure}"),
            ..failure
        })?;
        node.set(attributeName, value)
    }

    /// An attribute of a finalized descriptor (8.2.1.5): the number of its elements, and as many of
    /// them as are asked for. Descriptors are written to those that the array holds.
    fn mcdnnBackendGetAttribute(
        descriptor: Ref<Backend>,
        attributeName: AttributeName,
        attributeType: AttributeType,
        requestedElementCount: i64,
        elementCount: Out<i64>,
        arrayOfElements: DataMut,
    ) {
        let node = descriptor.get("descriptor")?.node();
        let attribute = attribute(&node, attributeName, attributeType)?;
        if attribute.need == Need::Refused {
            return refuse(format!("{} is not supported", attributeName.shown()));
        }
        if node.product("the descriptor").is_err() {
            return fail(Status::NOT_INITIALIZED, "the descriptor was not finalized");
        }
        let asked = usize::try_from(requestedElementCount)
            .or_else(|_| bad(format!("requestedElementCount is {requestedElementCount}")))?;
        match node.value(attributeName) {
            Some(value) => {
                if arrayOfElements.address() != 0 {
                    write(&value, attributeType, asked, arrayOfElements)?;
                }
                elementCount.put(value.count() as i64);
            }
            None => elementCount.put(0),
        }
        Ok(())
    }

    /// Checks a descriptor, and makes of it what it describes (8.2.1.4).
    fn mcdnnBackendFinalize(descriptor: Ref<Backend>) {
        descriptor.get("descriptor")?.node().finalize(finalize)
    }

    /// Queues a plan with the tensors of a variant pack on the handle's stream (8.2.1.3).
    fn mcdnnBackendExecute(
        handle: Ref<Handle>,
        executionPlan: Ref<Backend>,
        variantPack: Ref<Backend>,
    ) {
        execute::execute(&*handle.get("handle")?, executionPlan, variantPack)
    }
}
