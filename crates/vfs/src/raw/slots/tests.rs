use super::*;
use crate::abi::NR_OPEN;
use crate::{EventFd, FileMode, Kind, PseudoFs, eventfd};

#[test]
fn every_number_has_a_place_of_its_own() {
    let (mut bucket, mut place) = (0, 0);
    for fd in 0..NR_OPEN {
        assert_eq!(locate(fd), (bucket, slots_in(bucket) + place), "number {fd}");
        place += 1;
        if place == FIRST_BUCKET << bucket {
            (bucket, place) = (bucket + 1, 0);
        }
    }
    assert!(bucket < BUCKETS && locate(i32::MAX as usize).0 >= BUCKETS);
    let places: std::collections::BTreeSet<usize> = (0..1024).map(spread).collect();
    assert_eq!(places, (0..1024).collect(), "spreading is a permutation of each 64");
    assert!(
        (0..1023).all(|n| spread(n) / PER_LINE != spread(n + 1) / PER_LINE),
        "neighbours are on different lines"
    );
    let slots = Slots::new();
    // The first and the last of each bucket, and one that no bucket has.
    for bucket in 0..BUCKETS {
        let first = (FIRST_BUCKET << bucket) - FIRST_BUCKET;
        let last = first + (FIRST_BUCKET << bucket) - 1;
        assert!(slots.get(first).is_none() && slots.get(last).is_none());
        slots.grow(last).unwrap();
        assert!(slots.get(first).is_some() && slots.get(last).is_some());
        assert_eq!(
            core::ptr::from_ref(slots.get(first).unwrap()),
            slots.buckets[bucket].load(Ordering::Relaxed).wrapping_add(slots_in(bucket))
        );
    }
    let beyond = (FIRST_BUCKET << BUCKETS) - FIRST_BUCKET;
    assert!(
        beyond >= NR_OPEN && slots.get(beyond).is_none() && slots.get(i32::MAX as usize).is_none()
    );
}

#[test]
fn full_slots_are_found_across_buckets() {
    let files = Files::new(100).unwrap();
    let fs = PseudoFs::<EventFd>::new("anon_inodefs").unwrap();
    let mut slots = Slots::new();
    let full = [0, 63, 64, 190, 5_000, NR_OPEN - 1];
    for fd in full {
        slots.grow(fd).unwrap();
        slots.install(fd, eventfd(&fs, &files, fd as u32, 0).unwrap(), 0);
    }
    let mut from = 0;
    let found = core::iter::from_fn(|| {
        let (fd, _) = slots.next_full(from, usize::MAX)?;
        from = fd + 1;
        Some(fd)
    });
    assert_eq!(found.collect::<Vec<_>>(), full);
    assert_eq!(slots.next_full(65, 190).map(|(fd, _)| fd), None);
    assert_eq!(slots.next_full(65, 191).map(|(fd, _)| fd), Some(190));
    for fd in full {
        assert_eq!(
            slots.get_file(fd, &files).unwrap().payload::<EventFd>().unwrap().count(),
            fd as u64
        );
    }
    slots.clear(&files);
    assert_eq!(
        (files.nr_files(), fs.live(), slots.next_full(0, usize::MAX).is_none()),
        (0, 0, true)
    );
}

/// Property 8, of files: what a reader of a stale pointer finds is a file, in another life; what it took by then is
/// recognised as not the one it looked for.
#[test]
fn a_file_is_reused_as_a_file() {
    let files = Files::new(100).unwrap();
    let fs = PseudoFs::<EventFd>::new("anon_inodefs").unwrap();
    let section = files.domain.read();
    let stale = eventfd(&fs, &files, 1, crate::abi::O_NONBLOCK).unwrap().into_raw();
    // SAFETY: the reference is from `into_raw`.
    drop(unsafe { FileHandle::from_raw(stale, &files) });
    // SAFETY: the memory stays a file's while the section lasts; so below.
    let dead = unsafe { FileHandle::get_unless_dead(stale, &files) };
    assert!(dead.is_none(), "nobody gets a dead file");
    let again = eventfd(&fs, &files, 2, 0).unwrap();
    // The CPU's sheaf gives what it got last. (Another CPU's sheaf gives another file.)
    if again.same_file(&unborrowed(&again, stale)) {
        // SAFETY: as above.
        let spurious = unsafe { FileHandle::get_unless_dead(stale, &files) }.expect("it is open");
        assert_eq!(spurious.payload::<EventFd>().unwrap().count(), 2, "a file of another life");
        drop(spurious);
    }
    assert_eq!(files.nr_files(), 1);
    drop(again);
    drop(section);
    assert_eq!((files.nr_files(), fs.live()), (0, 0));
}

/// A handle that only compares.
fn unborrowed<'k>(
    _like: &FileHandle<'k>,
    file: NonNull<File>,
) -> core::mem::ManuallyDrop<FileHandle<'k>> {
    // SAFETY: never dropped and never looked through.
    core::mem::ManuallyDrop::new(unsafe {
        core::mem::transmute::<NonNull<File>, FileHandle<'k>>(file)
    })
}

/// The kinds of objects differ, and a payload is only given out as what it is.
#[test]
fn kinds_are_told_apart() {
    let files = Files::new(100).unwrap();
    let fs = PseudoFs::<EventFd>::new("anon_inodefs").unwrap();
    let file = eventfd(&fs, &files, 7, 0).unwrap();
    assert!(file.payload::<crate::Pipe>().is_none() && file.inode::<EventFd>().is_none());
    assert_eq!(file.mode(), FileMode::READ | FileMode::WRITE);
    assert!(size_of::<Kind>() >= 3 * size_of::<usize>());
}
