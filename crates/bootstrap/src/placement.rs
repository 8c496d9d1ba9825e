//! Which rank a process is, by the variables that `torchrun`, `mpirun` and `srun` set, and where it finds the others.

use std::{
    env, fmt,
    fs::{self, DirBuilder, Permissions},
    net::{TcpListener, ToSocketAddrs},
    os::unix::{
        fs::{DirBuilderExt, PermissionsExt},
        net::UnixListener,
    },
    path::PathBuf,
    process,
    time::Duration,
};

use crate::{
    BootstrapError,
    hub::{Doors, Hub, HubOptions, SideDoor},
    rank::{Rank, host},
    secret::{Secret, hexadecimal, random},
};

/// Environment variable with the port of the hub.
pub const PORT: &str = "PASSMUSTER_PORT";

/// How far above `MASTER_PORT`, which is torch's own, the hub's port is.
const ABOVE_MASTER_PORT: u16 = 100;

/// The hub's port where neither is set. Of the ports that nobody is lent.
const DEFAULT_PORT: u16 = 29717;

/// Who started this process, and as which rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Who did: `torchrun`, `Open MPI`, `PMI` or `Slurm`.
    pub launcher: &'static str,
    /// Its rank.
    pub rank: usize,
    /// How many ranks there are.
    pub world: usize,
    /// Its number among those of its host.
    pub local_rank: usize,
    /// How many there are on its host, where that is known.
    pub local_world: Option<usize>,
    /// Where the hub is, as HOST:PORT.
    pub address: String,
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Placement { launcher, rank, world, local_rank, address, .. } = self;
        write!(f, "rank {rank} of {world} by {launcher}, {local_rank} on its host, hub at {address}")
    }
}

/// Names of a launcher's variables. The first three go together, or do not count.
struct Names {
    launcher: &'static str,
    rank: &'static str,
    world: &'static str,
    local_rank: &'static str,
    local_world: &'static str,
    /// What must be set besides.
    only_with: Option<&'static str>,
}

const LAUNCHERS: [Names; 4] = [
    Names {
        launcher: "torchrun",
        rank: "RANK",
        world: "WORLD_SIZE",
        local_rank: "LOCAL_RANK",
        local_world: "LOCAL_WORLD_SIZE",
        only_with: None,
    },
    Names {
        launcher: "Open MPI",
        rank: "OMPI_COMM_WORLD_RANK",
        world: "OMPI_COMM_WORLD_SIZE",
        local_rank: "OMPI_COMM_WORLD_LOCAL_RANK",
        local_world: "OMPI_COMM_WORLD_LOCAL_SIZE",
        only_with: None,
    },
    Names {
        launcher: "PMI",
        rank: "PMI_RANK",
        world: "PMI_SIZE",
        local_rank: "MPI_LOCALRANKID",
        local_world: "MPI_LOCALNRANKS",
        only_with: None,
    },
    // Outside a step these are of the allocation, and this process is alone.
    Names {
        launcher: "Slurm",
        rank: "SLURM_PROCID",
        world: "SLURM_NTASKS",
        local_rank: "SLURM_LOCALID",
        local_world: "SLURM_STEP_TASKS_PER_NODE",
        only_with: Some("SLURM_STEP_ID"),
    },
];

impl Placement {
    /// That of this process; none where nobody placed it.
    ///
    /// # Errors
    /// Variables that are no numbers or contradict each other, and a job of several hosts without `MASTER_ADDR`.
    pub fn of_environment() -> Result<Option<Placement>, BootstrapError> {
        Placement::of(|name| env::var(name).ok())
    }

    /// The same of other variables.
    ///
    /// # Errors
    /// As [`Placement::of_environment`].
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Placement>, BootstrapError> {
        let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
        let whole = |names: &&Names| [names.rank, names.world, names.local_rank].into_iter().chain(names.only_with).all(is_set);
        let Some(names) = LAUNCHERS.iter().find(whole) else { return Ok(None) };
        let number = |name: &str| {
            let value = variable(name).unwrap_or_default();
            value.parse::<usize>().map_err(|_| BootstrapError::SetUp(format!("{name} = {value}: a number is wanted")))
        };
        let (rank, world, local_rank) = (number(names.rank)?, number(names.world)?, number(names.local_rank)?);
        let most = crate::frame::MOST_RANKS;
        if rank >= world || world > most {
            return Err(BootstrapError::SetUp(format!(
                "{} = {rank}, {} = {world}: ranks are 0 to {most} exclusive",
                names.rank, names.world
            )));
        }
        // Slurm has it as 4 or as 4(x2) here.
        let local_world = variable(names.local_world).and_then(|value| value.split('(').next()?.parse().ok());
        let port = match (variable(PORT), variable("MASTER_PORT")) {
            (Some(port), _) => port.parse().map_err(|_| BootstrapError::SetUp(format!("{PORT} = {port}: a port is wanted")))?,
            (None, Some(port)) => port
                .parse::<u16>()
                .ok()
                .and_then(|port| port.checked_add(ABOVE_MASTER_PORT))
                .ok_or_else(|| BootstrapError::SetUp(format!("MASTER_PORT = {port}: a port below 65436 is wanted, or {PORT}")))?,
            (None, None) => DEFAULT_PORT,
        };
        let host = match variable("MASTER_ADDR").filter(|host| !host.is_empty()) {
            Some(host) => host,
            None if local_world == Some(world) => "127.0.0.1".into(),
            None => {
                let reason =
                    format!("{} placed {world} ranks, not all of them here: MASTER_ADDR must name the host of rank 0", names.launcher);
                return Err(BootstrapError::SetUp(reason));
            }
        };
        let address = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        Ok(Some(Placement { launcher: names.launcher, rank, world, local_rank, local_world, address }))
    }

    /// Opens the hub, at its address and in a folder of the user's own. Rank 0 does.
    ///
    /// # Errors
    /// A port that is in use, an address that is not this host's.
    pub fn open_hub(&self, secret: Secret, start_limit: Duration, goes_on: bool) -> Result<OpenHub, BootstrapError> {
        OpenHub::open(&self.address, self.world, secret, start_limit, goes_on)
    }

    /// Goes to the hub, as this rank.
    ///
    /// # Errors
    /// As [`Rank::connect`].
    pub fn connect(&self, secret: &Secret, start_limit: Duration) -> Result<Rank, BootstrapError> {
        Rank::connect(&self.address, self.rank, self.world, secret, &host(), start_limit)
    }
}

/// A hub that ranks come to over TCP, with its folder.
#[derive(Debug)]
pub struct OpenHub {
    /// The hub.
    pub hub: Hub,
    /// Where it is, as HOST:PORT; with the port that the system chose, where 0 was asked for.
    pub address: String,
}

impl OpenHub {
    /// Opens a hub at HOST:PORT.
    ///
    /// # Errors
    /// As [`Placement::open_hub`].
    pub fn open(address: &str, world: usize, secret: Secret, start_limit: Duration, goes_on: bool) -> Result<OpenHub, BootstrapError> {
        let failed = |error: std::io::Error| {
            let said = format!("rank 0 of {world} cannot listen at {address}: {error}");
            match error.kind() {
                std::io::ErrorKind::AddrInUse => BootstrapError::InUse(format!("{said}: the port is in use; {PORT} takes another")),
                std::io::ErrorKind::AddrNotAvailable => {
                    BootstrapError::SetUp(format!("{said}: it is no address of this host, which has rank 0"))
                }
                _ => BootstrapError::SetUp(said),
            }
        };
        // The first that can be had: a name may have several, and not all be here.
        let addresses: Vec<_> = address.to_socket_addrs().map_err(failed)?.collect();
        let tcp = TcpListener::bind(&addresses[..]).map_err(failed)?;
        let here = tcp.local_addr().map_err(failed)?.to_string();
        // Without one all come over TCP.
        let unix = Folder::make().ok().and_then(Folder::listen);
        let options = HubOptions { world, start_limit, goes_on, fate: Box::new(|_| None) };
        let hub = Hub::of_doors(options, Doors { tcp, unix, host: host(), secret })?;
        Ok(OpenHub { hub, address: here })
    }
}

impl AsRef<Hub> for OpenHub {
    fn as_ref(&self) -> &Hub {
        &self.hub
    }
}

/// A folder of this user's alone, for a socket; gone with this value.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    fn make() -> std::io::Result<Folder> {
        let parent = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_dir()).unwrap_or_else(env::temp_dir);
        let name = hexadecimal(&random().map_err(std::io::Error::other)?[..8]);
        let path = parent.join(format!("passmuster-hub-{}-{name}", process::id()));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Folder(path))
    }

    /// A socket in it; none where there can be none, as where the path is too long.
    fn listen(self) -> Option<SideDoor> {
        let path = self.0.join("hub");
        let listener = UnixListener::bind(&path).ok()?;
        fs::set_permissions(&path, Permissions::from_mode(0o600)).ok()?;
        Some(SideDoor { listener, path: path.to_str()?.to_owned(), folder: self })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Option<Placement>, String> {
        let value = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        Placement::of(value).map_err(|error| error.to_string())
    }

    const TORCHRUN: [(&str, &str); 6] = [
        ("RANK", "3"),
        ("WORLD_SIZE", "8"),
        ("LOCAL_RANK", "1"),
        ("LOCAL_WORLD_SIZE", "2"),
        ("MASTER_ADDR", "node0"),
        ("MASTER_PORT", "29500"),
    ];

    /// If this fails, a job of one of the launchers does not start, or ranks look for each other at torch's own port.
    #[test]
    fn each_launcher_s_variables_place_a_rank() {
        let placed = of(&TORCHRUN).unwrap().unwrap();
        assert_eq!(placed.to_string(), "rank 3 of 8 by torchrun, 1 on its host, hub at node0:29600");
        let mpi = [
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
        ];
        assert_eq!(of(&mpi).unwrap().unwrap().to_string(), "rank 1 of 4 by Open MPI, 1 on its host, hub at 127.0.0.1:29717");
        let pmi = [("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("MPI_LOCALRANKID", "0"), ("MASTER_ADDR", "fe80::1"), (PORT, "7")];
        assert_eq!(of(&pmi).unwrap().unwrap().to_string(), "rank 0 of 2 by PMI, 0 on its host, hub at [fe80::1]:7");
        let slurm = [
            ("SLURM_PROCID", "1"),
            ("SLURM_NTASKS", "2"),
            ("SLURM_LOCALID", "1"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_STEP_TASKS_PER_NODE", "2"),
        ];
        assert_eq!(of(&slurm).unwrap().unwrap().launcher, "Slurm");
    }

    /// If this fails, a process that nobody placed, or half, waits for others that never come.
    #[test]
    fn only_whole_triples_count() {
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&TORCHRUN[..2]), Ok(None));
        assert_eq!(of(&[("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "")]), Ok(None));
        // In an allocation, but not in a step.
        assert_eq!(of(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "2"), ("SLURM_LOCALID", "0")]), Ok(None));
    }

    /// If this fails, a wrong variable is a hang or a rank of its own making.
    #[test]
    fn wrong_variables_are_named() {
        let with = |name: &'static str, value: &'static str| {
            let mut variables = TORCHRUN.to_vec();
            variables.retain(|(known, _)| *known != name);
            variables.push((name, value));
            of(&variables).unwrap_err()
        };
        assert_eq!(with("RANK", "x"), "RANK = x: a number is wanted");
        assert_eq!(with("RANK", "8"), "RANK = 8, WORLD_SIZE = 8: ranks are 0 to 4096 exclusive");
        assert_eq!(with("MASTER_PORT", "65500"), "MASTER_PORT = 65500: a port below 65436 is wanted, or PASSMUSTER_PORT");
        assert_eq!(with("MASTER_ADDR", ""), "torchrun placed 8 ranks, not all of them here: MASTER_ADDR must name the host of rank 0");
    }

    /// If this fails, others on this host get to the socket, or a folder stays behind.
    #[test]
    fn the_folder_is_its_owner_s_alone_and_goes() {
        let folder = Folder::make().unwrap();
        let path = folder.0.clone();
        let side = folder.listen().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(Path::new(&side.path))), (0o700, 0o600));
        drop(side);
        assert!(!path.exists());
    }
}
