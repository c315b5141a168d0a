#!/usr/bin/env bash
# The host kernel's forwarding between network namespaces beside `ql forward`, with the same packets.
#
#   lab/peers/veth/run.sh [ROUNDS] [SECONDS]
#
#     ql-near            ql-middle             ql-far
#       qfa ──────────── qfb   qfc ──────────── qfd
#
# The sender is `ql forward --generate` on a packet socket in ql-near: UDP, 64 bytes, one flow. In the middle forwards
#   host      the kernel (ip_forward), or
#   ql        `ql forward` on two packet sockets, to which the kernel's protocols have no address.
# In ql-far nothing listens: what arrives is counted by the interface, and dropped as another station's.
#
# qfb receives in a kernel thread of its own (threaded NAPI), so that the time of forwarding can be told from the sender's: `host` is that
# thread (receive, route, send on qfc, and what qfd does with it, which is next to nothing); `ql` is that thread (receive, into the
# socket's ring) and the process (the other half). All that forwards is on the last CPU, with the priority that this has (`nice`); the
# sender is on the first. Each round does one and then the other; a ratio is that inside a round.
#
# Both take the packets through one veth each way; what a packet socket costs beside, two copies and the host's receive path, is in
# `ql`'s figure. Packets that come faster than they go on are dropped by the host, at qfb or where they wait for the socket.
#
# Needs root, iproute2, ethtool, tcpdump, procps, and a release build of ql (QL=... names another one).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
ql=${QL:-$here/../../../target/release/ql}
rounds=${1:-5} seconds=${2:-3}
for program in ip ethtool tcpdump sysctl taskset "$ql"; do
    command -v "$program" >/dev/null || { echo "skipped: $program is missing" >&2; exit 77; }
done
work=$(mktemp -d)
clean() {
    for pid in $(jobs -pr); do kill "$pid" 2>/dev/null || true; done
    for name in ql-near ql-middle ql-far; do ip netns del $name 2>/dev/null || true; done
    rm -rf "$work"
}
trap clean EXIT

for name in ql-near ql-middle ql-far; do
    ip netns add $name || { echo "skipped: no network namespace can be made here" >&2; exit 77; }
    ip netns exec $name sysctl -q -w net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
done
ip link add qfa netns ql-near type veth peer name qfb netns ql-middle
ip link add qfc netns ql-middle type veth peer name qfd netns ql-far
for at in near:qfa middle:qfb middle:qfc far:qfd; do
    ns=ql-${at%:*} device=${at#*:}
    # Checksums made before they are sent, packets not merged.
    ip netns exec "$ns" ethtool -K "$device" tx off tso off gso off gro off >/dev/null
done
# veth has NAPI where GRO is on.
ip netns exec ql-middle ethtool -K qfb gro on
for at in near:qfa middle:qfb middle:qfc far:qfd; do ip -n "ql-${at%:*}" link set "${at#*:}" up; done
ip netns exec ql-middle sh -c "echo 1 > /sys/class/net/qfb/threaded"
first=0 last=$(($(nproc) - 1))

# The kernel's thread for a device.
# (grep complains of processes that end meanwhile.)
thread_of() { { grep -l "^napi/$1-" /proc/[0-9]*/comm 2>/dev/null || true; } | head -1 | cut -d/ -f3; }
cpu_of() { local sum=0 task; for task in /proc/"$1"/task/*/schedstat; do sum=$((sum + $(cut -d' ' -f1 "$task"))); done; echo $sum; }
place() { taskset -cp "$1" "$2" >/dev/null; renice -n "$(nice)" -p "$2" >/dev/null; }
counter() { ip netns exec "$1" cat "/sys/class/net/$2/statistics/$3"; }

place $last "$(thread_of qfb)"

middle_host() {
    ip -n ql-middle addr add 10.0.1.1/24 dev qfb
    ip -n ql-middle addr add 10.0.2.1/24 dev qfc
    ip -n ql-middle neigh replace 10.0.2.2 lladdr 02:00:00:00:00:04 dev qfc
    ip netns exec ql-middle sysctl -q -w net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.qfb.rp_filter=0
    of_middle=""
}
middle_ql() {
    ip -n ql-middle addr flush dev qfb
    ip -n ql-middle addr flush dev qfc
    ip netns exec ql-middle sysctl -q -w net.ipv4.ip_forward=0
    # It asks for the neighbour: there is one, until it has answered.
    ip -n ql-far link set qfd address 02:00:00:00:00:04
    ip -n ql-far addr replace 10.0.2.2/24 dev qfd
    ip netns exec ql-middle taskset -c $last "$ql" forward --in packet:qfb=10.0.1.1/24 --out packet:qfc=10.0.2.1/24 \
        >"$work/middle.txt" 2>&1 &
    of_middle=$!
    sleep 0.5
}

echo 'row        sent  came in   went on   arrived  went k/s   CPU ns: thread, for each in; process, for each on' >&2
one() {
    local row=$1
    ip -n ql-far addr flush dev qfd
    "middle_$row"
    ip netns exec ql-near taskset -c $first "$ql" forward --generate --out packet:qfa=10.0.1.3/24 --route 10.0.2.0/24=10.0.1.1 \
        --destination 10.0.2.2 --seconds $((seconds + 4)) >"$work/near.txt" 2>&1 &
    local sender=$!
    sleep 1
    ip -n ql-far link set qfd address 02:00:00:00:00:05
    # What arrives is what should, looked at before anything is timed: the sender is a router, too, and takes one off the TTL.
    ip netns exec ql-far timeout 20 tcpdump -i qfd -Q in -n -vv -c 100 udp >"$work/seen.txt" 2>/dev/null || true
    local right
    right=$(grep -c 'ttl 62, .* proto UDP (17), length 50' "$work/seen.txt" || true)
    if [ "$right" != 100 ] || grep -qi 'bad' "$work/seen.txt"; then
        echo "not forwarded as it should be ($right of 100):" >&2
        head -4 "$work/seen.txt" "$work/near.txt" >&2
        exit 1
    fi
    local kernel before after
    kernel=$(thread_of qfb)
    look() {
        echo "$(date +%s%N) $(counter ql-near qfa tx_packets) $(counter ql-middle qfb rx_packets)" \
            "$(($(counter ql-middle qfc tx_packets) + $(counter ql-middle qfc tx_dropped))) $(counter ql-far qfd rx_packets)" \
            "$(cpu_of "$kernel") $([ -z "$of_middle" ] && echo 0 || cpu_of "$of_middle")"
    }
    before=$(look)
    sleep "$seconds"
    after=$(look)
    [ -z "$of_middle" ] || { kill -INT "$of_middle"; wait "$of_middle" || true; }
    kill -INT "$sender" 2>/dev/null || true
    wait "$sender" || true
    echo "$row $before $after" | awk '{
        for (i = 2; i <= 8; i++) d[i] = $(i + 7) - $i
        printf "%-5s %9d %9d %9d %9d %9.0f %9.0f %9.0f\n", $1, d[3], d[4], d[5], d[6], d[5] / d[2] * 1e6, d[7] / d[4], d[8] / d[5] }' |
        tee -a "$work/rows.txt"
}

load=$(cut -d' ' -f1 /proc/loadavg)
for _ in $(seq "$rounds"); do
    one host
    one ql
done
echo "Linux $(uname -r), load $load to $(cut -d' ' -f1 /proc/loadavg), $rounds rounds of $seconds s"
awk '
function median(list, n,   i, j, t) {
    for (i = 2; i <= n; i++) for (j = i; j > 1 && list[j - 1] > list[j]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
    return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
}
$1 == "host" { host_rate[++h] = $6; host_cpu[h] = $7 }
$1 == "ql" { ql_rate[++q] = $6; ql_cpu[q] = $7 + $8; rate[q] = $6 / host_rate[q]; of_cpu[q] = ($7 + $8) / host_cpu[q] }
END {
    printf "median of rounds: host %.0f k/s, %.0f CPU ns; ql %.0f k/s, %.0f CPU ns\n", median(host_rate, h), median(host_cpu, h), median(ql_rate, q), median(ql_cpu, q)
    r = median(rate, q); printf "packets sent on, ql : host, in a round: %.2f (%.2f..%.2f)\n", r, rate[1], rate[q]
    c = median(of_cpu, q); printf "CPU time for each, ql : host, in a round: %.2f (%.2f..%.2f)\n", c, of_cpu[1], of_cpu[q]
}' "$work/rows.txt"
