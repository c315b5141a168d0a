//! `ql-costs`: the program that `ql costs` builds and runs.

#[cfg(not(all(target_arch = "x86_64", not(quietline_sim))))]
fn main() -> std::process::ExitCode {
    eprintln!("error: instructions are counted on x86_64, and on the real machine only");
    std::process::ExitCode::from(2)
}

#[cfg(all(target_arch = "x86_64", not(quietline_sim)))]
fn main() -> std::process::ExitCode {
    command::main()
}

#[cfg(all(target_arch = "x86_64", not(quietline_sim)))]
mod command;
