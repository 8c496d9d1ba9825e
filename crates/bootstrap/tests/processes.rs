//! Ranks as processes: this binary starts itself once a rank, and what each rank does is a role. Whatever becomes of them, the others must say who is lost and
//! how, soon, and nothing may be left behind: no process, no descriptor, no socket.

mod roles;

use std::{
    env, fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::{
        fd::OwnedFd,
        unix::{fs::PermissionsExt, net::UnixStream, process::CommandExt},
    },
    path::PathBuf,
    process::{self, Child, Command, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use libtest_mimic::{Arguments, Failed, Trial};
use passmuster_bootstrap::{
    Event, Hub, Rank, Secret,
    frame::{Frame, VERSION},
    own::{self, Launched},
    placement::OpenHub,
    torchelastic,
};
use rustix::process::{Pid, Signal, kill_process};

use roles::{FATAL, LIMIT, REPORT, ROLE};

/// How much later than their limit ranks may say who is lost.
const LATER: Duration = Duration::from_secs(2);

fn main() {
    if let Ok(role) = env::var(ROLE) {
        return roles::act(&role);
    }
    let trial = |name: &str, test: fn()| {
        Trial::test(name, move || {
            alone(test);
            Ok::<(), Failed>(())
        })
    };
    let trials = vec![
        trial("every_rank_gets_everybody_s_bytes", every_rank_gets_everybody_s_bytes),
        trial("descriptors_arrive_as_what_they_were", descriptors_arrive_as_what_they_were),
        trial("messages_go_both_ways_beside_exchanges", messages_go_both_ways_beside_exchanges),
        trial("a_lost_rank_is_named_by_all_others", a_lost_rank_is_named_by_all_others),
        trial("a_rank_lost_before_its_first_exchange_is_named", a_rank_lost_before_its_first_exchange_is_named),
        trial("the_first_reason_is_the_one_that_all_report", the_first_reason_is_the_one_that_all_report),
        trial("memory_that_cannot_be_had_is_every_rank_s_error", memory_that_cannot_be_had_is_every_rank_s_error),
        trial("a_rank_in_another_exchange_is_named", a_rank_in_another_exchange_is_named),
        trial("a_call_that_differs_is_named_by_all", a_call_that_differs_is_named_by_all),
        trial("garbage_from_a_rank_is_its_loss", garbage_from_a_rank_is_its_loss),
        trial("a_job_that_goes_on_goes_on", a_job_that_goes_on_goes_on),
        trial("no_rank_outlives_who_started_it", no_rank_outlives_who_started_it),
        trial("ranks_of_torchrun_meet_over_tcp", ranks_of_torchrun_meet_over_tcp),
        trial("a_rank_of_torchrun_that_is_lost_is_named", a_rank_of_torchrun_that_is_lost_is_named),
        trial("a_rank_that_never_comes_is_named", a_rank_that_never_comes_is_named),
        trial("strangers_are_refused_and_the_job_goes_on", strangers_are_refused_and_the_job_goes_on),
        trial("a_port_in_use_is_named", a_port_in_use_is_named),
        trial("a_hub_that_is_none_is_named", a_hub_that_is_none_is_named),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// Runs a test when no other one does, and sees that it leaves nothing behind.
fn alone(test: fn()) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (descriptors, ranks, sockets) = (descriptors_here(), ranks_here(), sockets_here());
    test();
    // A process that ends by itself may take a moment.
    let deadline = Instant::now() + Duration::from_secs(5);
    while ranks_here() != ranks && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(ranks_here(), ranks, "processes are left");
    assert_eq!(descriptors_here(), descriptors, "descriptors are left");
    assert_eq!(sockets_here(), sockets, "folders of sockets are left");
}

fn descriptors_here() -> Vec<String> {
    let all = fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    // Without the one that reads the folder.
    let mut all: Vec<String> = all.map(|path| path.to_string_lossy().into_owned()).filter(|path| !path.starts_with("/proc/")).collect();
    all.sort();
    all
}

/// Ranks of this very run of the tests, wherever they hang in the tree of processes.
fn ranks_here() -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let marked = format!("{REPORT}={}", env::temp_dir().join(reports_of_this_run()).display());
    let is_rank = |id: &u32| {
        let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|entry| entry.starts_with(marked.as_bytes()))
    };
    processes.filter(is_rank).collect()
}

fn sockets_here() -> usize {
    let folders = [env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from), Some(env::temp_dir())];
    let entries = folders.into_iter().flatten().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&format!("passmuster-hub-{}-", process::id()))).count()
}

fn reports_of_this_run() -> String {
    format!("ranks-of-{}-", process::id())
}

/// A folder for what ranks say.
struct Reports(PathBuf);

impl Reports {
    fn new() -> Reports {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = env::temp_dir().join(format!("{}{number}", reports_of_this_run()));
        fs::create_dir(&folder).unwrap();
        Reports(folder)
    }

    /// What a rank said, once it has.
    fn of(&self, rank: usize, deadline: Instant) -> Option<String> {
        loop {
            match fs::read_to_string(self.0.join(rank.to_string())) {
                Ok(text) => return Some(text),
                Err(_) if Instant::now() > deadline => return None,
                Err(_) => thread::sleep(Duration::from_millis(2)),
            }
        }
    }
}

impl Drop for Reports {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn command(role: &str, reports: &Reports) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.env(ROLE, role).env(REPORT, &reports.0).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn launch(role: &str, world: usize, goes_on: bool, reports: &Reports) -> Launched {
    Launched::start(world, goes_on, |_| command(role, reports)).unwrap()
}

/// What all ranks of the own launcher said, of those that say something, within the limit and a little.
fn all_said(role: &str, world: usize, silent: &[usize]) -> Vec<String> {
    let reports = Reports::new();
    let deadline = Instant::now() + LIMIT + LATER;
    let launched = launch(role, world, false, &reports);
    let said = |rank: usize| reports.of(rank, deadline).unwrap_or_else(|| panic!("{role}: rank {rank} said nothing in time"));
    let all = (0..world).filter(|rank| !silent.contains(rank)).map(said).collect();
    drop(launched);
    all
}

fn every_rank_gets_everybody_s_bytes() {
    for world in [1, 2, 4, 8] {
        let reports = Reports::new();
        let launched = launch("gather", world, false, &reports);
        let ended = launched.finish(LIMIT + LATER);
        assert!(ended.iter().all(|how| how == "its process exited with status 0"), "{ended:?}");
        let said: Vec<Option<String>> = (0..world).map(|rank| reports.of(rank, Instant::now())).collect();
        assert!(said.iter().all(|said| said.as_deref() == Some("done")), "{world} ranks: {said:?}");
    }
}

fn descriptors_arrive_as_what_they_were() {
    assert_eq!(all_said("descriptors", 4, &[]), ["done"; 4]);
}

fn messages_go_both_ways_beside_exchanges() {
    let reports = Reports::new();
    let launched = launch("echo", 2, false, &reports);
    let long = vec![3; 1 << 20];
    for message in [&b"a"[..], b"exchange", &long] {
        (0..2).for_each(|rank| launched.hub().send(rank, message.to_vec()));
        let mut answers: Vec<(usize, Vec<u8>)> = (0..2)
            .map(|_| match launched.hub().next(Instant::now() + LIMIT) {
                Some(Event::Mail { rank, bytes }) => (rank, bytes),
                other => panic!("{other:?}"),
            })
            .collect();
        answers.sort();
        let expected: Vec<(usize, Vec<u8>)> = (0..2).map(|rank| (rank, [&[rank as u8], message].concat())).collect();
        assert!(answers == expected, "an answer is another one");
    }
    (0..2).for_each(|rank| launched.hub().send(rank, Vec::new()));
    let left: Vec<Option<Event>> = (0..2).map(|_| launched.hub().next(Instant::now() + LIMIT)).collect();
    assert!(left.contains(&Some(Event::Left { rank: 0 })) && left.contains(&Some(Event::Left { rank: 1 })), "{left:?}");
}

/// If this fails, a rank that waits for one that was killed, was stopped, left or panicked waits for ever, or does not say for which.
fn a_lost_rank_is_named_by_all_others() {
    for (how, reason) in [
        ("kill", "its process was killed by signal 9 (SIGKILL)"),
        ("stop", "it is stopped by signal 19 (SIGSTOP)"),
        ("exit", "its process exited with status 0"),
        ("abort", "its process was killed by signal 6 (SIGABRT)"),
    ] {
        for (world, lost) in [(2, 1), (4, 0), (4, 2)] {
            let said = all_said(&format!("lost:{how}@{lost}"), world, &[lost]);
            let expected = format!("error: rank {lost} of {world}: {reason}");
            // One that is lost while nobody waits yet is lost in no exchange.
            let place =
                [format!(", in exchange {FATAL}"), ", in no exchange".into(), format!("; it did not come in 1.5 s, in exchange {FATAL}")];
            let is_named = |said: &&String| said.strip_prefix(&expected).is_some_and(|rest| place.iter().any(|place| place == rest));
            assert!(said.iter().all(|said| is_named(&said)), "{how}: {said:?}, expected {expected}");
        }
    }
    assert_eq!(all_said("lost:panic@1", 3, &[1]), ["error: rank 1 gave up: it panicked"; 2]);
}

fn a_rank_lost_before_its_first_exchange_is_named() {
    let said = all_said("lost_at_once", 3, &[1]);
    assert!(said.iter().all(|said| said.starts_with("error: rank 1 of 3: its process exited with status 9, in ")), "{said:?}");
}

/// If this fails, ranks report what came of the first failure, or each another one.
fn the_first_reason_is_the_one_that_all_report() {
    assert_eq!(all_said("gives_up", 4, &[]), ["error: rank 1 gave up: no memory"; 4]);
}

fn memory_that_cannot_be_had_is_every_rank_s_error() {
    // The rank itself cannot write its report: it has no descriptors left.
    let said = all_said("full", 3, &[1]);
    assert!(said.iter().all(|said| said.starts_with("error: rank 1 gave up: memfd_create: Too many open files")), "{said:?}");
}

fn a_rank_in_another_exchange_is_named() {
    for said in all_said("elsewhere", 3, &[]) {
        assert!(said.contains("where rank ") && said.contains("exchange 0, `open_group`") && said.contains("exchange 0, `run`"), "{said}");
    }
}

fn a_call_that_differs_is_named_by_all() {
    let expected = "rank 2 has dtype = f16, rank 0 has bf16: all ranks must have the same, in call 17";
    assert_eq!(all_said("agree", 4, &[]), [expected; 4]);
}

fn garbage_from_a_rank_is_its_loss() {
    for said in all_said("garbage", 3, &[1]) {
        assert!(said.contains("rank 1 of 3: it sent what is no frame: no frame: it is of no known kind"), "{said}");
    }
}

fn a_job_that_goes_on_goes_on() {
    let reports = Reports::new();
    let launched = launch("echo", 3, true, &reports);
    let hub = launched.hub();
    kill_process(Pid::from_raw(launched.ids()[1] as i32).unwrap(), Signal::KILL).unwrap();
    let reason = "its process was killed by signal 9 (SIGKILL)".to_owned();
    assert_eq!(hub.next(Instant::now() + LIMIT), Some(Event::Lost { rank: 1, reason }));
    hub.send(2, b"still".to_vec());
    assert_eq!(hub.next(Instant::now() + LIMIT), Some(Event::Mail { rank: 2, bytes: b"\x02still".to_vec() }));
}

/// If this fails, a command that is killed leaves ranks on somebody's GPUs.
fn no_rank_outlives_who_started_it() {
    let reports = Reports::new();
    let started = |role: &str| {
        let (own, its) = UnixStream::pair().unwrap();
        let mut command = command(role, &reports);
        let rank = command.stdin(OwnedFd::from(its)).env(own::RANK, "0").env(own::WORLD_SIZE, "1").spawn().unwrap();
        (own, rank)
    };
    let (own, mut waits) = started("wait");
    drop(own);
    let said = reports.of(0, Instant::now() + LATER).expect("it says that nobody is there");
    assert!(said.contains("its connection was closed, in messages"), "{said}");
    waits.wait().unwrap();
    // One that is at work, and does not look.
    let (own, mut works) = started("works");
    thread::sleep(Duration::from_millis(100));
    drop(own);
    let ended = Instant::now();
    assert!(!works.wait().unwrap().success());
    assert!(ended.elapsed() < LATER + Duration::from_secs(2), "it stayed for {:?}", ended.elapsed());
}

/// Ranks with torchrun's variables, and a hub in this process.
struct Job {
    ranks: Vec<Child>,
    open: OpenHub,
    reports: Reports,
    secret: PathBuf,
}

impl Job {
    fn open(world: usize) -> Job {
        let reports = Reports::new();
        let secret = reports.0.join("secret");
        fs::write(&secret, "correct horse battery staple").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        let open = OpenHub::open("127.0.0.1:0", world, Secret::read(&secret).unwrap(), LIMIT, false).unwrap();
        Job { ranks: Vec::new(), open, reports, secret }
    }

    fn address(&self) -> &str {
        &self.open.address
    }

    fn hub(&self) -> &Hub {
        &self.open.hub
    }

    fn start(&mut self, rank: usize, world: usize, role: &str) {
        let (host, port) = self.address().rsplit_once(':').unwrap();
        let mut command = command(role, &self.reports);
        command.env("RANK", rank.to_string()).env("WORLD_SIZE", world.to_string()).env("LOCAL_RANK", rank.to_string());
        command.env("MASTER_ADDR", host).env("PASSMUSTER_PORT", port).env("PASSMUSTER_SECRET_FILE", &self.secret);
        command.env_remove("PASSMUSTER_SECRET").env(torchelastic::ERROR_FILE, self.reports.0.join(format!("{rank}.json")));
        self.ranks.push(command.stdin(Stdio::null()).process_group(0).spawn().unwrap());
    }

    fn said(&self, rank: usize) -> String {
        self.reports.of(rank, Instant::now() + LIMIT + LATER).unwrap_or_else(|| panic!("rank {rank} said nothing in time"))
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            let _ = rank.kill();
            let _ = rank.wait();
        }
    }
}

fn ranks_of_torchrun_meet_over_tcp() {
    for role in ["gather", "descriptors", "descriptors_by_pidfd"] {
        let mut job = Job::open(4);
        (0..4).rev().for_each(|rank| job.start(rank, 4, role));
        assert_eq!((0..4).map(|rank| job.said(rank)).collect::<Vec<_>>(), ["done"; 4], "{role}");
    }
}

fn a_rank_of_torchrun_that_is_lost_is_named() {
    for (how, reason) in
        [("kill", "its connection was closed"), ("stop", "it did not come in 1.5 s"), ("exit", "its connection was closed")]
    {
        let mut job = Job::open(3);
        (0..3).for_each(|rank| job.start(rank, 3, &format!("lost:{how}@2")));
        for rank in 0..2 {
            let said = job.said(rank);
            assert!(said.starts_with(&format!("error: rank 2 of 3: {reason}, in ")), "{how}: {said}");
            let file = job.reports.0.join(format!("{rank}.json"));
            // It is written just after.
            let deadline = Instant::now() + LATER;
            while !file.exists() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(2));
            }
            assert!(fs::read_to_string(&file).unwrap().contains(&said));
        }
    }
}

fn a_rank_that_never_comes_is_named() {
    let mut job = Job::open(4);
    (0..2).for_each(|rank| job.start(rank, 4, "gather"));
    for rank in 0..2 {
        assert_eq!(job.said(rank), "error: rank 2 of 4: it did not come in 1.5 s; nor did ranks [3], in exchange 0");
    }
}

/// If this fails, a stranger that finds the port holds up the job, gets into it, or fills this process's memory.
fn strangers_are_refused_and_the_job_goes_on() {
    let mut job = Job::open(2);
    let stranger = |words: &[u8]| {
        let mut stream = TcpStream::connect(job.address()).unwrap();
        // It may be closed before all is said.
        let _ = stream.write_all(words);
        stream
    };
    let introduction = |version| Frame::Introduction { version, rank: 1, world: 2, nonce: [0; 32], proof: [0; 32] }.encode();
    let mut strangers = vec![
        stranger(b""),
        stranger(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        stranger(&u32::MAX.to_le_bytes()),
        stranger(&[0; 300]),
        stranger(&introduction(VERSION)),
        stranger(&introduction(VERSION + 1)),
        stranger(&Frame::Goodbye.encode()),
    ];
    let mut told: Vec<Event> = (0..6).filter_map(|_| job.hub().next(Instant::now() + LIMIT)).collect();
    // More than are let to wait.
    strangers.extend((0..100).map(|_| stranger(b"\x01")));
    let refusal = |rank: usize, world: usize, secret: &Secret| {
        Rank::connect(job.address(), rank, world, secret, "another host", LIMIT).err().unwrap().to_string()
    };
    let (right, wrong) = (Secret::read(&job.secret).unwrap(), Secret::new(*b"another secret, quite").unwrap());
    for (rank, world, secret, why) in [
        (1, 2, &wrong, "it does not know the secret"),
        (1, 3, &right, "rank 1 of 3: here are 2 ranks"),
        (7, 2, &right, "rank 7 of 2: here are 2 ranks"),
    ] {
        let refused = refusal(rank, world, secret);
        assert!(refused.ends_with(why), "{refused}");
    }
    (0..2).for_each(|rank| job.start(rank, 2, "gather"));
    assert_eq!([job.said(0), job.said(1)], ["done", "done"]);
    assert_eq!(sockets_here(), 0, "doors are open where nobody is to come any more");
    assert!(TcpStream::connect(job.address()).is_err());
    while let Some(event) = job.hub().next(Instant::now() + Duration::from_millis(50)) {
        told.push(event);
    }
    let refused = |word: &str| told.iter().any(|event| matches!(event, Event::Refused { reason } if reason.contains(word)));
    assert!(
        refused("does not know the secret") && refused(&format!("version {}, here is {VERSION}", VERSION + 1)) && refused("at most 256"),
        "{told:?}"
    );
    assert!(refused("did not say who it is") && refused("connections do not say who they are"), "{told:?}");
    assert!(!told.iter().any(|event| matches!(event, Event::Failed(_) | Event::Lost { .. })), "{told:?}");
}

fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let secret = Secret::new(*b"0123456789abcdef").unwrap();
    let error = OpenHub::open(&address, 2, secret.clone(), LIMIT, false).unwrap_err().to_string();
    assert!(error.starts_with(&format!("rank 0 of 2 cannot listen at {address}: ")), "{error}");
    assert!(error.ends_with("the port is in use; PASSMUSTER_PORT takes another"), "{error}");
    let error = OpenHub::open("192.0.2.1:0", 2, secret, LIMIT, false).unwrap_err().to_string();
    assert!(error.ends_with("it is no address of this host, which has rank 0"), "{error}");
}

/// If this fails, whatever else listens at the port is taken for the hub, or is waited for without end.
fn a_hub_that_is_none_is_named() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let secret = Secret::new(*b"0123456789abcdef").unwrap();
    let answering = thread::spawn(move || {
        let answer = |words: &[u8]| {
            let (mut stream, _) = other.accept().unwrap();
            stream.write_all(words).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        };
        answer(b"220 mail.example.org ESMTP\r\n");
        // A hub that does not know the secret.
        let welcome = Frame::Welcome { proof: [0; 32], host: String::new(), socket: String::new() };
        answer(&[Frame::Challenge { version: VERSION, nonce: [0; 32] }.encode(), welcome.encode()].concat());
    });
    let refused = || Rank::connect(&address, 1, 2, &secret, "here", LIMIT).err().unwrap().to_string();
    let mail = refused();
    assert!(mail.contains("540029490 bytes of a frame: at most 256"), "{mail}");
    assert!(refused().ends_with("the hub does not know the secret"));
    answering.join().unwrap();
    let error = Rank::connect(&address, 1, 2, &secret, "here", Duration::from_millis(100)).err().unwrap().to_string();
    assert!(error.starts_with(&format!("rank 0 of 2: it is not at {address} after 0.1 s: ")), "{error}");
}
