"""Reading /proc: awkward names, zombies, groups, tokens, connections."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import pytest

from llmgw.agent import procfs

REST = b"S 41 77 78 0 -1 4194560 1 0 0 0 5 6 0 0 20 0 1 0 123456 0 99 0"
NAMES = [b"python3", b"a) R 1 (b", b"((x)", b"x  ", b")" * 15, b"\xff\xfe", b"", b"a\nb"]


@pytest.mark.parametrize("name", NAMES)
def test_a_stat_line_is_cut_at_its_last_parenthesis(name: bytes) -> None:
    stat = procfs.parse_stat(b"4242 (" + name + b") " + REST)
    assert stat.pid == 4242
    assert stat.name == name
    assert stat.state == b"S"
    assert (stat.parent, stat.group, stat.session) == (41, 77, 78)
    assert stat.cpu_ticks == 11
    assert stat.start_ticks == 123456
    assert stat.resident_pages == 99


@pytest.mark.parametrize("line", [b"", b"1", b"1 (x", b"1 )x( S 1 2", b"1 (x) S 1 2"])
def test_what_is_not_a_stat_line_is_an_error(line: bytes) -> None:
    with pytest.raises(ValueError, match="not a stat line"):
        procfs.parse_stat(line)


@pytest.mark.parametrize(("state", "alive"), [(b"R", True), (b"D", True), (b"Z", False)])
def test_a_zombie_is_not_alive(state: bytes, alive: bool) -> None:
    assert procfs.parse_stat(b"1 (x) " + state + REST[1:]).alive is alive


def test_this_process_reads_as_itself() -> None:
    stat = procfs.read_stat(os.getpid())
    assert stat is not None
    assert stat.alive
    assert (stat.parent, stat.group, stat.session) == (os.getppid(), os.getpgrp(), os.getsid(0))


@pytest.mark.parametrize("name", [b"a) R 1 (b", b"((x)", b"x  ", b")" * 15, b"\xff\xfe"])
def test_the_kernels_own_line_for_such_a_name_is_read(name: bytes) -> None:
    code = (
        "import ctypes, sys; "
        f"ctypes.CDLL(None).prctl(15, ctypes.c_char_p({name!r}), 0, 0, 0); "
        "sys.stdout.write('ok'); sys.stdout.flush(); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.read(2) == b"ok"
        stat = procfs.read_stat(child.pid)
        child.communicate()
    assert stat is not None
    assert stat.name == name
    assert (stat.parent, stat.group) == (os.getpid(), os.getpgrp())


def test_an_exited_child_that_nobody_reaped_is_there_but_dead() -> None:
    with subprocess.Popen([sys.executable, "-c", ""], start_new_session=True) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        stat = procfs.read_stat(child.pid)
        assert stat is not None
        assert not stat.alive
        assert procfs.group_members(child.pid) == []


def test_a_process_that_is_gone_is_none() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    assert procfs.read_stat(child.pid) is None
    assert procfs.launch_token(child.pid) is None


def test_the_launch_token_of_a_child_is_found() -> None:
    environment = {**os.environ, procfs.LAUNCH_TOKEN: "owner:abc", "X_LLMGW_LAUNCH_TOKEN": "no"}
    with subprocess.Popen(["sleep", "60"], env=environment) as child:
        # Between fork and exec a child still shows its parent's environment.
        deadline = time.perf_counter() + 5
        while procfs.launch_token(child.pid) is None and time.perf_counter() < deadline:
            time.sleep(0.01)
        found = procfs.launch_token(child.pid)
        child.kill()
    assert found == "owner:abc"
    assert procfs.launch_token(os.getpid()) is None


def has_ipv6_loopback() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_only_established_connections_to_the_port_count(family: socket.AddressFamily) -> None:
    host = "127.0.0.1" if family is socket.AF_INET else "::1"
    if family is socket.AF_INET6 and not has_ipv6_loopback():
        pytest.skip("there is no ::1 here")
    with socket.socket(family) as listener:
        listener.bind((host, 0))
        listener.listen()
        port = listener.getsockname()[1]
        assert procfs.established_connections(host, port) == 0
        with socket.create_connection((host, port)):
            served, _ = listener.accept()
            with served:
                assert procfs.established_connections(host, port) == 1
        assert procfs.established_connections(host, port) == 0


@pytest.mark.parametrize(("bound", "counted"), [("127.0.0.1", 0), ("0.0.0.0", 1)])  # noqa: S104 - on purpose
def test_a_connection_to_another_address_counts_only_if_everything_is_listened_to(
    bound: str, counted: int
) -> None:
    """Nodes on one machine: the same port, each on an address of its own."""
    with socket.socket() as listener:
        listener.bind((bound, 0))
        listener.listen()
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            assert procfs.established_connections("127.0.0.1", port) == 1
            assert procfs.established_connections("127.0.0.2", port) == counted
            assert procfs.established_connections("a-name", port) == 1


def test_a_connection_over_ipv4_to_a_socket_of_ipv6_counts() -> None:
    if not has_ipv6_loopback():
        pytest.skip("there is no ::1 here")
    with socket.socket(socket.AF_INET6) as listener:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind(("::ffff:127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            served, _ = listener.accept()
            with served:
                assert procfs.established_connections("127.0.0.1", port) == 1
                assert procfs.established_connections("127.0.0.2", port) == 0
