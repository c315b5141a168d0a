//! `ql-sim`: what `ql lines` and `ql forecast` run. It needs a build on the simulated platform.

#[cfg(not(quietline_sim))]
fn main() -> std::process::ExitCode {
    eprintln!(
        "error: this build is of the real machine; `cargo lines` and `cargo forecast` make the simulated one"
    );
    std::process::ExitCode::from(2)
}

#[cfg(quietline_sim)]
fn main() -> std::process::ExitCode {
    command::main()
}

#[cfg(quietline_sim)]
mod command;
