"""Rounds of forwarders, one after the other on one core: packets for each second of the clock, and CPU time for each packet.

Each round runs every row once, so that what the machine does beside hits all of them; ratios are those inside a round. Where other work
runs on the machine, only CPU time says something.

Rows, in the order of what they do for a packet:

  testpmd-ring      two ring devices, `io`: the same few packets go round; none is made, freed or looked at
  testpmd-null      two null devices, `io`: a buffer is allocated and freed; no byte of data is written or read
  testpmd-null-mac  the same, but 64 bytes (zeros) are copied in and the link addresses are swapped (`macswap`)
  testpmd-flowgen   headers of UDP packets are written with the IPv4 checksum, and go to a null device, which frees them
  testpmd-pcap      the device of l3fwd, `io`: what is not routing in it
  l3fwd             the pcap device in memory (`infinite_rx`): a buffer is allocated, a real packet copied in, its type found in software,
                    the route looked up (LPM, vector code), TTL, checksum and link addresses changed, the buffer freed; the header's checksum
                    is not looked at, nor are martians, MTU or neighbour
  route             route.c: our own program on DPDK's libraries, all of what `ql bench forward --case routed-64` does, a destination
                    that comes again asked for once in a batch too
  route-many        the same with the routes and destinations of `--case routed-64-many`
  ql-forward        `ql forward --generate`: packets written with two checksums and a number, routed as a router must (martians, TTL, MTU,
                    neighbour), numbers checked at the end, freed in bulk
  ql-routed         `ql bench forward --case routed-64`, column quietline: the same, with 512 packets in the sink's ring
  ql-routed-many    `ql bench forward --case routed-64-many`: as route-many
  ql-ring           `ql bench forward --case ring-64`: what is not routing in that
  ql-pair           `ql bench forward --case pair-64`: as testpmd-flowgen, a UDP checksum more, and a ring between; numbers checked

Each row runs on both sizes of pages, `--pages small,huge`:

  small             DPDK with `--no-huge`; ql without transparent huge pages (prctl)
  huge              DPDK on hugetlbfs, 2 MiB a page, which run.sh reserves and mounts; ql asks for
                    transparent huge pages, as it does by itself

The DPDK of Debian is built for a baseline with SSE4.2, ql for x86-64's first; both choose faster code at run time where they have it.
"""

import argparse
import ctypes
import json
import os
import signal
import socket
import statistics
import struct
import subprocess
import sys
import time

SIZE = 64
# Of each row of `ql bench`, in a round.
SAMPLES = 11
PREFIX = "quietline-lab"
# Megabytes that DPDK reserves: of huge pages, run.sh provides as many.
MEGABYTES = 512
PR_SET_THP_DISABLE = 41


def eal(work, pages):
    """The arguments of DPDK's environment, on small or on huge pages."""
    huge = ["--huge-dir", f"{work}/huge", "--huge-unlink=always"]
    memory = ["--no-huge"] if pages == "small" else huge
    return [*memory, "-m", str(MEGABYTES), "--no-pci", f"--file-prefix={PREFIX}"]


def run_on(pages, command, **settings):
    """Starts ql on small or on huge pages."""

    def without_huge_pages():
        if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_THP_DISABLE)")

    before = without_huge_pages if pages == "small" else None
    settings["stdout"] = subprocess.PIPE
    return subprocess.Popen(command, preexec_fn=before, text=True, **settings)


def checksum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total > 0xFFFF:
        total = (total >> 16) + (total & 0xFFFF)
    return ~total & 0xFFFF


def packet(number):
    """A packet as the generator of quietline makes it."""
    ends = socket.inet_aton("198.18.0.1") + socket.inet_aton("198.19.0.1")
    ip = bytearray(struct.pack(">BBHHHBBH", 0x45, 0, SIZE - 14, 0, 0x4000, 64, 17, 0) + ends)
    ip[10:12] = struct.pack(">H", checksum(ip))
    payload = b"QLgn" + struct.pack(">IQ", 0, number)
    payload = payload.ljust(SIZE - 42, b"\0")
    udp = bytearray(struct.pack(">HHHH", 1024, 9, 8 + len(payload), 0) + payload)
    udp[6:8] = struct.pack(">H", checksum(ends + struct.pack(">HH", 17, len(udp)) + udp) or 0xFFFF)
    return bytes.fromhex("020000000002" "020000000001" "0800") + bytes(ip) + bytes(udp)


def write_packets(path, count):
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))
        for number in range(count):
            file.write(struct.pack("<IIII", 0, 0, SIZE, SIZE) + packet(number))


def cpu_of_threads(pid):
    """Nanoseconds that each thread of a process has run."""
    times = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
            times[thread] = int(file.read().split()[0])
    return times


class Telemetry:
    """The counters of a DPDK program that runs."""

    def __init__(self):
        base = "/var/run/dpdk" if os.geteuid() == 0 else os.environ.get("XDG_RUNTIME_DIR", "/tmp") + "/dpdk"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(10)
        self.socket.connect(f"{base}/{PREFIX}/dpdk_telemetry.v2")
        self.socket.recv(4096)

    def ask(self, what):
        self.socket.send(what.encode())
        return json.loads(self.socket.recv(1 << 16))

    def sent(self):
        ports = self.ask("/ethdev/list")["/ethdev/list"]
        return sum(self.ask(f"/ethdev/stats,{port}")["/ethdev/stats"]["opackets"] for port in ports)


def stop(process):
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def dpdk(command, seconds):
    """Packets, seconds, and CPU nanoseconds of the thread that forwards, between two looks at a program that runs."""
    log = open(os.devnull, "w")
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
    try:
        begun = time.monotonic()
        while True:
            if process.poll() is not None:
                sys.exit(f"{command[0]} ended with {process.returncode}")
            if time.monotonic() - begun > 60:
                sys.exit(f"{command[0]} forwards nothing")
            try:
                telemetry = Telemetry()
                if telemetry.sent() > 100_000:
                    break
            except (OSError, ValueError, KeyError):
                pass
            time.sleep(0.1)

        def look():
            return time.monotonic(), cpu_of_threads(process.pid), telemetry.sent()

        first = look()
        time.sleep(seconds)
        last = look()
        cpu = max(last[1][thread] - first[1].get(thread, 0) for thread in last[1])
        return last[2] - first[2], last[0] - first[0], cpu
    finally:
        stop(process)


def testpmd(place, cpus, devices, *words):
    # The main thread only waits; the second core forwards.
    devices = [word for device in devices for word in ("--vdev", device)]
    usual = ["--nb-cores=1", "--total-num-mbufs=16384", "--no-flush-rx", "--burst=64"]
    lcores = f"--lcores=0@{cpus[0]},1@{cpus[1]}"
    return ["dpdk-testpmd", lcores, *place, *devices, "--", *usual, *words]


def l3fwd(place, work, cpus, device):
    program = f"{work}/l3fwd/build/l3fwd"
    config = ["-p", "1", "-P", "--config=(0,0,0)", "--parse-ptype", "--lookup=lpm"]
    rules = [f"--rule_ipv4={work}/v4.cfg", f"--rule_ipv6={work}/v6.cfg"]
    return [program, f"--lcores=0@{cpus[1]}", *place, "--vdev", device, "--", *config, *rules]


def proof(work, cpus):
    """Whether l3fwd forwards what it is said to: each of 512 packets once, TTL and link addresses changed, checksums right."""
    out = f"{work}/out.pcap"
    process = subprocess.Popen(
        l3fwd(eal(work, "small"), work, cpus, f"net_pcap0,rx_pcap={work}/in.pcap,tx_pcap={out}"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for _ in range(100):
        time.sleep(0.1)
        try:
            # Sent in bursts; the last comes by a timer.
            if Telemetry().sent() >= 512:
                break
        except (OSError, ValueError, KeyError):
            pass
    stop(process)
    fields = ["-T", "fields", "-e", "ip.ttl", "-e", "ip.checksum.status", "-e", "udp.checksum.status"]
    fields += ["-e", "eth.dst", "-e", "udp.payload"]
    checks = ["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"]
    said = subprocess.run(["tshark", "-r", out, *checks, *fields], capture_output=True, text=True, check=True)
    lines = [line.split("\t") for line in said.stdout.splitlines()]
    numbers = sorted(int(line[4][16:32], 16) for line in lines)
    right = all(line[:3] == ["63", "1", "1"] and line[3] == "02:00:00:00:00:00" for line in lines)
    if numbers != list(range(512)) or not right:
        sys.exit(f"l3fwd does not forward what it is given: {len(lines)} packets, such as {lines[:2]}")
    print("l3fwd, proof: 512 of 512 packets, TTL 63, checksums right (tshark)")


def ql_forward(pages, ql, cpus, seconds):
    command = ["taskset", "-c", str(cpus[1]), ql, "forward", "--generate", "--seconds", str(seconds)]
    process = run_on(pages, command, stderr=subprocess.DEVNULL)
    said = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    sink = next(line for line in said.splitlines() if line.startswith("sink:"))
    count = int(sink.split()[1])
    if status != 0 or sink != f"sink: {count} received, 0 lost, 0 duplicated, 0 reordered, 0 foreign":
        sys.exit(f"not forwarded: {said}")
    return count, seconds, (usage.ru_utime + usage.ru_stime) * 1e9


def ql_bench(pages, ql, cpus, seconds, case):
    rounds = ["--rounds", str(SAMPLES), "--sample-ms", str(max(2, int(seconds * 1000 / SAMPLES)))]
    command = ["taskset", "-c", str(cpus[1]), ql, "bench", "forward", "--case", case, "--columns", "quietline"]
    command += ["-n", "1", *rounds, "--json", "-"]
    process = run_on(pages, command, stderr=subprocess.PIPE)
    said, wrong = process.communicate()
    if process.returncode != 0:
        sys.exit(f"ql bench ended with {process.returncode}: {wrong}")
    row = json.loads(said)["rows"][0]
    if not row["checked"]:
        sys.exit("not checked")
    # The sum of all samples: the other rows are one long one, with the machine's slow moments in it.
    samples = [(sample["ops"][0], sample["ns"][0], sample["cpu_ns"][0]) for sample in row["samples"]]
    packets = sum(ops for ops, _, _ in samples)
    return packets, sum(ops * ns for ops, ns, _ in samples) / 1e9, sum(ops * cpu for ops, _, cpu in samples)


def route(place, work, cpus, seconds, *words):
    command = [f"{work}/route", str(seconds), *words, f"--lcores=0@{cpus[1]}", *place]
    said = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in said.stdout.splitlines() if line.startswith("route: ")]
    if said.returncode != 0 or not lines:
        sys.exit(f"route ended with {said.returncode}: {said.stdout}{said.stderr}")
    _, packets, clock, cpu = lines[0].split()
    return int(packets), float(clock), float(cpu)


def rows_on(pages, work, ql, cpus, seconds):
    """The rows on one size of pages, by name."""
    place = eal(work, pages)
    null = ["net_null0,size=64", "net_null1,size=64"]
    copying = [device + ",copy=1" for device in null]
    rings = ["net_ring0", "net_ring1"]
    rows = {
        "testpmd-ring": lambda: dpdk(
            testpmd(place, cpus, rings, "--tx-first", f"--txpkts={SIZE}"), seconds
        ),
        "testpmd-null": lambda: dpdk(testpmd(place, cpus, null), seconds),
        "testpmd-null-mac": lambda: dpdk(
            testpmd(place, cpus, copying, "--forward-mode=macswap"), seconds
        ),
        "testpmd-flowgen": lambda: dpdk(
            testpmd(place, cpus, null, "--forward-mode=flowgen"), seconds
        ),
    }
    if os.path.exists(f"{work}/l3fwd/build/l3fwd"):
        device = f"net_pcap0,rx_pcap={work}/in.pcap,infinite_rx=1"
        rows["testpmd-pcap"] = lambda: dpdk(testpmd(place, cpus, [device]), seconds)
        rows["l3fwd"] = lambda: dpdk(l3fwd(place, work, cpus, device), seconds)
    rows["route"] = lambda: route(place, work, cpus, seconds)
    rows["route-many"] = lambda: route(place, work, cpus, seconds, "many")
    rows["ql-forward"] = lambda: ql_forward(pages, ql, cpus, seconds)
    rows["ql-routed"] = lambda: ql_bench(pages, ql, cpus, seconds, "routed-64")
    rows["ql-routed-many"] = lambda: ql_bench(pages, ql, cpus, seconds, "routed-64-many")
    rows["ql-ring"] = lambda: ql_bench(pages, ql, cpus, seconds, "ring-64")
    rows["ql-pair"] = lambda: ql_bench(pages, ql, cpus, seconds, "pair-64")
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", required=True)
    parser.add_argument("--ql", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--cpu", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--pages", default="small,huge", help="small, huge, or both as by default")
    parser.add_argument("--rows", default="", help="only these rows, with commas between them")
    parser.add_argument("--json")
    given = parser.parse_args()
    work, ql, seconds = given.work, given.ql, given.seconds
    # Where the thread waits that does not forward, and where the other one forwards.
    cpus = [min(os.sched_getaffinity(0)), given.cpu]
    write_packets(f"{work}/in.pcap", 512)
    with open(f"{work}/v4.cfg", "w") as file:
        file.write("R198.19.0.0/16 0\n")
    with open(f"{work}/v6.cfg", "w") as file:
        file.write("R2001:0002:0000:0001:0000:0000:0000:0000/64 0\n")
    null = ["net_null0,size=64", "net_null1,size=64"]
    copying = [device + ",copy=1" for device in null]
    rows = {}
    for pages in given.pages.split(","):
        for name, run in rows_on(pages, work, ql, cpus, seconds).items():
            if not given.rows or name in given.rows.split(","):
                rows[name, pages] = run

    if os.path.exists(f"{work}/l3fwd/build/l3fwd"):
        proof(work, cpus)
    loads = [os.getloadavg()[0]]
    samples = {name: [] for name in rows}
    for number in range(given.rounds):
        for name, run in rows.items():
            packets, clock, cpu = run()
            sample = {"mpps": packets / clock / 1e6, "cpu_ns": cpu / packets}
            samples[name].append(sample)
            figures = f"{sample['mpps']:.2f} M/s, {sample['cpu_ns']:.1f} CPU ns"
            print(f"round {number + 1}: {' '.join(name)}: {figures}", file=sys.stderr)
        loads.append(os.getloadavg()[0])
    version = subprocess.run(["pkg-config", "--modversion", "libdpdk"], capture_output=True, text=True).stdout.strip()
    print(f"DPDK {version}, Linux {os.uname().release}, load {min(loads):.1f} to {max(loads):.1f}, {given.rounds} rounds of {seconds:g} s")
    columns = f"{'M/s':>8}{'min..max':>16}{'CPU ns':>9}{'min..max':>16}"
    print(f"{'row':18}{'pages':7}{columns}   CPU ns of ql-routed : of row, in a round, same pages")
    for (name, pages), taken in samples.items():
        mpps, cpu = ([sample[key] for sample in taken] for key in ("mpps", "cpu_ns"))
        own = [sample["cpu_ns"] for sample in samples.get(("ql-routed", pages), [])]
        ratios = [ours / theirs for ours, theirs in zip(own, cpu)] or [float("nan")]
        spread = f"{min(mpps):.2f}..{max(mpps):.2f}"
        of_cpu = f"{min(cpu):.1f}..{max(cpu):.1f}"
        ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f})"
        medians = [statistics.median(mpps), statistics.median(cpu)]
        rate = f"{medians[0]:8.2f}{spread:>16}"
        print(f"{name:18}{pages:7}{rate}{medians[1]:9.1f}{of_cpu:>16}   {ratio}")
    if given.json:
        with open(given.json, "w") as file:
            named = {" ".join(name): taken for name, taken in samples.items()}
            about = {"dpdk": version, "kernel": os.uname().release, "load": loads}
            json.dump({**about, "seconds": seconds, "samples": named}, file)


main()
