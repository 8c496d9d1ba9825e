//! `completions`: what shells complete, and the manual page.

use std::process::ExitCode;

use clap::ValueEnum;
use clap_complete::{Shell, generate};

/// Print a completion script for a shell, or the manual page.
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  passmuster completions bash > ~/.local/share/bash-completion/completions/passmuster
  passmuster completions zsh > ~/.zfunc/_passmuster
  passmuster completions fish > ~/.config/fish/completions/passmuster.fish
  passmuster completions man > ~/.local/share/man/man1/passmuster.1")]
pub(crate) struct Completions {
    /// The shell; `man` for the manual page.
    #[arg(value_enum)]
    of: Of,
}

#[derive(Clone, Copy, ValueEnum)]
enum Of {
    Bash,
    Zsh,
    Fish,
    Man,
}

impl Completions {
    /// Prints them for `command`.
    pub(crate) fn run(&self, mut command: clap::Command) -> anyhow::Result<ExitCode> {
        let mut text = Vec::new();
        let mut script = |shell| generate(shell, &mut command, "passmuster", &mut text);
        match self.of {
            Of::Bash => script(Shell::Bash),
            Of::Zsh => script(Shell::Zsh),
            Of::Fish => script(Shell::Fish),
            Of::Man => clap_mangen::Man::new(command).render(&mut text)?,
        }
        print!("{}", String::from_utf8(text)?);
        Ok(ExitCode::SUCCESS)
    }
}
