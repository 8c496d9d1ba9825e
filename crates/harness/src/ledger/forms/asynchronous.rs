//! What goes on beside its thread (PTX ISA 9.7.9.25, 9.7.13.15): copies and reductions in bulk, copies of threads, stores that an mbarrier counts, and what
//! mbarriers say.
//!
//! Every thread has memory and an mbarrier of its own. Waits give up where a phase never comes.

use super::{FIELD, Form, value};
use passmuster_ptx::Type::{self, *};

/// Where in a thread's room what is, in bytes: the destination, the source, its mbarrier.
const TO: &str = "%room";
const FROM: &str = "%room+16";
const MBARRIER: &str = "%room+32";
const AT_MBARRIER: u32 = 32;

/// An address some bytes further.
fn further(at: &str, bytes: u32) -> String {
    let (base, offset) = at.split_once('+').unwrap_or((at, "0"));
    format!("{base}+{}", offset.parse::<u32>().unwrap_or(0) + bytes)
}

/// Bytes of a bulk copy.
const BYTES: u32 = 16;

/// All of them.
pub(super) fn forms() -> Vec<Form> {
    let mut forms = Vec::new();
    for (op, types) in to_global() {
        forms.extend(types.iter().map(|&ty| reduced_in_global(op, ty)));
    }
    for (op, types) in to_shared() {
        forms.extend(types.iter().map(|&ty| reduced_in_shared(op, ty)));
        forms.extend(types.iter().map(|&ty| stored(&format!("red.async.{op}.{ty}"), Some(op), ty, 1)));
    }
    for ty in [B32, B64, U32, U64, S32, S64, F32, F64] {
        forms.push(stored(&format!("st.async.{ty}"), None, ty, 1));
        forms.push(stored(&format!("st.async.v2.{ty}"), None, ty, 2));
    }
    forms.extend([B32, U32, S32, F32].map(|ty| stored(&format!("st.async.v4.{ty}"), None, ty, 4)));
    forms.extend(["global", "shared::cta"].into_iter().flat_map(copied_in_bulk));
    forms.extend([4, 8, 16].map(copied));
    forms.extend([false, true].map(counted));
    forms.extend(mbarriers());
    forms
}

fn to_global() -> [(&'static str, &'static [Type]); 6] {
    [
        ("add", &[U32, S32, U64, F32, F64, F16, Bf16]),
        ("min", &[U32, S32, U64, S64, F16, Bf16]),
        ("max", &[U32, S32, U64, S64, F16, Bf16]),
        ("and", &[B32, B64]),
        ("or", &[B32, B64]),
        ("xor", &[B32, B64]),
    ]
}

fn to_shared() -> [(&'static str, &'static [Type]); 8] {
    [
        ("add", &[U32, S32, U64]),
        ("min", &[U32, S32]),
        ("max", &[U32, S32]),
        ("and", &[B32]),
        ("or", &[B32]),
        ("xor", &[B32]),
        ("inc", &[U32]),
        ("dec", &[U32]),
    ]
}

/// 16 bytes of one operand, element after element.
fn filled(space: &str, at: &str, operand: &str, ty: Type) -> String {
    let store = |element: u32| format!("st.{space}.b{} [{}], {operand};\n", ty.bits(), further(at, element * ty.bytes()));
    (0..BYTES / ty.bytes()).map(store).collect()
}

/// A thread's mbarrier of one arrival, known to the asynchronous proxy with all that the thread has done.
fn made() -> String {
    format!("mbarrier.init.shared::cta.b64 [{MBARRIER}], 1;\nfence.mbarrier_init.release.cluster;\nfence.proxy.async;\n")
}

/// Expects bytes, starts what brings them, waits, and makes the mbarrier's place ordinary memory again.
fn awaited(bytes: u32, start: &str) -> String {
    format!(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [{MBARRIER}], {bytes};\n{start}\nmov.u32 %looks, 0;\n\
         WAIT:\nmbarrier.try_wait.parity.shared::cta.b64 %over, [{MBARRIER}], 0;\n@%over bra OVER;\nadd.u32 %looks, %looks, 1;\n\
         setp.lt.u32 %over, %looks, 100000;\n@%over bra WAIT;\nOVER:\nmbarrier.inval.shared::cta.b64 [{MBARRIER}];\n"
    )
}

/// Spoils the result where the phase did not come: a wait that gives up is a difference, and the forms after it are tried all the same.
fn unless_over(ty: Type) -> String {
    format!("@!%over not.b{} %x, %x;\n", ty.bits())
}

/// A scope of its own: registers and labels are no other code's.
fn scoped(code: &str) -> Vec<String> {
    vec![format!("{{\n.reg .pred %over;\n.reg .b32 %looks, %part, %left, %peer;\n.reg .b64 %state, %next;\n{code}}}")]
}

fn reduced_in_global(op: &str, ty: Type) -> Form {
    let keeps = if matches!(ty, F16 | Bf16) && op == "add" { ".noftz" } else { "" };
    let last = BYTES - ty.bytes();
    let code = format!(
        "{}{}fence.proxy.async;\ncp.reduce.async.bulk.global.shared::cta.bulk_group.{op}{keeps}.{ty} [%scratch], [{FROM}], {BYTES};\n\
         cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nld.global.b{} %x, [%scratch+{last}];\n",
        filled("global", "%scratch", "%a", ty),
        filled("shared", FROM, "%b", ty),
        ty.bits()
    );
    let name = format!("cp.reduce.async.bulk.global.{op}{keeps}.{ty}");
    Form::new(name, &[value(ty); 2], ty).with_code(scoped(&code)).with_open_nan(ty == F64)
}

fn reduced_in_shared(op: &str, ty: Type) -> Form {
    let start = format!(
        "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.{op}.{ty} [%peer], [{FROM}], {BYTES}, [%peer+{AT_MBARRIER}];"
    );
    let code = at_a_neighbour(&filled("shared", FROM, "%b", ty), ty, (BYTES, &start), BYTES - ty.bytes());
    Form::new(format!("cp.reduce.async.bulk.shared::cluster.{op}.{ty}"), &[value(ty); 2], ty).with_code(scoped(&code))
}

/// What neighbours in a cluster do in each other's rooms, which hold `%a` at first: what is at an offset there then. Without clusters such instructions
/// are illegal (H200).
fn at_a_neighbour(source: &str, ty: Type, (bytes, start): (u32, &str), offset: u32) -> String {
    let meet = "barrier.cluster.arrive;\nbarrier.cluster.wait;\n";
    format!(
        "mov.u32 %part, %cluster_ctarank;\nxor.b32 %part, %part, 1;\nmapa.shared::cluster.u32 %peer, %room, %part;\n{}{source}{}{meet}{}{meet}\
         ld.shared::cluster.b{} %x, [%peer+{offset}];\n{}{meet}",
        filled("shared::cluster", "%peer", "%a", ty),
        made(),
        awaited(bytes, start),
        ty.bits(),
        unless_over(ty)
    )
}

/// `st.async` and `red.async`: what the last element is then.
fn stored(name: &str, op: Option<&str>, ty: Type, count: u32) -> Form {
    let bytes = ty.bytes() * count;
    let vector = if count > 1 { format!(".v{count}") } else { String::new() };
    let mut values = vec!["%a"; count as usize - 1];
    values.push("%b");
    let values = if count > 1 { format!("{{{}}}", values.join(", ")) } else { "%b".to_owned() };
    let opcode = match op {
        Some(op) => format!("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{op}.{ty}"),
        None => format!("st.async.shared::cluster.mbarrier::complete_tx::bytes{vector}.{ty}"),
    };
    let start = format!("{opcode} [%peer], {values}, [%peer+{AT_MBARRIER}];");
    let code = at_a_neighbour("", ty, (bytes, &start), bytes - ty.bytes());
    Form::new(name, &[value(ty); 2], ty).with_code(scoped(&code))
}

/// Bulk copies from a space: to shared memory of the block and of the cluster, and back to global memory.
fn copied_in_bulk(from: &str) -> Vec<Form> {
    let operands = [value(B64), value(B64)];
    let written = |space: &str, at: &str| format!("st.{space}.v2.b64 [{at}], {{%a, %b}};\n");
    let folded = |space: &str, at: &str| {
        format!("ld.{space}.v2.b64 {{%state, %next}}, [{at}];\nshl.b64 %state, %state, 1;\nxor.b64 %x, %state, %next;\n")
    };
    let by_mbarrier = |to: &str| {
        let start = format!("cp.async.bulk.{to}.global.mbarrier::complete_tx::bytes [{TO}], [%scratch], {BYTES}, [{MBARRIER}];");
        let arrived = awaited(BYTES, &start);
        let code = format!("{}{}{arrived}{}{}", written("global", "%scratch"), made(), folded("shared", TO), unless_over(B64));
        Form::new(format!("cp.async.bulk.{}.global", named(to)), &operands, B64).with_code(scoped(&code))
    };
    if from == "global" {
        return vec![by_mbarrier("shared::cluster"), by_mbarrier("shared::cta")];
    }
    let back = format!(
        "{}fence.proxy.async;\ncp.async.bulk.global.shared::cta.bulk_group [%scratch], [{FROM}], {BYTES};\n\
         cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\n{}",
        written("shared", FROM),
        folded("global", "%scratch")
    );
    let back = Form::new(format!("cp.async.bulk.global.{}", named(from)), &operands, B64).with_code(scoped(&back));
    let start = format!(
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%peer], [{FROM}], {BYTES}, [%peer+{AT_MBARRIER}];"
    );
    let across = at_a_neighbour(&written("shared", FROM), B64, (BYTES, &start), 8);
    let across = Form::new(format!("cp.async.bulk.shared::cluster.{}", named(from)), &operands, B64).with_code(scoped(&across));
    vec![across, back]
}

/// A space as names of forms have it.
fn named(space: &str) -> &str {
    if space == "shared::cta" { "shared" } else { space }
}

/// `cp.async` of which some bytes come: all that is there then, folded into one value.
fn copied(bytes: u32) -> Form {
    let words: String = (1..bytes / 4)
        .map(|word| format!("ld.shared.b32 %part, [{TO}+{}];\nshf.l.wrap.b32 %x, %x, %x, 7;\nxor.b32 %x, %x, %part;\n", 4 * word))
        .collect();
    let code = format!(
        "{}{}rem.u32 %looks, %b, {};\ncp.async.ca.shared.global [{TO}], [%scratch], {bytes}, %looks;\ncp.async.commit_group;\n\
         cp.async.wait_group 0;\nld.shared.b32 %x, [{TO}];\n{words}",
        filled("global", "%scratch", "%a", B32),
        filled("shared", TO, "%a", B32),
        bytes + 1
    );
    Form::new(format!("cp.async.{bytes}"), &[value(B32), FIELD], B32).with_code(scoped(&code))
}

/// `cp.async.mbarrier.arrive`: with `.noinc` its arrival is the one that is expected, without one more comes.
fn counted(noinc: bool) -> Form {
    let (flag, more) = match noinc {
        true => (".noinc", String::new()),
        false => ("", format!("mbarrier.arrive.shared::cta.b64 _, [{MBARRIER}];\n")),
    };
    let code = format!(
        "{}{}cp.async.ca.shared.global [{TO}], [%scratch], 4;\ncp.async.mbarrier.arrive{flag}.shared::cta.b64 [{MBARRIER}];\n{more}\
         mov.u32 %looks, 0;\nWAIT:\nmbarrier.try_wait.parity.shared::cta.b64 %over, [{MBARRIER}], 0;\n@%over bra OVER;\nadd.u32 %looks, %looks, 1;\n\
         setp.lt.u32 %over, %looks, 100000;\n@%over bra WAIT;\nOVER:\nld.shared.b32 %x, [{TO}];\nmbarrier.inval.shared::cta.b64 [{MBARRIER}];\n{}",
        filled("global", "%scratch", "%a", B32),
        made(),
        unless_over(B32)
    );
    Form::new(format!("cp.async.mbarrier{flag}.arrive"), &[value(B32), FIELD], B32).with_code(scoped(&code))
}

/// What mbarriers of up to 40 arrivals say after some of these: bits of all answers.
fn mbarriers() -> Vec<Form> {
    // Arrivals of 1 to 10 and of 1 to 9; the rest makes 20.
    let begin = format!(
        "rem.u32 %looks, %a, 10;\nadd.u32 %looks, %looks, 1;\nrem.u32 %part, %b, 9;\nadd.u32 %part, %part, 1;\n\
         mbarrier.init.shared::cta.b64 [{MBARRIER}], 20;\nmov.u32 %x, 0;\n"
    );
    let answer = |test: &str, bit: u32| format!("{test}\nselp.b32 %y, {}, 0, %over;\nor.b32 %x, %x, %y;\n", 1_u32 << bit);
    let by = |parity: u32, bit: u32| answer(&format!("mbarrier.test_wait.parity.shared::cta.b64 %over, [{MBARRIER}], {parity};"), bit);
    let of = |state: &str, bit: u32| answer(&format!("mbarrier.test_wait.shared::cta.b64 %over, [{MBARRIER}], {state};"), bit);
    let pending =
        |state: &str, shift: u32| format!("mbarrier.pending_count.b64 %y, {state};\nshl.b32 %y, %y, {shift};\nor.b32 %x, %x, %y;\n");
    let arrive = |what: &str, state: &str, count: &str| format!("mbarrier.{what}.shared::cta.b64 {state}, [{MBARRIER}], {count};\n");
    let rest = "sub.u32 %left, 20, %looks;\nsub.u32 %left, %left, %part;\n";
    let end = format!("mbarrier.inval.shared::cta.b64 [{MBARRIER}];\n");
    let form = |name: &str, code: String| Form::new(name, &[FIELD, FIELD], B32).with_code(scoped(&format!("{begin}{code}{end}")));
    let arrivals = |what: &str| {
        format!(
            "{}{}{}{}{rest}{}{}{}{}",
            arrive(what, "%state", "%looks"),
            pending("%state", 0),
            arrive(what, "%next", "%part"),
            pending("%next", 8),
            arrive("arrive", "%next", "%left"),
            pending("%next", 16),
            // After the phase: how many the next one expects.
            arrive("arrive", "%next", "1"),
            pending("%next", 24)
        )
    };
    let tests = |first: &dyn Fn(u32) -> String, second: &dyn Fn(u32) -> String| {
        format!(
            "{}{}{}{rest}{}{}{}",
            arrive("arrive", "%state", "%looks"),
            first(0),
            second(1),
            arrive("arrive", "%next", "%part"),
            first(2),
            second(3)
        ) + &format!("{}{}{}", arrive("arrive", "%next", "%left"), first(4), second(5))
    };
    let bytes = |first: &str, second: &str, sign: &str| {
        format!(
            "mbarrier.{first}.relaxed.cta.shared::cta.b64 [{MBARRIER}], %looks;\n{}{}mbarrier.{second}.relaxed.cta.shared::cta.b64 [{MBARRIER}], {sign};\n{}",
            arrive("arrive", "%state", "20"),
            of("%state", 0),
            of("%state", 1)
        )
    };
    vec![
        form("mbarrier.pending_count", arrivals("arrive")),
        form("mbarrier.arrive.b64", arrivals("arrive")),
        form("mbarrier.arrive.noComplete.b64", arrivals("arrive.noComplete")),
        form("mbarrier.arrive_drop.b64", arrivals("arrive_drop")),
        form("mbarrier.arrive_drop.noComplete.b64", arrivals("arrive_drop.noComplete")),
        form("mbarrier.test_wait.parity.b64", tests(&|bit| by(0, bit), &|bit| by(1, bit))),
        form("mbarrier.test_wait.b64", tests(&|bit| of("%state", bit), &|bit| by(0, bit))),
        // As many bytes as were expected, or one more or fewer, which leaves the phase open.
        form("mbarrier.expect_tx", bytes("expect_tx", "complete_tx", "%part")),
        form("mbarrier.complete_tx", bytes("complete_tx", "expect_tx", "%looks")),
        form(
            "mbarrier.arrive.expect_tx.b64",
            format!(
                "{}mbarrier.arrive.expect_tx.shared::cta.b64 %next, [{MBARRIER}], %part;\n{}{}\
                 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [{MBARRIER}], %part;\n{}",
                arrive("arrive", "%state", "19"),
                pending("%next", 8),
                of("%next", 0),
                of("%next", 1)
            ),
        ),
        form(
            "mbarrier.arrive_drop.expect_tx.b64",
            format!(
                "{}mbarrier.arrive_drop.expect_tx.shared::cta.b64 %next, [{MBARRIER}], %part;\n{}{}\
                 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [{MBARRIER}], %part;\n{}{}{}",
                arrive("arrive", "%state", "19"),
                pending("%next", 8),
                of("%next", 0),
                of("%next", 1),
                arrive("arrive", "%next", "1"),
                pending("%next", 16)
            ),
        ),
    ]
}
