//! What ranks do.

use std::{
    env,
    fs::{self, File},
    io::Write,
    os::{fd::OwnedFd, unix::fs::FileExt},
    path::PathBuf,
    process, thread,
    time::Duration,
};

use passmuster_bootstrap::{
    Bootstrap, BootstrapError, Rank, Secret,
    agreement::{Disagreement, agree},
    own,
    placement::Placement,
    torchelastic,
};
use rustix::{
    fs::{MemfdFlags, memfd_create},
    process::{Resource, Rlimit, Signal, getpid, kill_process, setrlimit},
};

/// Set in a rank: what it does.
pub(crate) const ROLE: &str = "PASSMUSTER_TEST_ROLE";

/// Set in a rank: the folder where it puts what it has to say.
pub(crate) const REPORT: &str = "PASSMUSTER_TEST_REPORT";

/// The time that ranks give exchanges.
pub(crate) const LIMIT: Duration = Duration::from_millis(1500);

/// The exchange, of five, before which a rank is lost.
pub(crate) const FATAL: u64 = 2;

pub(crate) fn act(role: &str) {
    let (role, argument) = role.split_once(':').unwrap_or((role, ""));
    let joined = if own::is_rank() { own::join() } else { come(role) };
    let mut rank = match joined {
        Ok(rank) => rank,
        Err(error) => return say(&env::var("RANK").unwrap_or_default(), &format!("error: {error}")),
    };
    rank.set_limit(LIMIT);
    let number = rank.rank();
    let said = match (role, number) {
        ("gather", _) => gather(&mut rank, |_| ()),
        ("descriptors" | "descriptors_by_pidfd", _) => descriptors(&mut rank),
        ("echo", _) => echo(&rank),
        ("lost", _) => {
            let (how, at) = argument.split_once('@').expect("how, and who");
            let is_it = at.parse() == Ok(number);
            gather(&mut rank, |exchange| {
                if is_it && exchange == FATAL {
                    end(how)
                }
            })
        }
        ("lost_at_once", 1) => process::exit(9),
        ("garbage", 1) => garbage(),
        ("lost_at_once" | "garbage", _) => gather(&mut rank, |_| ()),
        ("gives_up", _) => gives_up(&mut rank),
        ("full", _) => full(&mut rank),
        ("elsewhere", _) => elsewhere(&mut rank),
        ("agree", _) => call(&mut rank),
        ("wait", _) => rank.receive().map(|_| "done".into()),
        ("works", _) => loop {
            thread::sleep(Duration::from_secs(1));
        },
        _ => panic!("no role `{role}`"),
    };
    say(&number.to_string(), &said.unwrap_or_else(|error| format!("error: {error}")));
}

/// Comes as the rank that the environment says.
fn come(role: &str) -> Result<Rank, BootstrapError> {
    let placement = Placement::of_environment()?.expect("it was placed");
    let secret = Secret::find()?;
    if role != "descriptors_by_pidfd" || placement.rank != 1 {
        return placement.connect(&secret, LIMIT);
    }
    // One that does not find the Unix socket.
    Rank::connect(&placement.address, placement.rank, placement.world, &secret, "another host", LIMIT)
}

/// Tells the test, whole or not at all.
fn say(rank: &str, text: &str) {
    let folder = PathBuf::from(env::var_os(REPORT).expect("where to say it is set"));
    let new = folder.join(format!("{rank}.new"));
    // A rank that was to lose its descriptors cannot.
    if fs::write(&new, text).is_ok() {
        fs::rename(&new, folder.join(rank)).unwrap();
    }
    if text.starts_with("error: ") {
        torchelastic::report_failure(text);
    }
}

fn gather(rank: &mut Rank, before: impl Fn(u64)) -> Result<String, BootstrapError> {
    let (number, world) = (rank.rank(), rank.world());
    for exchange in 0..5u64 {
        before(exchange);
        let bytes = vec![number as u8; 1 << (4 * exchange)];
        let all = rank.all_gather(&format!("exchange {exchange}"), &bytes)?;
        let right = all.len() == world && (0..world).all(|other| all[other] == vec![other as u8; bytes.len()]);
        assert!(right, "rank {number} got something else in exchange {exchange}");
    }
    rank.barrier("the end")?;
    Ok("done".into())
}

fn descriptors(rank: &mut Rank) -> Result<String, BootstrapError> {
    let text = |rank: usize, at: usize| format!("memory {at} of rank {rank}");
    let made = |at: usize| {
        let mut memory = File::from(memfd_create("rank", MemfdFlags::CLOEXEC).unwrap());
        write!(memory, "{}", text(rank.rank(), at)).unwrap();
        OwnedFd::from(memory)
    };
    let own: Vec<OwnedFd> = (0..2).map(made).collect();
    let all = rank.all_gather_descriptors("memory", &own)?;
    for (other, theirs) in all.into_iter().enumerate() {
        for (at, memory) in theirs.into_iter().enumerate() {
            let mut bytes = vec![0; 64];
            let count = File::from(memory).read_at(&mut bytes, 0).unwrap();
            assert_eq!(String::from_utf8_lossy(&bytes[..count]), text(other, at));
        }
    }
    rank.barrier("all have read")?;
    Ok("done".into())
}

fn echo(rank: &Rank) -> Result<String, BootstrapError> {
    loop {
        let bytes = rank.receive()?;
        if bytes.is_empty() {
            return Ok("done".into());
        }
        if bytes == b"exchange" {
            rank.clone().all_gather("asked for", &bytes)?;
        }
        rank.send([&[rank.rank() as u8], &bytes[..]].concat())?;
    }
}

fn end(how: &str) {
    match how {
        "kill" => kill_process(getpid(), Signal::KILL).unwrap(),
        "stop" => kill_process(getpid(), Signal::STOP).unwrap(),
        "exit" => process::exit(0),
        "panic" => panic!("as it was asked to"),
        "abort" => process::abort(),
        _ => panic!("no end `{how}`"),
    }
}

fn gives_up(rank: &mut Rank) -> Result<String, BootstrapError> {
    rank.barrier("the beginning")?;
    match rank.rank() {
        1 => rank.give_up("no memory"),
        // Later, and for another reason.
        2 => {
            thread::sleep(Duration::from_millis(300));
            rank.give_up("what came of it");
        }
        _ => {}
    }
    gather(rank, |_| ())
}

fn full(rank: &mut Rank) -> Result<String, BootstrapError> {
    rank.barrier("the beginning")?;
    if rank.rank() == 1 {
        setrlimit(Resource::Nofile, Rlimit { current: Some(0), maximum: Some(0) }).unwrap();
    }
    match memfd_create("rank", MemfdFlags::CLOEXEC) {
        Ok(memory) => _ = rank.all_gather_descriptors("memory", &[memory])?,
        Err(error) => rank.give_up(&format!("memfd_create: {error}")),
    }
    gather(rank, |_| ())
}

fn elsewhere(rank: &mut Rank) -> Result<String, BootstrapError> {
    if rank.rank() == 1 {
        rank.barrier("run")?;
    }
    rank.barrier("open_group").map(|()| "done".into())
}

fn call(rank: &mut Rank) -> Result<String, BootstrapError> {
    let dtype = if rank.rank() == 2 { "f16" } else { "bf16" };
    let fields = [("collective", "all_reduce".to_owned()), ("dtype", dtype.to_owned()), ("count", "1040".to_owned())];
    match agree(rank, "call 17", &fields) {
        Ok(()) => Ok("done".into()),
        Err(Disagreement::Bootstrap(error)) => Err(error),
        Err(differs) => {
            // Nobody leaves before all have been told.
            rank.barrier("told")?;
            Ok(differs.to_string())
        }
    }
}

/// Writes to the rank's own socket what is no frame.
fn garbage() -> Result<String, BootstrapError> {
    let is_socket =
        |number: &i32| fs::read_link(format!("/proc/self/fd/{number}")).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"));
    let number = (3..64).find(is_socket).expect("it has a socket");
    use rustix::process::{PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
    let own = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    let socket = pidfd_getfd(own, number, PidfdGetfdFlags::empty()).unwrap();
    rustix::io::write(socket, &[7, 0, 0, 0, 99, 1, 2, 3, 4, 5, 6]).unwrap();
    process::exit(9);
}
