//! The secret that the processes of a job share, and how each proves to the other that it has it, without saying it.

use std::{
    env, fmt,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use hmac::{Hmac, KeyInit, Mac};
use rustix::{
    io::Errno,
    process::getuid,
    rand::{GetRandomFlags, getrandom},
};
use sha2::Sha256;

use crate::{
    BootstrapError,
    frame::{Bytes32, VERSION},
};

/// Environment variable with the secret itself.
pub const SECRET: &str = "PASSMUSTER_SECRET";

/// Environment variable with the path of a file that has the secret.
pub const SECRET_FILE: &str = "PASSMUSTER_SECRET_FILE";

/// Where it is under the home directory if neither is set.
const OWN_FILE: &str = ".config/passmuster/secret";

/// The fewest bytes of a secret.
const FEWEST: usize = 16;

/// The most bytes of a file that has one.
const MOST: u64 = 4096;

/// What the processes of a job share. It is never shown.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(not shown)")
    }
}

/// Which side proves itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Rank,
    Hub,
}

/// What a proof is of, beside the secret.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub(crate) rank: u32,
    pub(crate) world: u32,
    /// What the hub had chosen.
    pub(crate) hub: Bytes32,
    /// What the rank had chosen.
    pub(crate) nonce: Bytes32,
}

impl Secret {
    /// A secret of these bytes.
    ///
    /// # Errors
    /// Where they are too few.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Secret, BootstrapError> {
        let bytes = bytes.into();
        if bytes.len() < FEWEST {
            return Err(BootstrapError::SetUp(format!("a secret of {} bytes: at least {FEWEST}", bytes.len())));
        }
        Ok(Secret(bytes))
    }

    /// A secret that nobody else has.
    ///
    /// # Errors
    /// Where the system has no random bytes.
    pub fn random() -> Result<Secret, BootstrapError> {
        Ok(Secret(random()?.to_vec()))
    }

    /// Its bytes, to be sent over a channel that is trusted.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// That of this user's jobs: what [`SECRET`] is set to, what the file has that [`SECRET_FILE`] names, or what `~/.config/passmuster/secret` has, which is
    /// made where it is missing. Files must be this user's, and nobody else's to read.
    ///
    /// # Errors
    /// Which file cannot be read, or who else may.
    pub fn find() -> Result<Secret, BootstrapError> {
        if let Some(secret) = env::var_os(SECRET) {
            return Secret::new(secret.into_encoded_bytes()).map_err(|error| BootstrapError::SetUp(format!("{SECRET}: {error}")));
        }
        if let Some(path) = env::var_os(SECRET_FILE) {
            return Secret::read(Path::new(&path));
        }
        let Some(home) = env::var_os("HOME").filter(|home| !home.is_empty()) else {
            return Err(BootstrapError::SetUp(format!(
                "no secret: set {SECRET_FILE} or {SECRET}, or HOME to where {OWN_FILE} can be kept"
            )));
        };
        let path = PathBuf::from(home).join(OWN_FILE);
        if !path.exists() {
            make(&path).map_err(|error| BootstrapError::SetUp(format!("cannot make {}: {error}", path.display())))?;
        }
        Secret::read(&path)
    }

    /// That of a file.
    ///
    /// # Errors
    /// As [`Secret::find`].
    pub fn read(path: &Path) -> Result<Secret, BootstrapError> {
        let refused = |why: String| BootstrapError::SetUp(format!("secret of {}: {why}", path.display()));
        let mut file = File::open(path).map_err(|error| refused(error.to_string()))?;
        let of_file = file.metadata().map_err(|error| refused(error.to_string()))?;
        if !of_file.is_file() || of_file.len() > MOST {
            return Err(refused(format!("a file of at most {MOST} bytes is wanted")));
        }
        if of_file.uid() != getuid().as_raw() || of_file.mode() & 0o077 != 0 {
            let (mode, uid) = (of_file.mode() & 0o777, of_file.uid());
            return Err(refused(format!("mode {mode:03o}, user {uid}: only user {} may read it (chmod 600)", getuid().as_raw())));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|error| refused(error.to_string()))?;
        Secret::new(bytes.trim_ascii()).map_err(|error| refused(error.to_string()))
    }

    /// The proof of one side.
    pub(crate) fn prove(&self, side: Side, claim: &Claim) -> Bytes32 {
        self.code(side, claim).finalize().into_bytes().into()
    }

    /// Whether a proof is one, in a time that does not tell how far it is from one.
    pub(crate) fn proves(&self, side: Side, claim: &Claim, proof: &Bytes32) -> bool {
        self.code(side, claim).verify_slice(proof).is_ok()
    }

    fn code(&self, side: Side, claim: &Claim) -> Hmac<Sha256> {
        let mut code = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key of any length will do");
        code.update(match side {
            Side::Rank => b"passmuster rank",
            Side::Hub => b"passmuster hub!",
        });
        code.update(&VERSION.to_le_bytes());
        code.update(&claim.rank.to_le_bytes());
        code.update(&claim.world.to_le_bytes());
        code.update(&claim.hub);
        code.update(&claim.nonce);
        code
    }
}

/// Random bytes of the system's.
///
/// # Errors
/// Where it has none.
pub(crate) fn random() -> Result<Bytes32, BootstrapError> {
    let mut bytes = [0; 32];
    let mut filled = 0;
    while filled < bytes.len() {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(BootstrapError::SetUp(format!("no random bytes: {error}"))),
        }
    }
    Ok(bytes)
}

/// Bytes in hexadecimal.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Makes a file with a new secret, unless another process does first.
fn make(path: &Path) -> io::Result<()> {
    let folder = path.parent().expect("it is in a folder");
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let bytes = random().map_err(io::Error::other)?;
    let new = folder.join(format!(".secret-{}", hexadecimal(&bytes[16..])));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let linked = writeln!(file, "{}", hexadecimal(&random().map_err(io::Error::other)?)).and_then(|()| fs::hard_link(&new, path));
    fs::remove_file(&new)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn claim() -> Claim {
        Claim { rank: 1, world: 4, hub: [5; 32], nonce: [6; 32] }
    }

    /// If this fails, somebody who heard one conversation gets into another, or a rank's proof is taken for the hub's.
    #[test]
    fn a_proof_is_of_one_secret_one_side_and_one_claim() {
        let secret = Secret::new(*b"0123456789abcdef").unwrap();
        let proof = secret.prove(Side::Rank, &claim());
        assert!(secret.proves(Side::Rank, &claim(), &proof));
        assert!(!secret.proves(Side::Hub, &claim(), &proof));
        assert!(!Secret::new(*b"0123456789abcdeg").unwrap().proves(Side::Rank, &claim(), &proof));
        let others = [
            Claim { rank: 2, ..claim() },
            Claim { world: 5, ..claim() },
            Claim { hub: [7; 32], ..claim() },
            Claim { nonce: [7; 32], ..claim() },
        ];
        assert!(others.iter().all(|other| !secret.proves(Side::Rank, other, &proof)));
        assert!(Secret::new(*b"0123456789abcde").unwrap_err().to_string().contains("15 bytes: at least 16"));
    }

    /// If this fails, a log has the secret.
    #[test]
    fn a_secret_is_not_shown() {
        let secret = Secret::new(*b"0123456789abcdef").unwrap();
        assert!(!format!("{secret:?}").contains("0123") && !format!("{:?}", Some(secret)).contains("48, 49"));
    }

    /// If this fails, a file that others can read is taken for a secret, or a made one is not what the next process reads.
    #[test]
    fn a_file_is_its_owner_s_alone() {
        let folder = env::temp_dir().join(format!("passmuster-secret-{}", hexadecimal(&random().unwrap()[..8])));
        let path = folder.join("a/secret");
        make(&path).unwrap();
        let first = Secret::read(&path).unwrap();
        make(&path).unwrap();
        assert_eq!(Secret::read(&path).unwrap().0, first.0, "who comes second keeps what is there");
        assert_eq!(fs::read_dir(folder.join("a")).unwrap().count(), 1);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(Secret::read(&path).unwrap_err().to_string().contains("mode 640"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
