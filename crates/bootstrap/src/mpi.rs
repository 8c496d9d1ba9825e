//! Ranks that MPI started: its collectives tell them where the hub is, and a secret of this job alone. After that MPI has done its part and is finalized.

use std::{env, time::Duration};

use mpi::{
    collective::Root,
    topology::{Communicator, SimpleCommunicator},
};

use crate::{
    BootstrapError,
    placement::{OpenHub, Placement},
    rank::{Rank, host},
    secret::Secret,
};

/// Bytes of what rank 0 tells at most.
const MOST: usize = 4096;

/// A job's processes, come together.
#[derive(Debug)]
pub struct Met {
    /// Which one this is.
    pub placement: Placement,
    /// The hub, where this is rank 0.
    pub hub: Option<OpenHub>,
    /// What they must prove to know.
    pub secret: Secret,
}

impl Met {
    /// Goes to the hub, as this rank.
    ///
    /// # Errors
    /// As [`Rank::connect`].
    pub fn connect(&self, start_limit: Duration) -> Result<Rank, BootstrapError> {
        let Placement { address, rank, world, .. } = &self.placement;
        Rank::connect(address, *rank, *world, &self.secret, &host(), start_limit)
    }
}

/// Brings the processes that MPI started together. All must call it, once.
///
/// # Errors
/// Where MPI is initialized already, or rank 0 cannot open the hub: all ranks say so.
pub fn meet(start_limit: Duration, goes_on: bool) -> Result<Met, BootstrapError> {
    let universe = mpi::initialize().ok_or_else(|| BootstrapError::SetUp("MPI is initialized already".into()))?;
    let all = universe.world();
    let (rank, world) = (all.rank() as usize, all.size() as usize);
    let here = all.split_shared(all.rank());
    let (local_rank, local_world) = (here.rank() as usize, here.size() as usize);
    let opened = (rank == 0).then(|| open(world, local_world, start_limit, goes_on));
    let told = match &opened {
        None => String::new(),
        Some(Ok((hub, secret))) => format!("{}\n{}", hub.address, String::from_utf8_lossy(secret.bytes())),
        Some(Err(error)) => format!("\n{error}"),
    };
    let told = from_rank_0(&all, told);
    let (address, secret) = told.split_once('\n').unwrap_or(("", "rank 0 said nothing"));
    if address.is_empty() {
        return Err(BootstrapError::SetUp(secret.to_owned()));
    }
    let secret = Secret::new(secret)?;
    let placement = Placement { launcher: "MPI", rank, world, local_rank, local_world: Some(local_world), address: address.to_owned() };
    Ok(Met { placement, hub: opened.and_then(Result::ok).map(|(hub, _)| hub), secret })
}

/// The hub, with a secret that is text.
fn open(world: usize, local_world: usize, start_limit: Duration, goes_on: bool) -> Result<(OpenHub, Secret), BootstrapError> {
    let host = match env::var("MASTER_ADDR") {
        Ok(host) if !host.is_empty() => host,
        _ if local_world == world => "127.0.0.1".into(),
        _ => mpi::environment::processor_name().map_err(|_| BootstrapError::SetUp("MPI does not know this host's name".into()))?,
    };
    let address = if host.contains(':') { format!("[{host}]:0") } else { format!("{host}:0") };
    let secret = Secret::new(crate::secret::hexadecimal(Secret::random()?.bytes()))?;
    Ok((OpenHub::open(&address, world, secret.clone(), start_limit, goes_on)?, secret))
}

/// What rank 0 says.
fn from_rank_0(all: &SimpleCommunicator, own: String) -> String {
    let mut bytes = [0; MOST];
    let mut length = own.len().min(MOST);
    bytes[..length].copy_from_slice(&own.as_bytes()[..length]);
    let root = all.process_at_rank(0);
    root.broadcast_into(&mut length);
    root.broadcast_into(&mut bytes[..]);
    String::from_utf8_lossy(&bytes[..length.min(MOST)]).into_owned()
}
