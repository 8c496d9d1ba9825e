//! Ranks that mpirun starts, of this very binary.

use std::{
    env,
    fs::File,
    io::{Read, Seek, Write},
    os::fd::OwnedFd,
    process::Command,
    time::Duration,
};

use libtest_mimic::{Arguments, Failed, Trial};
use passmuster_bootstrap::{Bootstrap, BootstrapError, mpi::meet};
use rustix::fs::{MemfdFlags, memfd_create};

/// Set in a rank.
const ROLE: &str = "PASSMUSTER_TEST_ROLE";

const LIMIT: Duration = Duration::from_secs(20);

/// Lets Open MPI 4 and 5 run as root, as in a container, and with more processes than processors. MPICH does so anyway, and does not know Open MPI's options.
const OPEN_MPI: [(&str, &str); 4] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
    ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
];

fn main() {
    if env::var_os(ROLE).is_some() {
        println!("{}", exchange().unwrap());
        return;
    }
    let has_mpi = Command::new("mpirun").arg("--version").output().is_ok_and(|output| output.status.success());
    let name = if has_mpi { "ranks_of_mpirun_meet" } else { "ranks_of_mpirun_meet (there is no mpirun)" };
    let trial = Trial::test(name, || {
        ranks_of_mpirun_meet();
        Ok::<(), Failed>(())
    });
    libtest_mimic::run(&Arguments::from_args(), vec![trial.with_ignored_flag(!has_mpi)]).exit();
}

/// Exchanges bytes and memory with the others.
fn exchange() -> Result<String, BootstrapError> {
    let met = meet(LIMIT, false)?;
    let mut rank = met.connect(LIMIT)?;
    let own = rank.rank() as u8;
    let bytes = rank.all_gather("ranks", &[own])?.concat();
    let mut memory = File::from(memfd_create("rank", MemfdFlags::CLOEXEC).unwrap());
    memory.write_all(&[own]).unwrap();
    let all = rank.all_gather_descriptors("memory", &[OwnedFd::from(memory)])?;
    let mut read = Vec::new();
    for memory in all.into_iter().flatten() {
        // All that have it share its read position, so only one rank reads it.
        let mut memory = File::from(memory);
        if rank.rank() == 0 {
            memory.rewind().unwrap();
            memory.read_to_end(&mut read).unwrap();
        }
    }
    rank.barrier("all have read")?;
    let local = met.placement.local_rank;
    Ok(format!("rank {own} local {local} of {}: {bytes:?} {read:?}", met.placement.world))
}

/// If this fails, `--launcher mpi` does not start, or its ranks have other numbers than MPI's.
fn ranks_of_mpirun_meet() {
    let output = Command::new("mpirun").args(["-n", "4"]).arg(env::current_exe().unwrap()).env(ROLE, "1").envs(OPEN_MPI).output().unwrap();
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let mut lines: Vec<&str> = said.lines().collect();
    lines.sort_unstable();
    let expected = (0..4).map(|rank| {
        let read = if rank == 0 { "[0, 1, 2, 3]" } else { "[]" };
        format!("rank {rank} local {rank} of 4: [0, 1, 2, 3] {read}")
    });
    assert_eq!(lines, expected.collect::<Vec<_>>(), "{errors}");
    assert!(output.status.success(), "{errors}");
}
