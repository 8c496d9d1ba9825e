use super::*;
use crate::plan::{Arg, ModuleVariable};
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
    assert!(
        refusal(SPEC).starts_with("15:19: unknown word `block_bytes`: did you mean `slot_bytes`? expected one of count, world, "),
        "{}",
        refusal(SPEC)
    );
}

#[rstest]
#[case::toml("worlds = [2, 4]", "worlds = [2, 4", "8:1: missing comma between array elements")]
#[case::key("in_place = true", "in_palce = true", "10:1: unknown field `in_palce`: did you mean `in_place`? expected one of")]
#[case::dtype("\"bf16\"]", "\"bf61\"]", "4:18: unknown variant `bf61`: did you mean `bf16`? expected one of `f32`, ")]
#[case::name("\"mine\"", "\"mi:ne\"", "1:8: name `mi:ne`: 1 to 64 of a-z, 0-9 and _")]
#[case::world("[2, 4]", "[2, 73]", "6:10: world size 73: a group has 1 to 72 ranks")]
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
#[case::placeholder(
    "mine_{dtype}_{op}",
    "mine_{type}_{op}",
    "3:9: kernel `mine_{type}_{op}`: only {dtype}, {op}, {world}, {rank} are replaced"
)]
#[case::buffer(
    "peer_table = \"input\"",
    "peer_table = \"inputs\"",
    "33:14: unknown buffer `inputs`: did you mean `input`? expected one of input, output, pads, own"
)]
#[case::local("peer_table = \"input\"", "peer_table = \"own\"", "33:14: buffer `own` is local: peers have no address of it")]
#[case::multicast("peer_table = \"input\"", "multicast = \"own\"", "33:13: buffer `own` is local: peers have no address of it")]
#[case::kinds("peer_table = \"input\"", "peer_table = \"input\"\nu32 = 1", "32:1: an argument has exactly one of")]
#[case::length("length = 8", "length = 3", "30:38: length 3: at least the largest world, 4, and at most 72")]
#[case::sign("u64 = \"grid * block\"", "u64 = -5", "40:7: -5 does not fit u64")]
#[case::stray("pointer = \"own\"", "u32 = 1", "37:10: offset goes with a buffer")]
#[case::same("name = \"own\"", "name = \"pads\"", "23:8: a second buffer `pads`")]
#[case::fill(
    "fill = 0x5a",
    "fill = 256",
    "27:8: fill: expected \"zero\", \"uninitialised\", a byte from 0 to 255 or a table as { u32 = 1 }"
)]
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
#[case::fits("u64 = \"grid * block\"", "u32 = \"1 <> 2\"", "40:11: `>` where a number, a word or `(` is expected in u32")]
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
    let listed = spec().replace("entry = \"mine_{dtype}_{op}\"\n", "entries = { \"f32,sum\" = \"a_w{world}\", \"bf16,max\" = \"b\" }\n");
    let foreign = Foreign::read(&listed, None).unwrap();
    assert_eq!(foreign.samples().iter().map(|launch| launch.entry.as_str()).collect::<Vec<_>>(), ["a_w2", "a_w4", "b"]);
    let braces = listed.replace("a_w{world}", "a_w{worlds}");
    let only = "kernel `a_w{worlds}`: only {dtype}, {op}, {world}, {rank} are replaced";
    assert!(refusal(&braces).contains(only), "{}", refusal(&braces));
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

/// A page that uses what the second version adds.
const STEPS: &str = r#"name = "moe"
collective = "all_to_all"
module = "moe.w{world}.ptx"
entry = "dispatch_{dtype}"
dtypes = ["bf16", "f32"]
worlds = [2, 4]

[call]
counts = true
destroys_input = true
when = "count <= 0x1000"

[contract]
start = 0xffffff80

[launch]
grid = ["rank == 0 ? 2 : 4", "world"]
block = [32, 2]
cluster = 2
waits_for_peers = false

[[buffer]]
name = "staging"
role = "scratch"
bytes = "world * slot_bytes"
fill = { u16 = 0x8000 }

[[buffer]]
name = "table"
role = "state"
memory = "local"
bytes = "world * 8"
fill = { u64 = "rank * 100 + index" }

[[buffer]]
name = "words"
role = "signals"
bytes = "world * 4"
fill = { i32 = [-1, 7] }

[[argument]]
memory = [{ peers = "staging" }, { peers = "words", length = 4 }, { pointer = "table" }]

[[argument]]
struct = [{ u32 = "sent(rank, i)", repeat = "world" }]

[[argument]]
pointer = "staging"
of_rank = "(rank + 1) % world"
offset = "rank * slot_bytes"

[[argument]]
stride = "staging"

[[argument]]
u8 = "root == 0"

[[argument]]
u64 = "most_count * 1000 + call"

[[step]]
copy = { from = "input", from_offset = "sent_at(rank, i) * element_size", bytes = "sent(rank, i) * element_size", to = "staging", to_offset = "rank * slot_bytes", to_rank = "i" }
repeat = "world"
stream = 1

[[step]]
write = { buffer = "words", offset = "rank * 4", value = "call + 1", to_rank = "(rank + 1) % world" }

[[step]]
wait = { buffer = "words", offset = "(rank + world - 1) % world * 4", value = "call + 1" }
when = "rank != 0 || world == 4"

[[step]]
join = 1

[[step]]
launch = {}

[[step]]
launch = { entry = "combine", grid = 1, cluster = 1, programmatic = true, arguments = [{ pointer = "output" }] }
when = "rank == 0"

[[step]]
fill = { buffer = "staging", bytes = 2, byte = 0xff }
"#;

fn of_parts(world: u32, count: u64) -> Call {
    let (call, buffers) = Call::standalone(Shape::new(Collective::AllToAll, world, count), DType::BF16, ReduceOp::Copy).unwrap();
    let counts = Counts::new(world, |sender, receiver| u64::from(sender + 2 * receiver).min(count));
    Call::with_counts(&call.of_rank(0), world, &counts, &buffers).unwrap()
}

/// If this fails, what ranks do in a call is not what its specification says.
#[test]
fn steps_are_operations_of_each_rank() {
    let foreign = Foreign::read(STEPS, None).unwrap();
    let call = of_parts(2, 8);
    foreign.supports(&call).unwrap();
    let target = Target { call: 6, most_count: Some(16), ..Target::default() };
    insta::assert_snapshot!(foreign.plan(&call, &target).to_string().replace("dispatch_bf16<<<", "dispatch_bf16\n    <<<"));
    assert!(foreign.numbers_calls() && foreign.destroys_input() && foreign.takes_counts());
    assert_eq!(foreign.start(), Some(0xffff_ff80));
    let files: Vec<Option<String>> = foreign.kernels().modules().into_iter().map(|module| module.file).collect();
    assert_eq!(files, [Some("moe.w2.ptx".into()), Some("moe.w4.ptx".into())]);
    let entries: Vec<String> = foreign.samples().into_iter().map(|launch| format!("{} {}", launch.module, launch.entry)).collect();
    let of_world = |world| ["dispatch_bf16", "combine", "dispatch_f32"].map(|entry| format!("foreign/moe/moe.w{world}.ptx {entry}"));
    assert!([2, 4].into_iter().flat_map(of_world).all(|entry| entries.contains(&entry)), "{entries:?}");
    let contents: Vec<crate::plan::Fill> = foreign.workspace(DType::BF16, 2, 32).into_iter().map(|buffer| buffer.fill).collect();
    assert_eq!(contents[0], crate::plan::Fill::Repeated(vec![0, 0x80]));
    assert_eq!(contents[1].contents(1, 16).unwrap(), [100_u64, 101].map(u64::to_le_bytes).concat());
    assert_eq!(contents[2].contents(0, 8).unwrap(), [u32::MAX, 7].map(u32::to_le_bytes).concat());
    let reason = foreign.supports(&of_parts(2, 0x1001)).unwrap_err();
    assert_eq!(reason, "the specification excludes calls for which `count <= 0x1000` does not hold");
}

/// If this fails, ranks of a call in place are given another rank's slot.
#[test]
fn slots_in_place_are_each_rank_s_own() {
    let text = SPEC
        .replace("collective = \"all_reduce\"", "collective = \"all_gather\"")
        .replace("_{op}", "")
        .replace("ops = [\"sum\", \"max\"]\n", "")
        .replace("dynamic_shared = \"block_bytes\"\n", "")
        .replace("count_multiple_of = \"16 / element_size\"\n", "");
    let foreign = Foreign::read(&text, None).unwrap();
    let region = |elements: u64| Region::new("both", 0, elements * 2);
    let shape = Shape::new(Collective::AllGather, 2, 64);
    let call = Call::on_regions(shape.clone(), DType::BF16, ReduceOp::Copy, region(shape.input()), region(shape.output())).unwrap();
    foreign.supports(&call).unwrap();
    let Op::Launch(launch) = &foreign.plan(&call, &Target::default()).ranks[1][0] else { panic!("a launch") };
    let of_rank = |rank: u32| Arg::AddressOf { region: Region::new("both", u64::from(rank) * 128, 128), rank };
    let Arg::InMemory(table) = &launch.args[1] else { panic!("{launch}") };
    let Arg::Struct(addresses) = &table[0] else { panic!("{launch}") };
    assert_eq!((addresses.len(), &addresses[..3]), (16, &[of_rank(0), of_rank(1), Arg::U64(0)][..]));
}

#[rstest]
#[case::kinds(
    "launch = {}",
    "launch = {}\njoin = 1",
    "76:1: a step has exactly one of launch, copy, fill, write, wait, join: this one has 2"
)]
#[case::stream("stream = 1\n", "stream = 4\n", "64:10: stream 4: side streams are 1 to 3")]
#[case::local("to = \"staging\"", "to = \"table\"", "62:120: buffer `table` is local: peers have no address of it")]
#[case::local_stride("stride = \"staging\"", "stride = \"table\"", "53:10: buffer `table` is local: peers have no address of it")]
#[case::axes("[32, 2]", "[1, 2, 3, 4]", "18:9: block of 4 sizes: 1 to 3")]
#[case::counts("\"all_to_all\"", "\"all_gather\"", "9:10: counts: all_gather has parts of one length")]
#[case::bits("0x8000", "0x18000", "1:1: no call of `moe` can be made: buffer `moe.staging`: fill `98304` is 98304: expected 0 to 65535")]
#[case::typed("{ u16 = 0x8000 }", "{ u16 = 1, u32 = 2 }", "26:8: fill: exactly one of u8, u16, u32, u64, i32, i64, f32, file")]
#[case::file("{ u16 = 0x8000 }", "{ file = \"no.bin\" }", "26:17: file `no.bin`: there are no files here")]
#[case::of_rank(
    "of_rank = \"(rank + 1) % world\"",
    "of_rank = \"world\"",
    "1:1: no call of `moe` can be made: of_rank `world` is 2: expected 0 to 1"
)]
#[case::cluster("cluster = 1, ", "", "1:1: no call of `moe` can be made: grid 1 in clusters of 2: a multiple on each axis is needed")]
#[case::repeat(
    "{ u32 = \"sent(rank, i)\", repeat = \"world\" }",
    "{ u32 = 1, repeat = 5000 }",
    "1:1: no call of `moe` can be made: repeat `5000` is 5000: expected 0 to 4096"
)]
#[case::start("start = 0xffffff80", "start = 0", "14:9: start `0` is 0: expected 1 to 4294967295")]
#[case::rank_in_sizes("\"world * slot_bytes\"", "\"rank * slot_bytes\"", "25:10: unknown word `rank`: expected one of count, ")]
#[case::wait(
    "wait = { buffer = \"words\", offset",
    "wait = { to_rank = 1, buffer = \"words\", offset",
    "70:20: to_rank: a stream waits for words of its own rank"
)]
#[case::no_ops("collective = \"all_to_all\"", "collective = \"reduce\"", "1:8: no ops: reduce reduces, and they name how")]
fn contradictions_of_steps_are_refused_where_they_stand(#[case] find: &str, #[case] replace: &str, #[case] expected: &str) {
    assert!(STEPS.contains(find), "{find}");
    let refusal = refusal(&STEPS.replacen(find, replace, 1));
    assert!(refusal.starts_with(expected) && !refusal.ends_with('.'), "{refusal}");
}

/// If this fails, a variable that the host sets is not the same for every launch of a group, or has another rank's value.
#[test]
fn variables_are_of_largest_call() {
    let variable = "\n[[variable]]\nname = \"bases\"\nvalue = [{ pointer = \"pads\", of_rank = \"i\", repeat = \"world\" }, { u64 = \"rank * 10 + count\" }]\n";
    let foreign = Foreign::read(&(spec() + variable), None).unwrap();
    assert_eq!(foreign.kernels().variables().collect::<Vec<_>>(), ["bases"]);
    let of = |count| {
        let call = call(DType::F32, ReduceOp::Sum, 2, count);
        let plan = foreign.plan(&call, &Target { waiting_blocks: 4, most_count: Some(4096), ..Target::default() });
        let Op::Launch(launch) = &plan.ranks[1][0] else { panic!("{plan}") };
        launch.variables.clone()
    };
    let base = |rank| Arg::AddressOf { region: Region::new("mine.pads", 0, 128), rank };
    assert_eq!(of(4), [ModuleVariable { name: "bases".into(), value: vec![base(0), base(1), Arg::U64(10 + 4096)] }]);
    assert_eq!(of(4), of(4096));
}

#[rstest]
#[case("name = \"\"\nvalue = [{ u32 = 1 }]", "43:8: variable ``: a name of the module's, once")]
#[case("name = \"a\"\nvalue = []", "43:8: value of `a`: 1 to 256 fields")]
#[case("name = \"a\"\nvalue = [{ pointer = \"output\" }]", "44:10: a variable is set once for a group: input and output are a call's")]
#[case("name = \"a\"\nvalue = [{ memory = [{ u32 = \"root\" }] }]", "44:10: a variable is set once for a group: `root` is a call's")]
#[case("name = \"a\"\nvalue = [{ stride = \"pads\", shift = 64 }]", "44:37: shift 64: 0 to 63")]
#[case("name = \"a\"\nvalue = [{ stride = \"pads\", bits = 16 }]", "44:36: bits 16: 32 or 64")]
#[case("name = \"a\"\nvalue = [{ u32 = 1, bits = 32 }]", "44:28: bits goes with stride")]
fn variables_are_refused(#[case] variable: &str, #[case] expected: &str) {
    assert_eq!(refusal(&format!("{}\n[[variable]]\n{variable}\n", spec())), expected);
}

/// If this fails, a kernel whose grid is a part of the waiting blocks is refused for the machines that let one block wait.
#[test]
fn some_machine_is_enough() {
    let halves = spec().replace("min(waiting_blocks, ", "min(waiting_blocks / 2, ");
    let foreign = Foreign::read(&halves, None).unwrap();
    assert_eq!(foreign.samples().len(), 4);
    let call = call(DType::F32, ReduceOp::Sum, 2, 1024);
    let on = |waiting_blocks| foreign.check_target(&call, &Target { waiting_blocks, ..Target::default() });
    assert_eq!((foreign.supports(&call), on(4), on(2)), (Ok(()), Ok(()), Ok(())));
    assert!(on(1).unwrap_err().starts_with("grid `min(waiting_blocks / 2, "));
    let never = spec().replace("min(waiting_blocks, ", "min(waiting_blocks / 129, ");
    assert!(refusal(&never).contains("no call of `mine` can be made: grid "));
}

/// If this fails, a list has calls of no elements only where larger ones are allowed.
#[test]
fn least_counts_are_above_zero() {
    let least = |text: &str| Foreign::read(text, None).unwrap().least_count(DType::BF16, 2);
    assert_eq!(least(&spec()), Some(8));
    assert_eq!(least(&spec().replace("\"16 / element_size\"", "9999")), Some(9999));
    assert_eq!(least(&spec().replace("in_place = true", "least_count = 9\nin_place = true")), Some(16));
}

/// If this fails, a copy that says so is held to the sign of a zero, or one that says nothing is not.
#[rstest]
#[case("", true)]
#[case("\n[contract]\nspecial_values = true\n", true)]
#[case("\n[contract]\nspecial_values = false\n", false)]
fn copies_promise_special_values(#[case] contract: &str, #[case] promised: bool) {
    let gathers = spec().replace("\"all_reduce\"", "\"all_gather\"").replace("ops = [\"sum\", \"max\"]\n", "") + contract;
    let foreign = Foreign::read(&gathers, None).unwrap();
    let call = Call::standalone(Shape::new(Collective::AllGather, 2, 8), DType::F32, ReduceOp::Copy).unwrap().0;
    let contract = foreign.contract(&call);
    assert_eq!((contract.special_values, contract.order), (promised, crate::contract::Order::Copied));
    assert!(!Foreign::read(&spec(), None).unwrap().contract(&call).special_values, "of sums only where it is said");
}

/// SplitMix64: the same mutations every time.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % limit as u64) as usize
    }

    /// The text with a few of its tokens cut, doubled, exchanged or replaced.
    fn mutated(&mut self, text: &str) -> String {
        const WORDS: [&str; 24] = [
            "0",
            "-1",
            "18446744073709551615",
            "1e300",
            "\"\"",
            "[]",
            "{}",
            "\"rank\"",
            "\"i << 63\"",
            "\"world - count\"",
            "\"max(1, 2) / 0\"",
            "true",
            "\"input\"",
            "\"mine\"",
            "\"{rank}{world}\"",
            "\n[[step]]\n",
            "\n[[variable]]\n",
            "repeat = 4096",
            "stride",
            "=",
            ",",
            "\u{fffd}",
            "\"count * bytes * bytes\"",
            "[1, 72]",
        ];
        let mut tokens: Vec<String> = text.split_inclusive([' ', '\n', ',', '[', ']', '{', '}']).map(str::to_owned).collect();
        for _ in 0..1 + self.below(4) {
            let (at, other) = (self.below(tokens.len()), self.below(tokens.len()));
            match self.below(4) {
                0 => tokens[at].clear(),
                1 => tokens[at] = tokens[at].repeat(2),
                2 => tokens.swap(at, other),
                _ => tokens[at] = format!("{} ", WORDS[self.below(WORDS.len())]),
            }
        }
        tokens.concat()
    }
}

/// If this fails, a specification that somebody sends ends the command in a panic.
#[test]
fn mutated_specifications_never_panic() {
    let steps = "\n[[step]]\nlaunch = {}\n[[step]]\ncopy = { from = \"own\", to = \"output\", to_rank = \"i\" }\nrepeat = \"world\"\nwhen = \"rank == root && i != root\"\n\
                 [[step]]\nfill = { buffer = \"own\", byte = 7 }\nstream = 1\n[[step]]\nwrite = { buffer = \"pads\", value = \"call + 1\" }\n[[variable]]\nname = \"v\"\nvalue = [{ u64 = 1 }]\n";
    let texts = [spec(), spec() + steps];
    let mut random = Random(1);
    let (mut read, mut refused) = (0, 0);
    for round in 0..3000 {
        let text = random.mutated(&texts[round % texts.len()]);
        match Foreign::with_files(&text, None, &|_| Ok(vec![1, 2, 3])) {
            Ok(foreign) => {
                read += 1;
                for call in foreign.sample_calls().take(4).collect::<Vec<_>>() {
                    foreign.workspace(call.dtype, call.world(), call.bytes());
                    let target = Target { waiting_blocks: 4, ..Target::default() };
                    if foreign.supports(&call).is_ok() && foreign.check_target(&call, &target).is_ok() {
                        foreign.plan(&call, &target);
                    }
                }
            }
            Err(error) => {
                refused += 1;
                let line = text.split('\n').nth(error.line - 1).unwrap_or_else(|| panic!("{error}: no such line"));
                assert!(error.column <= line.chars().count() + 1, "{error}");
            }
        }
    }
    assert!(read > 50 && refused > 1000, "{read} read, {refused} refused: the mutations are too tame or too wild");
}

/// If this fails, a contract rests on an assumption that nobody makes, or for no reason, or its reason is not printed.
#[test]
fn assumptions_have_names_and_reasons() {
    let with = |line: &str| spec().replace("[launch]\n", &format!("[contract]\n{line}\n\n[launch]\n"));
    let foreign = Foreign::read(&with("assumes.vector = \"b\"\nassumes.boundary = \"a\""), None).unwrap();
    assert_eq!(foreign.assumes(), [("boundary".to_owned(), "a".to_owned()), ("vector".to_owned(), "b".to_owned())]);
    assert!(Foreign::read(&spec(), None).unwrap().assumes().is_empty());
    let unknown = refusal(&with("assumes.boundry = \"a\""));
    assert_eq!(
        unknown,
        "13:9: unknown assumption `boundry`: did you mean `boundary`? expected one of boundary, dependency, retired, vector, lanes, returned, alias"
    );
    let empty = refusal(&with("assumes.alias = \" \""));
    assert_eq!(empty, "13:17: assumption `alias` has no reason");
}
