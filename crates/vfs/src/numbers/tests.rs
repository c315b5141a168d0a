use super::*;
use crate::abi::NR_OPEN;

/// One flag for each number, looked at one by one.
struct Naive(Vec<bool>);

impl Naive {
    fn lowest_free(&self, from: usize) -> usize {
        (from..).find(|&fd| !self.is_taken(fd)).unwrap()
    }

    fn is_taken(&self, fd: usize) -> bool {
        self.0.get(fd).is_some_and(|taken| *taken)
    }
}

/// A sequence of numbers that looks random and is always the same.
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }
}

fn take(numbers: &mut Numbers, fd: usize) {
    numbers.grow(fd).unwrap();
    numbers.take(fd);
}

#[test]
fn like_flags_one_by_one() {
    for (seed, range) in [(1, 70), (2, 300), (3, 4_200), (4, 9_000)] {
        let (mut numbers, mut naive, mut random) =
            (Numbers::new(), Naive(vec![false; 8 * range]), Sequence(seed));
        // Above one half at first, so that words and words of words fill up; then below.
        for (steps, of_ten) in [(range * 4, 9), (range, 5), (range * 2, 1)] {
            for _ in 0..steps {
                if random.below(10) < of_ten {
                    let from = if random.below(2) == 0 { 0 } else { random.below(range) };
                    let fd = numbers.lowest_free(from);
                    assert_eq!(fd, naive.lowest_free(from), "from {from}");
                    take(&mut numbers, fd);
                    naive.0[fd] = true;
                } else {
                    let fd = random.below(range);
                    assert_eq!(numbers.is_taken(fd), naive.is_taken(fd));
                    if core::mem::take(&mut naive.0[fd]) {
                        numbers.give_back(fd);
                    }
                }
            }
        }
        assert!((0..numbers.end() + 100).all(|fd| numbers.is_taken(fd) == naive.is_taken(fd)));
        (0..8 * range).filter(|&fd| naive.is_taken(fd)).for_each(|fd| numbers.give_back(fd));
        assert_eq!(numbers.lowest_free(0), 0);
    }
}

#[test]
fn edges_of_words_and_of_words_of_words() {
    for edge in [0, 1, 63, 64, 65, 4095, 4096, 4097, NR_OPEN - 1] {
        let mut numbers = Numbers::new();
        assert_eq!(numbers.lowest_free(edge), edge, "an empty bitmap has room everywhere");
        take(&mut numbers, edge);
        assert!(numbers.is_taken(edge) && !numbers.is_taken(edge + 1));
        assert!(edge == 0 || !numbers.is_taken(edge - 1));
        assert_eq!(numbers.lowest_free(edge), edge + 1);
        assert_eq!(numbers.lowest_free(0), usize::from(edge == 0));
        numbers.give_back(edge);
        assert_eq!(numbers.lowest_free(edge), edge);
    }
}

#[test]
fn a_full_bitmap() {
    let mut numbers = Numbers::new();
    for fd in 0..NR_OPEN {
        assert_eq!(numbers.lowest_free(0), fd);
        take(&mut numbers, fd);
    }
    assert_eq!(
        (numbers.end(), numbers.lowest_free(0), numbers.lowest_free(77)),
        (NR_OPEN, NR_OPEN, NR_OPEN)
    );
    for fd in [0, 63, 64, 4095, 4096, 500_000, NR_OPEN - 1] {
        numbers.give_back(fd);
        assert_eq!((numbers.lowest_free(0), numbers.lowest_free(fd)), (fd, fd));
        assert_eq!(numbers.lowest_free(fd + 1), NR_OPEN);
        numbers.take(fd);
    }
}

/// Leases `n` numbers below `limit`.
fn lease(numbers: &mut Numbers, n: usize, limit: usize) -> Vec<usize> {
    let mut leased = Vec::new();
    let given = |fd| {
        leased.push(fd);
        Ok(true)
    };
    numbers.lease(n, limit, given).unwrap();
    leased
}

#[test]
fn leases_lie_apart_and_are_counted() {
    let mut numbers = Numbers::new();
    (0..3).for_each(|fd| take(&mut numbers, fd));
    assert!(!numbers.leases_up_to(usize::MAX - 1));
    let leased = lease(&mut numbers, 64, NR_OPEN);
    assert_eq!(leased, (1024..1088).collect::<Vec<_>>());
    assert_eq!((numbers.leases, numbers.lowest_lease()), (64, 1024));
    assert!(numbers.leases_up_to(1024) && !numbers.leases_up_to(1023));
    assert_eq!(numbers.lowest_free(0), 3, "the lowest-number rule goes on below");
    assert_eq!(
        lease(&mut numbers, 64, NR_OPEN)[0],
        1088,
        "the lowest-number rule has not come up to the first ones"
    );
    // One settles, and is the rule's now.
    numbers.settle(1030);
    assert!(numbers.is_taken(1030));
    assert_eq!((numbers.leases, numbers.top), (127, 1031));
    (1024..1152).filter(|&fd| fd != 1030).for_each(|fd| numbers.give_back_leased(fd));
    assert!(!numbers.leases_up_to(usize::MAX - 1), "no lease is left");
    assert_eq!(lease(&mut numbers, 1, NR_OPEN), [2048], "above what has settled");
    numbers.give_back_leased(2048);
    numbers.give_back(1030);
    assert_eq!(lease(&mut numbers, 1, NR_OPEN), [1024], "and down again once that is closed");
}

#[test]
fn leases_take_what_there_is() {
    let mut numbers = Numbers::new();
    assert_eq!(lease(&mut numbers, 64, 0), []);
    [0, 1, 2, 5].into_iter().for_each(|fd| take(&mut numbers, fd));
    // From the middle up, then from the bottom up.
    assert_eq!(lease(&mut numbers, 64, 10), [8, 9, 3, 4, 6, 7]);
    assert_eq!(lease(&mut numbers, 64, 10), []);
    assert_eq!((numbers.leases, numbers.lowest_lease()), (6, 3));
    // Given back one by one; the rule finds each of them.
    for (left, fd) in [8, 9, 3, 4, 6, 7].into_iter().enumerate() {
        numbers.give_back_leased(fd);
        assert!(!numbers.is_taken(fd));
        assert_eq!(numbers.leases, 5 - left);
    }
    assert_eq!(numbers.lowest_free(0), 3);
}

#[test]
fn a_lease_that_is_refused_is_none() {
    let mut numbers = Numbers::new();
    let mut room = 3;
    let mut given = Vec::new();
    let some = |fd| {
        room -= 1;
        given.push(fd);
        Ok(room >= 0)
    };
    numbers.lease(64, NR_OPEN, some).unwrap();
    assert_eq!(given, [1024, 1025, 1026, 1027]);
    assert_eq!((numbers.leases, numbers.is_taken(1026), numbers.is_taken(1027)), (3, true, false));
    assert_eq!(numbers.lease(64, NR_OPEN, |_| Err(AllocError)), Err(AllocError));
    assert_eq!((numbers.leases, numbers.is_taken(1027)), (3, false));
}

#[test]
fn the_lowest_lease_is_raised_only_by_who_knows_all() {
    let mut numbers = Numbers::new();
    let leased = lease(&mut numbers, 4, NR_OPEN);
    numbers.give_back_leased(leased[0]);
    numbers.leases_known(2, leased[2]);
    assert_eq!(numbers.lowest_lease(), leased[0], "the third might be lower");
    numbers.leases_known(3, leased[1]);
    assert_eq!(numbers.lowest_lease(), leased[1]);
}

#[test]
fn no_memory_changes_nothing() {
    let mut numbers = Numbers::new();
    take(&mut numbers, 5);
    let end = numbers.end();
    quietline_platform::fault::fail_nth(1);
    assert!(numbers.grow(100_000).is_err());
    assert!(!quietline_platform::fault::armed());
    assert_eq!((numbers.end(), numbers.lowest_free(5)), (end, 6));
    take(&mut numbers, 100_000);
    assert!(numbers.is_taken(5) && numbers.is_taken(100_000));
}
