//! Every attribute of every kind of descriptor as every type: what is taken is what the documents
//! list, and nothing ends the process.

use mcdnn::chapters::MCDNN;
use mcdnn::declare::Enumeration;

use crate::harness::{compile_text, succeed};

fn table(name: &str) -> &'static Enumeration {
    let mut tables = MCDNN.iter().flat_map(|chapter| chapter.enumerations);
    tables.find(|table| table.name == name).unwrap()
}

#[test]
fn each_attribute_as_each_type() {
    let names = table("mcdnnBackendAttributeName_t").values.iter().map(|(_, number)| *number);
    let names = names.map(|number| number.to_string()).collect::<Vec<_>>().join(", ");
    let program = format!(
        r#"#include <stdio.h>
#include <string.h>

#include "mcdnn.h"

static const int names[] = {{{names}, 77777}};

int main(void)
{{
    static char elements[4096];
    long taken = 0, refused = 0, bad = 0, others = 0;
    for (int kind = -1; kind < 36; kind++) {{
        mcdnnBackendDescriptor_t own = NULL, tensor = NULL;
        if (mcdnnBackendCreateDescriptor((mcdnnBackendDescriptorType_t)kind, &own) != 0) {{
            printf("kind %d cannot be made\n", kind);
            continue;
        }}
        mcdnnBackendCreateDescriptor(MCDNN_BACKEND_TENSOR_DESCRIPTOR, &tensor);
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {{
            for (int type = -1; type < 31; type++) {{
                const int64_t counts[] = {{1, -1, 0, 9, (int64_t)1 << 40}};
                memset(elements, 0, sizeof(elements));
                if (type == MCDNN_TYPE_BACKEND_DESCRIPTOR) {{
                    for (int at = 0; at < 9; at++) {{
                        memcpy(elements + at * sizeof(tensor), &tensor, sizeof(tensor));
                    }}
                }}
                for (int at = 0; at < 4; at++) {{
                    const mcdnnBackendAttributeName_t name = (mcdnnBackendAttributeName_t)names[i];
                    const mcdnnBackendAttributeType_t of = (mcdnnBackendAttributeType_t)type;
                    const mcdnnStatus_t status =
                        mcdnnBackendSetAttribute(own, name, of, counts[at], elements);
                    if (at == 0) {{
                        taken += status == MCDNN_STATUS_SUCCESS;
                        refused += status == MCDNN_STATUS_NOT_SUPPORTED;
                        bad += status == MCDNN_STATUS_BAD_PARAM;
                    }}
                    others += status != MCDNN_STATUS_SUCCESS &&
                              status != MCDNN_STATUS_NOT_SUPPORTED &&
                              status != MCDNN_STATUS_BAD_PARAM;
                    /* No array at all, and one of a length that no attribute has. */
                    others += mcdnnBackendSetAttribute(own, name, of, counts[at], NULL) ==
                              MCDNN_STATUS_SUCCESS;
                }}
                others += mcdnnBackendSetAttribute(own, (mcdnnBackendAttributeName_t)names[i],
                                                   (mcdnnBackendAttributeType_t)type, counts[4],
                                                   elements) == MCDNN_STATUS_SUCCESS;
                int64_t count = -7;
                others += mcdnnBackendGetAttribute(own, (mcdnnBackendAttributeName_t)names[i],
                                                   (mcdnnBackendAttributeType_t)type, 4, &count,
                                                   elements) == MCDNN_STATUS_SUCCESS;
                others += count != -7;
            }}
        }}
        const mcdnnStatus_t finalized = mcdnnBackendFinalize(own);
        others += finalized == MCDNN_STATUS_INTERNAL_ERROR;
        others += mcdnnBackendDestroyDescriptor(own) != MCDNN_STATUS_SUCCESS;
        others += mcdnnBackendDestroyDescriptor(own) != MCDNN_STATUS_BAD_PARAM;
        mcdnnBackendDestroyDescriptor(tensor);
    }}
    printf("%ld taken, %ld refused, %ld bad, %ld others\n", taken, refused, bad, others);
    return 0;
}}
"#
    );
    let output = succeed(&compile_text("attributes", &program), &[]);
    let kinds = output.lines().filter(|line| line.ends_with("cannot be made")).count();
    // -1, the one that the documents name but describe nowhere, and two past the end.
    assert_eq!(kinds, 4, "{output}");
    insta::assert_snapshot!("attributes", output.lines().last().unwrap());
}
