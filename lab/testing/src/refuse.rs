//! System calls that the kernel refuses to one thread.

use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, c_ulong, sock_filter};

/// Makes every later `membarrier` of the calling thread fail with `EPERM`, by a seccomp filter. The
/// filter stays until the thread ends. Threads and children that the thread makes inherit it.
///
/// Returns `false` if the kernel has no seccomp filters.
pub fn refuse_membarrier() -> bool {
    let statement =
        |code: u32, k: u32, jt: u8, jf: u8| sock_filter { code: code as u16, jt, jf, k };
    let number = libc::SYS_membarrier as u32;
    let program = [
        // The number of the system call is the first word of `seccomp_data`.
        statement(BPF_LD | BPF_W | BPF_ABS, 0, 0, 0),
        statement(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        statement(BPF_RET | BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0, 0),
        statement(BPF_RET | BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let filter =
        libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    let (one, none): (c_ulong, c_ulong) = (1, 0);
    // SAFETY: the kernel copies the program, which is alive, and changes no memory.
    let installed = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, one, none, none, none) == 0
            && libc::prctl(
                libc::PR_SET_SECCOMP,
                c_ulong::from(libc::SECCOMP_MODE_FILTER),
                &raw const filter,
            ) == 0
    };
    if installed {
        // SAFETY: membarrier takes three integers and touches no memory.
        let answer = unsafe { libc::syscall(libc::SYS_membarrier, 0, 0, 0) };
        assert_eq!(answer, -1, "the filter refuses membarrier");
    }
    installed
}
