use super::*;
use crate::plan::Arg;
use rstest::rstest;

const SPEC: &str = r#"name = "mine"
collective = "all_reduce"
entry = "mine_{dtype}_{op}"
dtypes = ["f32", "bf16"]
ops = ["sum", "max"]
worlds = [2, 4]

[call]
count_multiple_of = "16 / element_size"
in_place = true

[launch]
grid = "min(waiting_blocks, max(1, ceil_div(count, 256)))"
block = 256
dynamic_shared = "block_bytes"

[[buffer]]
name = "pads"
role = "signals"
bytes = "world * 64"

[[buffer]]
name = "own"
role = "scratch"
memory = "local"
bytes = "bytes"
fill = 0x5a

[[argument]]
struct = [{ peers = "pads", length = 8 }, { i32 = -1 }, { f32 = 0.5 }]

[[argument]]
peer_table = "input"

[[argument]]
pointer = "own"
offset = "rank * 4"

[[argument]]
u64 = "grid * block"
"#;

fn spec() -> String {
    SPEC.replace("dynamic_shared = \"block_bytes\"\n", "dynamic_shared = \"element_size * 1024\"\n")
}

fn refusal(text: &str) -> String {
    Foreign::read(text, None).err().expect("a refusal").to_string()
}

fn call(dtype: DType, op: ReduceOp, world: u32, count: u64) -> Call {
    Call::standalone(Shape::new(Collective::AllReduce, world, count), dtype, op).unwrap().0
}

#[test]
fn a_specification_is_a_plan() {
    let foreign = Foreign::read(&spec(), None).unwrap();
    let call = call(DType::BF16, ReduceOp::Max, 4, 1024);
    foreign.supports(&call).unwrap();
    let plan = foreign.plan(&call, &Target { waiting_blocks: 3, ..Target::default() });
    assert_eq!(plan.world(), 4);
    let Op::Launch(launch) = &plan.ranks[2][0] else { panic!("{plan}") };
    assert_eq!((launch.entry.as_str(), launch.grid, launch.block, launch.dynamic_shared), ("mine_bf16_max", 3.into(), 256.into(), 2048));
    let pads = Arg::PeerArray { region: Region::new("mine.pads", 0, 256), length: 8 };
    let fields = vec![pads, Arg::U32(u32::MAX), Arg::U32(0.5_f32.to_bits())];
    let own = Arg::Address(Region::new("mine.own", 8, 2040));
    assert_eq!(
        launch.args,
        [Arg::Struct(fields), Arg::InMemory(vec![Arg::PeerArray { region: call.input.clone(), length: 16 }]), own, Arg::U64(768)]
    );
    let workspace = foreign.workspace(DType::BF16, 4, 2048);
    assert_eq!((workspace[0].bytes, workspace[0].local, &workspace[0].fill), (256, false, &crate::plan::Fill::Byte(0)));
    assert_eq!((workspace[1].bytes, workspace[1].local, &workspace[1].fill), (2048, true, &crate::plan::Fill::Byte(0x5a)));
    assert_eq!(foreign.samples().len(), 4, "one launch of each kernel");
}

#[test]
fn unknown_words_are_refused_where_they_stand() {
    assert!(refusal(SPEC).starts_with("15:19: unknown word `block_bytes`: expected one of count, world, "), "{}", refusal(SPEC));
}

#[rstest]
#[case::toml("worlds = [2, 4]", "worlds = [2, 4", "8:1: missing comma between array elements")]
#[case::key("in_place = true", "in_palce = true", "10:1: unknown field `in_palce`, expected one of")]
#[case::dtype("\"bf16\"]", "\"bf61\"]", "4:18: unknown variant `bf61`, expected one of `f32`, ")]
#[case::name("\"mine\"", "\"mi:ne\"", "1:8: name `mi:ne`: 1 to 64 of a-z, 0-9 and _")]
#[case::world("[2, 4]", "[2, 17]", "6:10: world size 17: a group has 1 to 16 ranks")]
#[case::twice("[2, 4]", "[2, 2]", "6:10: worlds names one twice")]
#[case::factor("ops = [", "ops = [\"premul_sum\", ", "5:7: operator premul_sum: a launch has no argument for a rank's factor")]
#[case::pattern("mine_{dtype}_{op}", "mine_{dtype}", "3:9: one kernel `mine_{dtype}` for several of 4 combinations")]
#[case::copies(
    "fill = 0x5a",
    "fill = 0x5a\n[contract]\norder = \"copied\"",
    "29:9: unknown variant `copied`, expected one of `rank_ascending`, `any_rotation`, `any`"
)]
#[case::beyond_any_device(
    "\"world * 64\"",
    "\"count * 1000000000000\"",
    "20:10: bytes of buffer `pads` `count * 1000000000000` is 1040000000000000 for 1040 elements on 2 ranks: expected at most 70368744177664"
)]
#[case::a_number_beyond_any_device(
    "\"world * 64\"",
    "100000000000000",
    "20:9: bytes of buffer `pads` `100000000000000` is 100000000000000 for "
)]
#[case::placeholder("mine_{dtype}_{op}", "mine_{type}_{op}", "3:9: kernel `mine_{type}_{op}`: only {dtype} and {op} are replaced")]
#[case::buffer(
    "peer_table = \"input\"",
    "peer_table = \"inputs\"",
    "33:14: unknown buffer `inputs`: expected one of input, output, pads, own"
)]
#[case::local("peer_table = \"input\"", "peer_table = \"own\"", "33:14: buffer `own` is local: peers have no address of it")]
#[case::multicast("peer_table = \"input\"", "multicast = \"own\"", "33:13: buffer `own` is local: peers have no address of it")]
#[case::kinds("peer_table = \"input\"", "peer_table = \"input\"\nu32 = 1", "32:1: an argument has exactly one of")]
#[case::length("length = 8", "length = 3", "30:38: length 3: at least the largest world, 4, and at most 16")]
#[case::sign("u64 = \"grid * block\"", "u64 = -5", "40:7: -5 does not fit u64")]
#[case::stray("pointer = \"own\"", "u32 = 1", "37:10: offset goes with a buffer")]
#[case::same("name = \"own\"", "name = \"pads\"", "23:8: a second buffer `pads`")]
#[case::fill("fill = 0x5a", "fill = 256", "27:8: fill: expected \"zero\", \"uninitialised\" or a byte from 0 to 255")]
#[case::syntax("\"world * 64\"", "\"world * (64\"", "20:21: the end where `)` is expected in bytes of buffer `pads`")]
#[case::zero(
    "\"world * 64\"",
    "\"64 / (world - world)\"",
    "1:1: no call of `mine` can be made: specification 20:13: division of 64 by zero in bytes"
)]
#[case::overflow("\"world * 64\"", "\"18446744073709551615 * world\"", "1:1: no call of `mine` can be made: specification 20:31: ")]
#[case::grid(
    "\"min(waiting_blocks, max(1, ceil_div(count, 256)))\"",
    "0",
    "1:1: no call of `mine` can be made: grid `0` is 0: expected 1 to"
)]
#[case::fits("u64 = \"grid * block\"", "u32 = \"1 << 2\"", "40:10: `<` is not expected here in u32")]
#[case::range(
    "u64 = \"grid * block\"",
    "i32 = \"2147483648\"",
    "1:1: no call of `mine` can be made: i32 `2147483648` is 2147483648: expected 0 to 2147483647"
)]
#[case::offset("\"rank * 4\"", "\"bytes + 1\"", "1:1: no call of `mine` can be made: offset 1 lies past mine.own[0..0]")]
fn contradictions_are_refused_where_they_stand(#[case] find: &str, #[case] replace: &str, #[case] expected: &str) {
    let text = spec();
    assert!(text.contains(find), "{find}");
    let refusal = refusal(&text.replacen(find, replace, 1));
    assert!(refusal.starts_with(expected) && !refusal.ends_with('.'), "{refusal}");
}

#[test]
fn kernels_may_be_named_one_by_one_or_from_outside() {
    let listed = spec().replace("entry = \"mine_{dtype}_{op}\"\n", "entries = { \"f32,sum\" = \"a\", \"bf16,max\" = \"b\" }\n");
    let foreign = Foreign::read(&listed, None).unwrap();
    assert_eq!(foreign.samples().iter().map(|launch| launch.entry.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    let reason = foreign.supports(&call(DType::F32, ReduceOp::Max, 2, 8)).unwrap_err();
    assert_eq!(reason, "the specification names no kernel for max of f32");
    let outside = Foreign::read(&listed, Some("k_{op}_{dtype}")).unwrap();
    assert_eq!(outside.samples()[0].entry, "k_sum_f32");
    let wrong = listed.replace("f32,sum", "f64,sum");
    assert!(refusal(&wrong).contains("entries has `f64,sum`, which is no DTYPE,OP of dtypes and ops"), "{}", refusal(&wrong));
    let none = spec().replace("entry = \"mine_{dtype}_{op}\"\n", "");
    assert!(refusal(&none).contains("no kernel: it is named by entry, by entries or on the command line"), "{}", refusal(&none));
}

#[test]
fn texts_that_are_no_specification_are_errors() {
    for text in ["", "\u{0}", "name = ", "[[argument]]", &"[".repeat(5000), &"a = 1\n".repeat(200_000)] {
        assert!(Foreign::read(text, None).is_err());
    }
}
