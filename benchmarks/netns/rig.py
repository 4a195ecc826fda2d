"""Emulated hosts: network namespaces on a bridge, each with a limited rate out and a limited rate in.

Every namespace is held open by one process that waits for this script to go away. So when the script ends, however
it ends, the processes end, and the namespaces, links and limits go with them: nothing has a name, nothing is left.

What makes a link of the rig behave like a link of the model:

- ``tbf`` limits what a host sends (on its own device) and what it gets (on the bridge's port to it), with a bucket
  so small that little passes for free.
- Under each limit, packets to (or from) different hosts wait in lines of their own and take turns: ``htb`` whose
  classes have no limits, used for nothing else. That is the model's max-min fairness, made of queues. Where all wait
  in one line (``fair=False``), TCP shares a link evenly only in the long run; messages of 256 KiB, no longer than its
  window, are over before that.
- TCP keeps little under way: the sender's socket, its part of the queue and the receiver's window are all small. With
  the usual megabytes there, an acknowledgement waits behind data for a tenth of a second, and so does the message
  that lets the other side go on; and a send is over long before its bytes have left. Smaller still, and a host that
  wakes late has nothing left to send.
- Nothing is ever lost, since the queues hold more than all windows together; so TCP is told not to take a host that
  is late for a loss, which would narrow its window for a long time. Congestion control is reno without slow start
  after idle time. (BBR, the usual choice of some systems, probes the rate all the time.)
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from types import TracebackType

NETWORK = "10.77.0"
NETWORK_NUMBER = 0x0A4D0000
FROM, TO = 12, 16  # where a packet has its two addresses
BURST = 12_000  # bytes that pass at once; more than a packet
MTU = 9000
QUEUE = 16 * 2**20  # bytes
PACKETS = 10_000  # in each line; more than all windows together
TURN = 9_100  # bytes that a line may send in its turn: a packet
TCP = {
    "tcp_congestion_control": "reno",
    "tcp_slow_start_after_idle": "0",
    "tcp_no_metrics_save": "1",
    "tcp_early_retrans": "0",
    "tcp_recovery": "0",
    "tcp_reordering": "300",
    "tcp_limit_output_bytes": "32768",
    "tcp_rmem": "4096 262144 262144",
    "tcp_wmem": "4096 262144 262144",
}


def address(host: int) -> str:
    """The address of a host."""
    return f"{NETWORK}.{host + 1}"


class Rig:
    """The hosts, one for each of ``rates`` (bytes per second, both ways); gone when the block ends."""

    def __init__(self, rates: Sequence[float], *, fair: bool = True) -> None:
        self.rates, self.fair = rates, fair
        self._holders: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Rig:
        try:
            self._build()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    @property
    def spaces(self) -> list[str]:
        """The files that stand for the hosts' namespaces."""
        return [f"/proc/{holder.pid}/ns/net" for holder in self._holders[: len(self.rates)]]

    def _build(self) -> None:
        for _ in range(len(self.rates) + 1):
            self._holders.append(_hold())
        bridge = len(self.rates)
        self._shell(bridge, "ip link add br0 type bridge forward_delay 0; ip link set br0 mtu 9000 up")
        for host, rate in enumerate(self.rates):
            holder = self._holders[host].pid
            self._shell(bridge, f"ip link add p{host} mtu {MTU} type veth peer name eth0 mtu {MTU} netns {holder}")
            self._shell(bridge, f"ip link set p{host} master br0 up; {self._limit(f'p{host}', rate, FROM)}")
            self._shell(
                host,
                f"ip link set lo up; ip addr add {address(host)}/24 dev eth0; ip link set eth0 up;"
                f"{self._limit('eth0', rate, TO)};"
                f"ip route change {NETWORK}.0/24 dev eth0 initcwnd 100 initrwnd 100 rto_min 5s;"
                + ";".join(f"echo {value} > /proc/sys/net/ipv4/{name}" for name, value in TCP.items()),
            )

    def _limit(self, device: str, rate: float, place: int) -> str:
        """Commands that limit a device, and let the packets of different hosts take turns on it."""
        limit = f"tc qdisc add dev {device} root handle 1: tbf rate {rate * 8:.0f}bit burst {BURST} limit {QUEUE}"
        if not self.fair:
            return limit
        commands = [limit, f"tc qdisc add dev {device} parent 1:1 handle 2: htb default 1"]
        for line in range(1, len(self.rates) + 2):  # the first is for what is not IP
            commands += [
                f"tc class add dev {device} parent 2: classid 2:{line} htb rate 10gbit burst 10m quantum {TURN}",
                f"tc qdisc add dev {device} parent 2:{line} pfifo limit {PACKETS}",
            ]
        for host in range(len(self.rates)):
            match = f"match u32 {NETWORK_NUMBER + host + 1:#x} 0xffffffff at {place}"
            commands.append(f"tc filter add dev {device} parent 2: protocol ip prio 1 u32 {match} flowid 2:{host + 2}")
        return "; ".join(commands)

    def _enter(self, space: int) -> list[str]:
        return ["nsenter", "--target", str(self._holders[space].pid), "--net"]

    def _shell(self, space: int, script: str) -> None:
        done = subprocess.run([*self._enter(space), "sh", "-ec", script], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"the rig cannot be built here: {done.stderr.strip()} ({script})")

    def _end(self) -> None:
        for holder in self._holders:
            with holder:
                holder.kill()


def _hold() -> subprocess.Popen[bytes]:
    """A new namespace and the process that holds it, until its input ends; its first line says that it is there."""
    holder = subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    if holder.stdin is None or holder.stdout is None:
        raise AssertionError
    try:
        holder.stdin.write(b"ready\n")
        holder.stdin.flush()
        ready = holder.stdout.readline()
    except BrokenPipeError:
        ready = b""
    if not ready:
        holder.wait()
        raise SystemExit("a network namespace cannot be made here: this needs root, or CAP_SYS_ADMIN and CAP_NET_ADMIN")
    return holder
