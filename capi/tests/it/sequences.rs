//! Random sequences of calls, with objects that are, were or never have been: no call crashes, is a
//! bug of the library, takes what is none, or succeeds in what a later call contradicts.

use std::env;
use std::fmt::Write;

use mcdnn::chapters::{KILN, MCDNN};
use mcdnn::declare::{Enumeration, Function};
use mcdnn::{DescriptorType, Need, attributes};

use crate::harness::{compile_text, run};

/// Loads files, ends what others need, makes several objects of an array.
const NOT_HERE: [&str; 4] = [
    "mcdnnKilnPack",
    "mcdnnDestroy",
    "mcdnnCreateAlgorithmPerformance",
    "mcdnnDestroyAlgorithmPerformance",
];

/// The sequences that `make test` runs.
const SEQUENCES: &str = "1000";

/// A parameter: its C type without its name, and whether it is an array.
struct Parameter {
    name: &'static str,
    c_type: String,
    array: bool,
}

impl Parameter {
    fn pointee(&self) -> Option<&str> {
        let of = if self.array { Some(&*self.c_type) } else { self.c_type.strip_suffix('*') };
        of.map(|of| of.trim().trim_start_matches("const ").trim())
    }

    fn read_only(&self) -> bool {
        self.c_type.starts_with("const ")
    }
}

fn functions() -> impl Iterator<Item = &'static Function> {
    let all = MCDNN.iter().chain(KILN).flat_map(|chapter| chapter.functions());
    // What loads files, prints, or gives no status has tests of its own.
    all.filter(|function| (function.result)("") == "mcdnnStatus_t")
        .filter(|function| !NOT_HERE.contains(&function.name))
}

fn parameters(function: &Function) -> Vec<Parameter> {
    let parse = |(name, declare): &(&'static str, fn(&str) -> String)| {
        let declared = declare(name);
        let array = declared.ends_with("[]");
        let of = declared.trim_end_matches("[]");
        Parameter { name, c_type: of[..of.len() - name.len()].trim().to_owned(), array }
    };
    function.parameters.iter().map(parse).collect()
}

fn enumeration(c_type: &str) -> Option<&'static Enumeration> {
    let tables = MCDNN.iter().flat_map(|chapter| chapter.enumerations);
    tables.into_iter().find(|table| table.name == c_type)
}

/// The types of objects, and the functions that destroy them.
fn objects() -> Vec<(String, &'static str)> {
    let ends =
        |function: &&Function| function.name.contains("Destroy") && function.parameters.len() == 1;
    let of = |function: &'static Function| (parameters(function).remove(0).c_type, function.name);
    let named = functions().filter(ends).map(of);
    named.chain([("mcdnnHandle_t".to_owned(), "mcdnnDestroy")]).collect()
}

/// Whether a function queues work on the device.
fn launches(name: &str) -> bool {
    let pass = ["Forward", "Backward", "Execute", "CTCLoss", "mcdnnKilnWarm"];
    let asks = ["Get", "Set", "Size", "Create", "Destroy"];
    pass.iter().any(|word| name.contains(word)) && !asks.iter().any(|word| name.contains(word))
}

/// What memory of no type is: in device memory, or read and written by the host.
fn on_host(function: &str, name: &str) -> bool {
    match name {
        "arrayOfElements" | "paddingFill" | "udata" | "mcdnnBackendDescriptor" => true,
        "to" => function.ends_with("DtoH"),
        "from" => function.ends_with("HtoD"),
        _ => false,
    }
}

/// The expression of a parameter's value.
fn value(function: &Function, all: &[Parameter], at: usize, types: &[(String, &str)]) -> String {
    let Parameter { name, c_type, array } = &all[at];
    let kind = |of: &str| types.iter().position(|(known, _)| known == of);
    let arrays = all.iter().any(|parameter| parameter.array);
    let device_array = name.starts_with("dev") || function.name.ends_with("Loss_v8");
    let pointee = all[at].pointee();
    let expression = match (pointee, &**c_type) {
        (None, "size_t") => "bytes()".to_owned(),
        (None, "float" | "double") => "real()".to_owned(),
        // Descriptors in an array are as many.
        (None, "int") if arrays && *name == "seqLength" => "(int)draw(5)".to_owned(),
        (None, "int" | "int64_t") if arrays || function.name.contains("Attribute") => {
            "number()".to_owned()
        }
        (None, "int" | "int64_t" | "unsigned" | "unsigned long long") => "any_number()".to_owned(),
        (None, of) => match (kind(of), enumeration(of)) {
            (Some(kind), _) => format!("object(pools, TYPES, {kind}, {})", i32::from(at == 0)),
            (_, Some(_)) => format!("member({of}_all, sizeof({of}_all) / sizeof(int))"),
            _ if of == "mcdnnRNNPaddingMode_t" => "any_number()".to_owned(),
            _ if of == "mcdnnAlgorithm_t" => "algorithm".to_owned(),
            _ => "NULL".to_owned(),
        },
        (Some("void"), _) if on_host(function.name, name) => format!("place({at})"),
        (Some("void"), _) => format!("memory({at})"),
        (Some("void *"), _) => format!("place({at})"),
        (Some("int"), _) if device_array => format!("memory({at})"),
        (Some(of), _) => match (kind(of), all[at].read_only() && *array) {
            (Some(kind), true) => format!("several(places[{at} % ARRAYS], {kind})"),
            (_, true) => format!("numbers({at} % ARRAYS, sizeof({of}))"),
            _ => format!("place({at} % ARRAYS)"),
        },
    };
    match (pointee, &**c_type) {
        (None, "mcdnnAlgorithm_t") => expression,
        _ => format!("({c_type}{})({expression})", if *array { " *" } else { "" }),
    }
}

/// The function that reads what one sets, if each parameter has its own.
fn reader(function: &Function) -> Option<&'static Function> {
    let name = function.name.replace("mcdnnSet", "mcdnnGet");
    let set = parameters(function);
    functions().find(|reads| {
        let get = parameters(reads);
        reads.name == name
            && name != function.name
            && get.len() == set.len()
            && get[0].c_type == set[0].c_type
            && get
                .iter()
                .zip(&set)
                .skip(1)
                .all(|(get, set)| !get.array && get.pointee() == Some(&*set.c_type))
    })
}

fn case(program: &mut String, number: usize, function: &Function, types: &[(String, &str)]) {
    let all = parameters(function);
    let name = function.name;
    writeln!(program, "    case {number}: {{\n        running = \"{name}\";").unwrap();
    if launches(name) {
        *program += "        if (wild) {\n            return;\n        }\n        launched++;\n";
    }
    let made = all.iter().position(|parameter| {
        let of = parameter.pointee();
        let object = of.and_then(|of| types.iter().position(|(known, _)| known == of));
        name.contains("Create") && !parameter.array && object.is_some()
    });
    for (at, parameter) in all.iter().enumerate() {
        let stars = if parameter.array { " *" } else { "" };
        let expression = match made == Some(at) {
            true => "NULL".to_owned(),
            false => value(function, &all, at, types),
        };
        writeln!(program, "        {}{stars} a{at} = {expression};", parameter.c_type).unwrap();
    }
    let arguments: Vec<String> = (0..all.len()).map(|at| format!("a{at}")).collect();
    let call = format!("{name}({})", arguments.join(", "));
    let ended = types.iter().position(|(_, ends)| *ends == name);
    if let Some(at) = made {
        let of = all[at].pointee().unwrap();
        let kind = types.iter().position(|(known, _)| known == of).unwrap();
        writeln!(
            program,
            "        int slot = vacancy({kind});\n        void *key = NULL;\n        \
             a{at} = one_in(40) ? NULL : ({of} *)&key;\n        status = {call};\n        \
             pools[{kind}].live[slot] = status == 0;\n        \
             pools[{kind}].key[slot] = status == 0 ? key : pools[{kind}].key[slot];\n        \
             pools[{kind}].kind[slot] = {};",
            if name.contains("Backend") { "(int)a0" } else { "0" }
        )
        .unwrap();
    } else if let Some(kind) = ended {
        writeln!(
            program,
            "        int slot = (int)draw(SLOTS);\n        \
             a0 = ({})pools[{kind}].key[slot];\n        \
             refused = !pools[{kind}].live[slot] && a0 != NULL;\n        \
             status = {call};\n        \
             if (pools[{kind}].live[slot] && status != 0) {{\n            \
             contradicted(\"what lives was not destroyed\");\n        }}\n        \
             pools[{kind}].live[slot] = 0;",
            all[0].c_type
        )
        .unwrap();
    } else {
        writeln!(program, "        status = {call};").unwrap();
    }
    if name == "mcdnnKilnMalloc" {
        *program += "        if (status == 0) {\n            mcdnnKilnFree(a0, *a1);\n        }\n";
    }
    if let Some(reads) = reader(function) {
        *program += "        if (status == 0) {\n";
        let mut names = vec!["a0".to_owned()];
        let mut same = String::new();
        for (at, parameter) in all.iter().enumerate().skip(1) {
            writeln!(program, "            {} b{at};", parameter.c_type).unwrap();
            writeln!(program, "            memset(&b{at}, 0x55, sizeof(b{at}));").unwrap();
            names.push(format!("&b{at}"));
            write!(same, " || memcmp(&a{at}, &b{at}, sizeof(a{at})) != 0").unwrap();
        }
        writeln!(
            program,
            "            if ({}({}) != 0{same}) {{\n                \
             contradicted(\"what was set is not read\");\n            }}\n        }}",
            reads.name,
            names.join(", ")
        )
        .unwrap();
    }
    *program += "        break;\n    }\n";
}

/// What the elements of an attribute are, the type in its C name, and what they may be.
fn content(name: &str, of: &str, several: bool) -> &'static str {
    match of {
        "BACKEND_DESCRIPTOR" => "DESCRIPTORS",
        "HANDLE" => "HANDLES",
        "FLOAT" => "FLOATS",
        "DOUBLE" => "DOUBLES",
        "VOID_PTR" => "ADDRESSES",
        "FRACTION" => "FRACTIONS",
        "BOOLEAN" => "FLAG",
        "INT64" | "INT32" | "CHAR" => match name {
            _ if name.ends_with("_DIMENSIONS") => "DIMENSIONS",
            "TENSOR_STRIDES" => "STRIDES",
            _ if name.contains("UNIQUE_ID") => "IDENTIFIERS",
            "TENSOR_BYTE_ALIGNMENT" => "SIXTEEN",
            _ if name.ends_with("SPATIAL_DIMS") => "RANK",
            _ if name.contains("PADDING") || name.contains("INDEX") => "ZEROS",
            "TENSOR_VECTOR_COUNT" => "ONES",
            _ if several => "ONES",
            _ => "NUMBERS",
        },
        _ => "ENUMERATION",
    }
}

/// The values of the enumeration that an attribute's type stands for.
fn values_of(of: &str) -> Option<&'static Enumeration> {
    let words: String = of.split('_').collect();
    let known = |table: &&'static Enumeration| {
        let name = table.name.trim_start_matches("mcdnn").trim_start_matches("Backend");
        let name = name.trim_end_matches("_t").to_ascii_uppercase();
        name == words
            || name == words.replace("PROPOGATION", "PROPAGATION")
            || name == words.replace("TENSORREORDERINGMODE", "TENSORREORDERING")
            || words == "HEURMODE" && name == "HEURMODE"
    };
    let tables = MCDNN.iter().flat_map(|chapter| chapter.enumerations);
    tables.into_iter().find(known)
}

/// The attributes of each kind of descriptor that programs set.
fn attribute_tables(program: &mut String) {
    let kinds = enumeration("mcdnnBackendDescriptorType_t").unwrap();
    let types = enumeration("mcdnnBackendAttributeType_t").unwrap();
    let names = enumeration("mcdnnBackendAttributeName_t").unwrap();
    let short = |table: &Enumeration, number| {
        let at = table.values.iter().find(|(_, at)| *at == number);
        at.map(|(name, _)| *name).unwrap()
    };
    let (mut listed, mut tables) = (String::new(), Vec::new());
    for (_, kind) in kinds.values {
        let all = attributes(DescriptorType(*kind)).unwrap_or_default();
        let settable = all.iter().filter(|of| [Need::Required, Need::Optional].contains(&of.need));
        let mut rows = Vec::new();
        for (at, attribute) in settable.enumerate() {
            for (turn, of) in attribute.types.iter().enumerate() {
                let name = short(names, attribute.name.0);
                let several = attribute.most > 1;
                let of_kinds = attribute.of.iter().map(|kind| kind.0.to_string());
                let of_kinds: Vec<String> = of_kinds.collect();
                let (values, count) = match values_of(short(types, of.0)) {
                    _ if !of_kinds.is_empty() => {
                        let table = format!("kinds_{kind}_{at}_{turn}");
                        let list = of_kinds.join(", ");
                        writeln!(listed, "static const int {table}[] = {{{list}}};").unwrap();
                        (table, of_kinds.len())
                    }
                    Some(table) => (format!("{}_all", table.name), table.values.len()),
                    None => ("mcdnnStatus_t_all".to_owned(), 3),
                };
                rows.push(format!(
                    "    {{\"{name}\", {}, {}, {}, {}, {}, {values}, {count}}},",
                    attribute.name.0,
                    of.0,
                    content(name, short(types, of.0), several),
                    i32::from(several),
                    i32::from(attribute.need == Need::Required && turn == 0)
                ));
            }
        }
        if !rows.is_empty() {
            let rows = rows.join("\n");
            writeln!(listed, "static const struct attribute attributes_{kind}[] = {{\n{rows}\n}};")
                .unwrap();
            let count = format!("sizeof(attributes_{kind}) / sizeof(struct attribute)");
            tables.push(format!(
                "    case {kind}:\n        *count = {count};\n        \
                                 return attributes_{kind};"
            ));
        }
    }
    *program += &listed;
    write!(
        program,
        "\nstatic const struct attribute *attributes_of(int kind, size_t *count)\n{{\n    \
         switch (kind) {{\n{}\n    default:\n        *count = 0;\n        return NULL;\n    \
         }}\n}}\n\n",
        tables.join("\n")
    )
    .unwrap();
}

fn program() -> String {
    let types = objects();
    let mut program = "#include \"sequences.h\"\n\n".to_owned();
    writeln!(program, "enum {{ TYPES = {} }};", types.len()).unwrap();
    program += "static struct pool pools[TYPES];\nstatic mcdnnAlgorithm_t algorithm;\n\n";
    for table in MCDNN.iter().flat_map(|chapter| chapter.enumerations) {
        let numbers: Vec<String> = table.values.iter().map(|(_, at)| at.to_string()).collect();
        let name = table.name;
        writeln!(program, "static const int {name}_all[] = {{{}}};", numbers.join(", ")).unwrap();
    }
    program += "\nstatic void destroy(int type, void *key)\n{\n    mcdnnStatus_t status = 0;\n    \
                switch (type) {\n";
    for (at, (c_type, ends)) in types.iter().enumerate() {
        writeln!(
            program,
            "    case {at}:\n        status = {ends}(({c_type})key);\n        break;"
        )
        .unwrap();
    }
    program += "    }\n    if (status != 0) {\n        contradicted(\"what lives was not \
                destroyed\");\n    }\n}\n\n";
    program += r#"static long finalized[34];

/* What holds of every call. */
static void check(mcdnnStatus_t status)
{
    if (status == MCDNN_STATUS_INTERNAL_ERROR || (unsigned)status > 14) {
        char text[512];
        mcdnnGetLastErrorString(text, sizeof(text));
        contradicted(text);
    }
    if (refused && status == 0) {
        contradicted("what is no object was taken for one");
    }
}

/* A slot for a new object; what was there is destroyed. */
static int vacancy(int type)
{
    int slot = (int)draw(SLOTS);
    for (int i = 0; i < SLOTS && !one_in(20); i++) {
        if (!pools[type].live[i]) {
            slot = i;
            break;
        }
    }
    if (pools[type].live[slot]) {
        destroy(type, pools[type].key[slot]);
        pools[type].live[slot] = 0;
    }
    return slot;
}

static void *several(void *place, int type)
{
    void **keys = place;
    for (int i = 0; i < 8; i++) {
        keys[i] = object(pools, TYPES, type, 0);
    }
    return one_in(25) ? NULL : place;
}

"#;
    attribute_tables(&mut program);
    let at = |name: &str| types.iter().position(|(known, _)| known == name).unwrap();
    let (handles, descriptors) = (at("mcdnnHandle_t"), at("mcdnnBackendDescriptor_t"));
    write!(
        program,
        r#"/* Makes a descriptor of a kind, with all that it must have, and finalizes it. */
static int describe(int kind)
{{
    struct pool *own = &pools[{descriptors}];
    const int slot = vacancy({descriptors});
    void *key = NULL;
    size_t count = 0;
    const struct attribute *all = attributes_of(kind, &count);
    running = "a descriptor of a kind";
    if (mcdnnBackendCreateDescriptor((mcdnnBackendDescriptorType_t)kind, &key) != 0) {{
        return 0;
    }}
    own->key[slot] = key;
    own->live[slot] = 1;
    own->kind[slot] = kind;
    for (size_t i = 0; i < count; i++) {{
        if (all[i].required ? !one_in(150) : one_in(all[i].content == DESCRIPTORS ? 2 : 9)) {{
            calls++;
            taken += set_attribute(key, &all[i], pools, {handles}, {descriptors});
        }}
    }}
    calls++;
    const mcdnnStatus_t status = mcdnnBackendFinalize(key);
    finalized[kind] += status == 0;
    own->live[slot] += status == 0;
    refused = 0;
    check(status);
    return status == 0;
}}

/* Makes one that is whole, if some tries make one. */
static void described(int kind)
{{
    for (int tries = 0; tries < 4 && !describe(kind); tries++) {{
    }}
}}

/* A graph of one or two operations, up to a plan and a pack. */
static void graph(void)
{{
    static const int ends[] = {{
        MCDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, MCDNN_BACKEND_ENGINE_DESCRIPTOR,
        MCDNN_BACKEND_ENGINECFG_DESCRIPTOR, MCDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
        MCDNN_BACKEND_VARIANT_PACK_DESCRIPTOR}};
    static const int bases[] = {{
        MCDNN_BACKEND_POINTWISE_DESCRIPTOR, MCDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
        MCDNN_BACKEND_MATMUL_DESCRIPTOR, MCDNN_BACKEND_REDUCTION_DESCRIPTOR,
        MCDNN_BACKEND_RESAMPLE_DESCRIPTOR, MCDNN_BACKEND_RNG_DESCRIPTOR}};
    static const int operations[][2] = {{
        {{0, MCDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR}},
        {{1, MCDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR}},
        {{1, MCDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR}},
        {{1, MCDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR}},
        {{2, MCDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR}},
        {{3, MCDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR}},
        {{4, MCDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR}},
        {{4, MCDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR}},
        {{5, MCDNN_BACKEND_OPERATION_RNG_DESCRIPTOR}},
        {{0, MCDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR}},
        {{0, MCDNN_BACKEND_OPERATION_CONCAT_DESCRIPTOR}},
        {{0, MCDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR}},
        {{0, MCDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR}},
        {{0, MCDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR}},
        {{0, MCDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR}},
        {{0, MCDNN_BACKEND_OPERATION_BN_FINALIZE_STATISTICS_DESCRIPTOR}}}};
    rank = one_in(3) ? 4 : 3;
    for (int i = 0; i < 4; i++) {{
        described(MCDNN_BACKEND_TENSOR_DESCRIPTOR);
    }}
    for (int i = 0; i < 1 + (int)draw(2); i++) {{
        const int *operation = operations[draw(one_in(2) ? 1 : 16)];
        described(bases[operation[0]]);
        described(operation[1]);
    }}
    described(MCDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    for (int i = 0; i < 5 && !one_in(4); i++) {{
        described(ends[i]);
    }}
}}

"#
    )
    .unwrap();
    program += "static void step(int which)\n{\n    mcdnnStatus_t status = 0;\n    \
                refused = 0;\n    switch (which) {\n";
    let mut count = 0;
    for function in functions() {
        case(&mut program, count, function, &types);
        count += 1;
    }
    program += r#"    }
    calls++;
    taken += status == 0;
    check(status);
}

static long resident(void)
{
    long pages = 0, all = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%ld %ld", &all, &pages) != 2) {
        return -1;
    }
    fclose(file);
    return pages * 4;
}

"#;
    let create = |name: &str| functions().position(|function| function.name == name).unwrap();
    let made: Vec<usize> = functions()
        .enumerate()
        .filter(|(_, function)| function.name.contains("Create"))
        .map(|(at, _)| at)
        .collect();
    let made: Vec<String> = made.iter().map(usize::to_string).collect();
    writeln!(
        program,
        r#"int main(int count, char **arguments)
{{
    static const int made[] = {{{made}}};
    const unsigned long from = count > 1 ? strtoul(arguments[1], NULL, 10) : 1;
    const unsigned long sequences = count > 2 ? strtoul(arguments[2], NULL, 10) : 1000;
    long early = 0;
    mcdnnHandle_t own = NULL;
    signal(SIGSEGV, crashed);
    signal(SIGABRT, crashed);
    signal(SIGBUS, crashed);
    signal(SIGILL, crashed);
    signal(SIGFPE, crashed);
    if (mcdnnCreate(&own) != 0 ||
        mcdnnKilnMalloc(own, (void **)&device, (size_t)REGIONS * PLACE) != 0) {{
        return 3;
    }}
    for (seed = from; seed < from + sequences; seed++) {{
        state = seed * 0x9E3779B97F4A7C15ULL + 1;
        wild = one_in(2);
        memset(pools, 0, sizeof(pools));
        step({handle_case});
        const int length = 10 + (int)draw(80);
        if (one_in(8)) {{
            graph();
        }}
        for (int i = 0; i < length; i++) {{
            step(i % 4 == 0 ? made[draw(sizeof(made) / sizeof(int))] : (int)draw({count}));
        }}
        for (int type = 0; type < TYPES; type++) {{
            for (int slot = 0; slot < SLOTS; slot++) {{
                if (pools[type].live[slot]) {{
                    destroy(type, pools[type].key[slot]);
                }}
            }}
        }}
        if (seed - from == sequences / 2) {{
            early = resident();
        }}
    }}
    mcdnnDestroy(own);
    for (int kind = 0; kind < 34; kind++) {{
        printf("%d: %ld\n", kind, finalized[kind]);
    }}
    printf("%ld calls, %ld taken, %ld launches asked for, %ld KiB more\n", calls, taken, launched,
           resident() - early);
    return 0;
}}"#,
        made = made.join(", "),
        handle_case = create("mcdnnCreate"),
    )
    .unwrap();
    program
}

#[test]
fn sequences_of_calls() {
    let of = |name, default: &str| env::var(name).unwrap_or_else(|_| default.to_owned());
    let [from, sequences] = [of("KILN_SEQUENCES_FROM", "1"), of("KILN_SEQUENCES", SEQUENCES)];
    let output = run(&compile_text("sequences", &program()), &[&from, &sequences]);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    println!("{printed}");
    // What is destroyed gives its memory back.
    let grown = printed.lines().last().and_then(|line| line.split(' ').rev().nth(2));
    let grown: i64 = grown.and_then(|kib| kib.parse().ok()).expect("the program tells");
    assert!(grown < 64_000, "{grown} KiB more at the end than half way");
}
