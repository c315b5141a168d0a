//! Names for addresses: which word of the kernel is where.

use crate::fdtable::FilesStruct;
use crate::file::File;
use crate::globals::Globals;
use crate::percpu::Cpu;

/// A word, or a few beside each other, with its name in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// As the kernel calls it.
    pub name: String,
    /// Where it is.
    pub address: usize,
    /// Its length in bytes.
    pub bytes: usize,
}

impl Word {
    fn of<T: ?Sized>(name: impl Into<String>, field: &T) -> Word {
        Word {
            name: name.into(),
            address: core::ptr::from_ref(field).addr(),
            bytes: size_of_val(field),
        }
    }

    /// Whether `address` is in it.
    pub fn holds(&self, address: usize) -> bool {
        (self.address..self.address + self.bytes).contains(&address)
    }
}

/// What all CPUs share.
pub(crate) fn globals_words(globals: &Globals) -> Vec<Word> {
    let mut words = vec![
        Word::of("inode_lock", &globals.inode_lock.0),
        Word::of("inode_in_use", &globals.inode_in_use.0),
        Word::of("nr_inodes", &globals.inodes_stat.0.nr_inodes),
        Word::of("last_ino", &globals.last_ino.0),
        Word::of("dcache_lock", &globals.dcache_lock.0),
        Word::of("nr_dentry", &globals.dentry_stat.0.nr_dentry),
        Word::of("vfsmount_lock", &globals.vfsmount_lock.0),
        Word::of("percpu_counter nr_files", &globals.nr_files.shared.0),
        Word::of("percpu_counter nr_dentry", &globals.nr_dentry.shared.0),
        Word::of("percpu_counter nr_inodes", &globals.nr_inodes.shared.0),
        Word::of("rcu_ctrlblk", &globals.rcu_ctrlblk),
        Word::of("filp node", &globals.filp_cachep.node.0),
        Word::of("dentry node", &globals.dentry_cachep.node.0),
        Word::of("inode node", &globals.inode_cachep.node.0),
        Word::of("anon_inode_inode->i_count", &globals.anon_inode_inode().i_count),
        Word::of("anon_inode_inode->i_dentry", &globals.anon_inode_inode().i_dentry),
    ];
    for (fs, mnt) in
        globals.file_systems().into_iter().zip(["sock_mnt", "pipe_mnt", "anon_inode_mnt"])
    {
        words.push(Word::of(format!("{mnt}->mnt_count"), &fs.mnt.counted.0.mnt_count));
        words.push(Word::of(format!("{mnt}->mnt_expiry_mark"), &fs.mnt.counted.0.mnt_expiry_mark));
        words.push(Word::of(format!("{mnt}->mnt_sb->s_inodes"), &fs.sb.s_inodes.0));
        words.push(Word::of(format!("{mnt}->mnt_sb->s_root->d_count"), &fs.sb.root().d_count));
        words.push(Word::of(format!("{mnt}->mnt_sb->s_root->d_subdirs"), &fs.sb.root().d_subdirs));
    }
    words
}

/// What is a CPU's own.
pub(crate) fn cpu_word(number: usize, cpu: &Cpu) -> Word {
    Word::of(format!("cpu {number}"), cpu)
}

/// What the threads of a process share.
pub(crate) fn process_words(files: &FilesStruct) -> Vec<Word> {
    let (open_fds, close_on_exec, fd) = files.table();
    vec![
        Word::of("files->file_lock", &files.locked.0.file_lock),
        Word::of("files->next_fd", &files.locked.0.next_fd),
        Word::of("files->fdt->open_fds", open_fds),
        Word::of("files->fdt->close_on_exec", close_on_exec),
        Word::of("files->fdt->fd", fd),
    ]
}

/// What an open file has that the opening and closing of others may write.
pub(crate) fn file_words(file: &File) -> Vec<Word> {
    let dentry = file.f_dentry.load().expect("an open file has a dentry");
    let inode = dentry.inode();
    vec![
        Word::of("dentry->d_count", &dentry.d_count),
        Word::of("dentry->d_child", &dentry.d_child),
        Word::of("dentry->d_alias", &dentry.d_alias),
        Word::of("inode->i_count", &inode.i_count),
        Word::of("inode->i_list", &inode.i_list),
        Word::of("inode->i_sb_list", &inode.i_sb_list),
        Word::of("file", file),
        Word::of("dentry", dentry),
        Word::of("inode", inode),
    ]
}
