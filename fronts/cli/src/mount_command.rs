//! `ql mount`: a kernel's files, for every program of this machine.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context;
use clap::Args;
use quietline_fuse::{Mounted, Options, guard};

/// Mount an empty file system in memory, for every program of this machine
///
/// The files are those of a quietline kernel, which lives in the background until the directory is unmounted; then they are
/// gone. It is mounted through FUSE: by root, or by anybody where fusermount3 is installed.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct MountArgs {
    /// The directory to mount on
    directory: PathBuf,

    /// Options, as `mount` knows them: ro, noexec, nosuid, nodev, noatime, allow_other, size=, nr_inodes=, mode=, uid=,
    /// gid=, fsname=, threads=
    #[arg(short = 'o', value_name = "OPTION,...")]
    options: Vec<String>,

    /// Stay in the foreground
    #[arg(long, short)]
    foreground: bool,

    /// Stay in the foreground, and write each request on the standard error
    #[arg(long, short)]
    debug: bool,

    /// Be the process in the background, and tell the one in the foreground by the standard output
    #[arg(long, hide = true)]
    detached: bool,

    /// Wait for the end of the standard input, and take away the mount of this device
    #[arg(long, hide = true, value_name = "DEVICE")]
    guard: Option<String>,
}

const EXAMPLES: &str = "\
Unmounting: `umount DIR`, `fusermount3 -u DIR`, or SIGINT, SIGTERM or SIGHUP to the process.

Examples:
  ql mount /mnt/q                          as a tmpfs: half of the memory at most
  ql mount /mnt/q -o size=2g,mode=1777,allow_other
  ql mount /mnt/q -f                       until Ctrl-C
  ql mount /mnt/q -d 2>requests            and see what is asked";

/// What the process in the background says once it serves.
const MOUNTED: &[u8] = b"mounted\n";

/// Mounts, and serves unless that is done in the background.
pub(crate) fn run(arguments: MountArgs) -> anyhow::Result<ExitCode> {
    if let Some(device) = &arguments.guard {
        // Not to be ended by what ends the server.
        let _ = rustix::process::setsid();
        guard::watch(&arguments.directory, device).context("cannot take the dead mount away")?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut options = Options::default();
    for list in &arguments.options {
        options.add(list)?;
    }
    if arguments.foreground || arguments.debug || arguments.detached {
        serve(&arguments, &options)
    } else {
        in_background(&arguments)
    }
}

fn this_program() -> anyhow::Result<Command> {
    Ok(Command::new(std::env::current_exe().context("cannot find this program")?))
}

/// Starts another process that serves, and ends when it does so.
fn in_background(arguments: &MountArgs) -> anyhow::Result<ExitCode> {
    let mut command = this_program()?;
    command.args(["mount", "--detached"]);
    for list in &arguments.options {
        command.arg("-o").arg(list);
    }
    command.arg("--").arg(&arguments.directory).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot start a process in the background")?;
    let mut said = Vec::new();
    child.stdout.take().context("it has an output")?.read_to_end(&mut said)?;
    if said == MOUNTED {
        return Ok(ExitCode::SUCCESS);
    }
    // It has said why.
    child.wait()?;
    Ok(ExitCode::FAILURE)
}

fn serve(arguments: &MountArgs, options: &Options) -> anyhow::Result<ExitCode> {
    let level = if arguments.debug { log::LevelFilter::Debug } else { log::LevelFilter::Warn };
    // It finds at its end that we have unmounted, and takes that for a failure.
    let session = if arguments.debug { level } else { log::LevelFilter::Error };
    env_logger::Builder::new().filter_level(level).filter_module("fuser::session", session).init();
    if arguments.detached {
        rustix::process::setsid().context("cannot leave the terminal")?;
    }
    let mounted = Mounted::new(&arguments.directory, options)?;
    let directory = mounted.directory().to_owned();
    log::info!("mounted on {}", directory.display());
    if arguments.detached {
        tell_and_leave()?;
    }
    let guard = |device: &str| guard_command(&directory, device).map_err(std::io::Error::other);
    mounted.serve(guard)?;
    log::info!("unmounted {}", directory.display());
    Ok(ExitCode::SUCCESS)
}

fn guard_command(directory: &Path, device: &str) -> anyhow::Result<Command> {
    let mut command = this_program()?;
    command.args(["mount", "--guard", device, "--"]).arg(directory);
    Ok(command)
}

/// Says that all is well, and lets go of the terminal and of the directory that it was started in.
fn tell_and_leave() -> anyhow::Result<()> {
    std::env::set_current_dir("/").context("cannot leave the directory")?;
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")
        .context("cannot open /dev/null")?;
    let mut out = std::io::stdout();
    out.write_all(MOUNTED).and_then(|()| out.flush()).context("nobody waits for this process")?;
    rustix::stdio::dup2_stderr(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(())
}
