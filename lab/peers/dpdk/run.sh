#!/usr/bin/env bash
# DPDK's forwarders beside `ql forward` and `ql bench forward`: packets of 64 bytes between devices
# in memory, one core, on pages of 4 KiB and on huge pages.
#
#   lab/peers/dpdk/run.sh [--rounds N] [--seconds S] [--cpu N] [--pages small,huge]
#                         [--rows ROW,...] [--json FILE]
#
# For huge pages it needs root: it reserves 256 pages of 2 MiB and mounts a hugetlbfs for the time of
# the run.
# Needs Debian's dpdk, dpdk-dev, libdpdk-dev and dpdk-doc (the source of l3fwd), python3, tshark for
# the proof, and a release build of ql (QL=... names another one). What each row does, and what it does not: rounds.py.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
ql=${QL:-$here/../../../target/release/ql}
for program in dpdk-testpmd python3 pkg-config cc tshark "$ql"; do
    command -v "$program" >/dev/null || { echo "skipped: $program is missing" >&2; exit 77; }
done
pkg-config --exists libdpdk || { echo "skipped: pkg-config knows no libdpdk" >&2; exit 77; }
examples=/usr/share/dpdk/examples
work=$(mktemp -d)
reserved=$(cat /proc/sys/vm/nr_hugepages)
clean() {
    if mountpoint -q "$work/huge"; then
        umount "$work/huge"
        echo "$reserved" >/proc/sys/vm/nr_hugepages
    fi
    rm -rf "$work"
}
trap clean EXIT
pages=huge
[[ " $* " =~ --pages[\ =]small\  ]] && pages=small
if [ $pages = huge ]; then
    mkdir "$work/huge"
    if ! mount -t hugetlbfs -o pagesize=2M none "$work/huge"; then
        echo "failed: no hugetlbfs can be mounted; run as root, or give --pages small" >&2
        exit 1
    fi
    echo $((reserved + 256)) >/proc/sys/vm/nr_hugepages
    if [ "$(cat /proc/sys/vm/nr_hugepages)" -lt $((reserved + 256)) ]; then
        echo "failed: the host has no 256 huge pages to reserve; give --pages small" >&2
        exit 1
    fi
fi

# l3fwd asks for checksums by hardware, which no device in memory has, and does not use them. (22.11 cannot be told to do without.)
if [ -d $examples/l3fwd ]; then
    cp -r $examples/l3fwd $examples/common "$work"
    sed -i 's/\.offloads = RTE_ETH_RX_OFFLOAD_CHECKSUM/.offloads = 0/' "$work/l3fwd/main.c"
    make -s -C "$work/l3fwd" >"$work/build.txt" 2>&1 || { cat "$work/build.txt" >&2; exit 1; }
else
    echo "no rows of l3fwd: $examples/l3fwd is missing (dpdk-doc)" >&2
fi
# shellcheck disable=SC2046 # flags are words
cc -O3 -march=native -DALLOW_EXPERIMENTAL_API $(pkg-config --cflags libdpdk) "$here/route.c" -o "$work/route" \
    $(pkg-config --libs-only-L libdpdk) -lrte_eal -lrte_mempool -lrte_mbuf -lrte_ring -lrte_lpm -lrte_hash
python3 "$here/rounds.py" --work "$work" --ql "$ql" "$@"
