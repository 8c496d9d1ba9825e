//! The schema of specifications, which editors complete and check by.

use passmuster::algorithms::Foreign;
use rstest::rstest;

/// If this fails, editors that go by the schema refuse a key that there is, or offer one that there is not.
#[rstest]
#[case::top("", "")]
#[case::call("call", "[call]\n")]
#[case::launch("launch", "[launch]\n")]
#[case::step("step", "[[step]]\n")]
#[case::copy("copy", "[[step]]\n[step.copy]\n")]
#[case::fill("fill", "[[step]]\n[step.fill]\n")]
#[case::word("word", "[[step]]\n[step.wait]\n")]
#[case::contract("contract", "[contract]\n")]
#[case::buffer("buffer", "[[buffer]]\n")]
#[case::contents("contents", "[[buffer]]\n[buffer.fill]\n")]
#[case::argument("argument", "[[argument]]\n")]
#[case::variable("variable", "[[variable]]\n")]
#[case::task("task", "[task]\n")]
#[case::parameter("parameter", "[task]\n[[task.parameter]]\n")]
#[case::task_tensor("task_tensor", "[task]\n[[task.tensor]]\n")]
#[case::output_contract("output_contract", "[task]\n[[task.tensor]]\n[task.tensor.contract]\n")]
fn the_schema_has_the_keys_that_there_are(#[case] definition: &str, #[case] table: &str) {
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/specification.schema.json");
    let schema: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(schema).unwrap()).unwrap();
    let of = if definition.is_empty() { &schema } else { &schema["$defs"][definition] };
    let mut keys: Vec<&str> = of["properties"].as_object().unwrap().keys().map(String::as_str).collect();
    let refusal = Foreign::read(&format!("{table}no_such_key = 1\n"), None).err().unwrap().to_string();
    // Two keys are `a` or `b`, more are one of `a`, `b`, `c`.
    let expected = refusal.split(", expected ").nth(1).unwrap_or_else(|| panic!("{refusal}"));
    let mut expected: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
    keys.sort_unstable();
    expected.sort_unstable();
    assert_eq!(keys, expected);
}
