//! Which shared words an open and a close write, on each rung: counted, and held against what the series
//! says.
//!
//! The scene is that of the loop on many CPUs, slowed down: another process has opened a socket before ours
//! and opens one after, so ours sits between the two on every list. Writes are tallied in debug builds, by
//! address.
#![cfg(debug_assertions)]

use std::collections::BTreeMap;

use quietline_history::{Process, Rung, Word, World, tally};

/// How often each shared word is written, by name.
type Writes = BTreeMap<String, usize>;

const OURS: usize = 0;
const THEIRS: usize = 1;

/// What every rung writes of its own process, and nothing else does.
const FILES_OPEN: &[(&str, usize)] = &[("files->file_lock", 4), ("files->next_fd", 1)];
const FILES_CLOSE: &[(&str, usize)] = &[("files->file_lock", 2), ("files->next_fd", 1)];

/// One row for each group of words: up to (not with) which rung it is written, and how often by open and by
/// close.
///
/// A lock is written twice each time it is taken: `dcache_lock` is taken twice by an open.
struct Row {
    below: Option<Rung>,
    name: &'static str,
    open: usize,
    close: usize,
}

const fn row(below: Rung, name: &'static str, open: usize, close: usize) -> Row {
    Row { below: Some(below), name, open, close }
}

const SOCKET: &[Row] = &[
    row(Rung::NrDentry, "nr_dentry", 1, 1),
    row(Rung::NrInodes, "nr_inodes", 1, 1),
    row(Rung::LastIno, "last_ino", 1, 0),
    row(Rung::SingleDentry, "dcache_lock", 4, 2),
    row(Rung::SingleDentry, "sock_mnt->mnt_sb->s_root->d_count", 1, 1),
    row(Rung::SingleDentry, "sock_mnt->mnt_sb->s_root->d_subdirs", 1, 0),
    row(Rung::SingleDentry, "older dentry->d_child", 1, 1),
    row(Rung::SingleDentry, "newer dentry->d_child", 0, 1),
    row(Rung::SingleInode, "inode_lock", 2, 2),
    row(Rung::SingleInode, "inode_in_use", 1, 0),
    row(Rung::SingleInode, "sock_mnt->mnt_sb->s_inodes", 1, 0),
    row(Rung::SingleInode, "older inode->i_list", 1, 1),
    row(Rung::SingleInode, "older inode->i_sb_list", 1, 1),
    row(Rung::SingleInode, "newer inode->i_list", 0, 1),
    row(Rung::SingleInode, "newer inode->i_sb_list", 0, 1),
    row(Rung::Norefcount, "sock_mnt->mnt_count", 1, 1),
    row(Rung::Norefcount, "sock_mnt->mnt_expiry_mark", 0, 1),
];

/// Anonymous descriptors share an inode that is made at boot, and its count is what the series leaves
/// contended.
const EVENTFD: &[Row] = &[
    row(Rung::NrDentry, "nr_dentry", 1, 1),
    row(Rung::SingleDentry, "dcache_lock", 4, 2),
    row(Rung::SingleDentry, "anon_inode_mnt->mnt_sb->s_root->d_count", 1, 1),
    row(Rung::SingleDentry, "anon_inode_mnt->mnt_sb->s_root->d_subdirs", 1, 0),
    row(Rung::SingleDentry, "older dentry->d_child", 1, 1),
    row(Rung::SingleDentry, "newer dentry->d_child", 0, 1),
    row(Rung::SingleDentry, "anon_inode_inode->i_dentry", 1, 0),
    row(Rung::SingleDentry, "older dentry->d_alias", 1, 1),
    row(Rung::SingleDentry, "newer dentry->d_alias", 0, 1),
    row(Rung::Norefcount, "anon_inode_mnt->mnt_count", 1, 1),
    row(Rung::Norefcount, "anon_inode_mnt->mnt_expiry_mark", 0, 1),
    Row { below: None, name: "anon_inode_inode->i_count", open: 1, close: 1 },
];

/// A system call that makes a descriptor.
type Open = fn(&Process, usize) -> i32;

fn socket(process: &Process, cpu: usize) -> i32 {
    process.socket(cpu).expect("a socket")
}

fn eventfd(process: &Process, cpu: usize) -> i32 {
    process.eventfd(cpu).expect("an eventfd")
}

/// Names every write; what is this CPU's, this file's or this table's own is left out, and nothing else may
/// be.
fn named(writes: &[usize], shared: &[Word], own: &[Word]) -> Writes {
    let mut named = Writes::new();
    for &address in writes {
        if let Some(word) = shared.iter().find(|word| word.holds(address)) {
            *named.entry(word.name.clone()).or_default() += 1;
        } else {
            assert!(
                own.iter().any(|word| word.holds(address)),
                "an unknown word at {address:#x} is written"
            );
        }
    }
    named
}

fn prefixed(prefix: &str, words: Vec<Word>) -> impl Iterator<Item = Word> {
    words.into_iter().map(move |word| Word { name: format!("{prefix} {}", word.name), ..word })
}

/// What an open and the close of it write, in the scene described above.
fn open_and_close(rung: Rung, open: Open) -> (Writes, Writes) {
    let world = World::new(rung, 2);
    let (ours, theirs) = (world.process(), world.process());
    for _ in 0..10 {
        ours.close(OURS, open(&ours, OURS)).expect("it is open");
    }
    // No callback waits, so none has its link written: that would be memory of this CPU's too.
    world.quiesce();
    let older = open(&theirs, THEIRS);
    let mut fd = -1;
    let opening = tally::writes(|| fd = open(&ours, OURS));
    let newer = open(&theirs, THEIRS);
    let own_words = ours.file_words(OURS, fd).expect("it is open");
    let mut shared = world.words();
    shared.extend(prefixed("older", theirs.file_words(THEIRS, older).expect("it is open")));
    shared.extend(prefixed("newer", theirs.file_words(THEIRS, newer).expect("it is open")));
    let mut own: Vec<Word> =
        own_words.into_iter().filter(|word| !word.name.starts_with("anon")).collect();
    for word in ours.words() {
        let locked = ["files->file_lock", "files->next_fd"].contains(&word.name.as_str());
        if locked { shared.push(word) } else { own.push(word) }
    }
    own.extend(world.cpu_word(OURS));
    let closing = tally::writes(|| ours.close(OURS, fd).expect("it is open"));
    (named(&opening, &shared, &own), named(&closing, &shared, &own))
}

fn expected(rows: &[Row], files: &[(&str, usize)], rung: Rung, count: fn(&Row) -> usize) -> Writes {
    let rows = rows.iter().filter(|row| row.below.is_none_or(|below| rung < below));
    rows.map(|row| (row.name, count(row)))
        .chain(files.iter().copied())
        .filter(|&(_, writes)| writes > 0)
        .map(|(name, writes)| (name.to_owned(), writes))
        .collect()
}

fn assert_table(rows: &[Row], open: Open) {
    for rung in Rung::ALL {
        let (opening, closing) = open_and_close(rung, open);
        assert_eq!(opening, expected(rows, FILES_OPEN, rung, |row| row.open), "open, {rung:?}");
        assert_eq!(closing, expected(rows, FILES_CLOSE, rung, |row| row.close), "close, {rung:?}");
    }
}

#[test]
fn socket_table() {
    assert_table(SOCKET, socket);
}

#[test]
fn eventfd_table() {
    assert_table(EVENTFD, eventfd);
}

/// "All these are in different cache lines": the lock, both counters, both lists, the number, and the rest.
#[test]
fn each_global_has_a_line_of_its_own() {
    let world = World::new(Rung::Base, 1);
    let words = world.words();
    let names =
        ["inode_lock", "nr_inodes", "inode_in_use", "sock_mnt->mnt_sb->s_inodes", "last_ino"];
    let names = names.into_iter().chain(["dcache_lock", "nr_dentry", "sock_mnt->mnt_count"]);
    let names =
        names.chain(["sock_mnt->mnt_sb->s_root->d_count", "sock_mnt->mnt_sb->s_root->d_subdirs"]);
    let find = |name| words.iter().find(|word| word.name == name).expect("a word of that name");
    let lines: Vec<_> = names.map(|name| find(name).address / 64).collect();
    for (index, line) in lines.iter().enumerate() {
        assert!(!lines[..index].contains(line), "word {index} shares a line");
    }
}

/// The series on its patch 5: three contended lines fewer in `new_inode()`, five in `iput()`.
#[test]
fn patch_5_removes_three_words_from_open_and_five_from_close() {
    let (before, after) =
        (open_and_close(Rung::SingleDentry, socket), open_and_close(Rung::SingleInode, socket));
    let removed = |before: &Writes, after: &Writes| -> Vec<String> {
        before.keys().filter(|name| !after.contains_key(*name)).cloned().collect()
    };
    // Its count for new_inode() leaves out the element that was first on each list.
    let open: Vec<_> = removed(&before.0, &after.0)
        .into_iter()
        .filter(|name| !name.starts_with("older"))
        .collect();
    assert_eq!(open, ["inode_in_use", "inode_lock", "sock_mnt->mnt_sb->s_inodes"]);
    // The lock, and the elements before and after on two lists.
    let close = removed(&before.1, &after.1);
    let neighbours = [
        "newer inode->i_list",
        "newer inode->i_sb_list",
        "older inode->i_list",
        "older inode->i_sb_list",
    ];
    assert_eq!(close[1..], neighbours);
    assert_eq!(close[0], "inode_lock");
}

/// What is left at the top: nothing but the process's own table.
#[test]
fn the_last_rung_writes_nothing_that_processes_share() {
    let (opening, closing) = open_and_close(Rung::Norefcount, socket);
    let names: Vec<_> = opening.keys().chain(closing.keys()).collect();
    assert!(names.iter().all(|name| name.starts_with("files->")), "{names:?}");
}

/// How often a long loop on one CPU writes a shared word.
fn writes_of_a_loop(rung: Rung, turns: usize, name: &str) -> usize {
    let world = World::new(rung, 2);
    let process = world.process();
    let turn = || process.close(OURS, socket(&process, OURS)).expect("it is open");
    (0..5000).for_each(|_| turn());
    let writes = tally::writes(|| (0..turns).for_each(|_| turn()));
    let words = world.words();
    let word = words.iter().find(|word| word.name == name).expect("a word of that name");
    writes.iter().filter(|&&address| word.holds(address)).count()
}

/// Patch 3: the shared word once in 1,024.
#[test]
fn last_ino_is_written_once_in_1024_opens() {
    assert_eq!(writes_of_a_loop(Rung::NrInodes, 10 * 1024, "last_ino"), 10 * 1024);
    assert_eq!(writes_of_a_loop(Rung::LastIno, 10 * 1024, "last_ino"), 10);
}

/// Patch 6: no RCU control block, no partial list.
#[test]
fn files_reach_shared_lists_only_through_callbacks() {
    // Callbacks between two ticks; at each the CPU takes a lock and gives it back.
    const TICK: usize = 640;
    for name in ["rcu_ctrlblk", "filp node"] {
        let below = writes_of_a_loop(Rung::SingleInode, 10_000, name);
        assert!(below >= 2 * (10_000 / TICK), "{name}: {below}");
        assert_eq!(writes_of_a_loop(Rung::TypesafeFiles, 10_000, name), 0, "{name}");
    }
}

/// A per-CPU counter that goes up and down never reaches its batch.
#[test]
fn counters_stay_on_their_cpu() {
    for name in ["percpu_counter nr_files", "percpu_counter nr_dentry", "percpu_counter nr_inodes"]
    {
        assert_eq!(writes_of_a_loop(Rung::Norefcount, 10_000, name), 0, "{name}");
    }
}
