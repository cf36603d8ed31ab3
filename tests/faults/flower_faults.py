"""What goes wrong among institutions, done on purpose; each run must end with the same numbers.

    python -m tests.faults.flower_faults NAME     one of those below
    python -m tests.faults.flower_faults all      one after the other

    client      kill -9 of a client in the middle of a call; it is started again
    stopped     a client stands still past its deadline; the round goes on without it
    server      kill -9 of the server in the middle of a round; it is started again
    superlink   kill -9 of Flower's SuperLink in the middle of a round
    twins       a second client with the same name and key
    keys        clients with a foreign and with a revoked key want to join
    strangers   a client with another version, and one with another recipe
    disk        a client's disk is full; then there is room again
    network     a client's network is cut for a minute (needs root)

Each prints one line and exits with 0, or with 1 and what differs. In some of them a minute passes
until Flower believes that a client is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.faults.fragile import Fragile
from tests.institutions import NAMES, STUDY, Institutions, free_port, groups, until
from tests.kept import kept_states
from tests.unit.cli.command import measured

from consort.core import files
from consort.core.messages import Call, Reply
from consort.core.wire import encode
from consort.deployment.status import current_status
from consort.engines.embedded import Embedded
from consort.engines.middleware import Absent, Wrapper
from consort.experiment.assembly import assemble
from consort.experiment.loading import load_recipe, recipe_of
from consort.experiment.tables import merged
from consort.run.run import Run

VICTIM = "b-0"
PATIENCE = 600.0  # seconds for anything, on a machine that is busy with other things


class Scene:
    """A server and three clients, one of which waits in the middle of round 2."""

    def __init__(self, folder: Path, wait: float = PATIENCE, deadline: float = PATIENCE) -> None:
        self.folder, self.deadline = folder, deadline
        self.institutions = Institutions(folder)
        self.port = free_port()
        self.out = folder / "out"
        self.mark = folder / "mark"
        self.recipe = folder / "study.toml"
        code = Path(__file__).with_name("fragile.py")
        self.recipe.write_text(
            STUDY.replace("rounds = 2", "rounds = 3")
            + f'[algorithms.fragile]\nkind = "{code}:Fragile"\nclient = "{VICTIM}"\n'
            + f'mark = "{self.mark}"\npatience = {wait}\n'
        )

    def start_server(self, *prefix: str, listen: str = "localhost") -> subprocess.Popen[bytes]:
        return self.institutions.start(
            *("server", self.recipe, "--listen", f"{listen}:{self.port}", "--out", self.out),
            *("--credentials", self.institutions.server.folder, "--deadline", self.deadline),
            "--quiet",
            log="server.log",
            prefix=prefix,
        )

    def start_client(self, name: str, *more: object, **options: Any) -> subprocess.Popen[bytes]:
        return self.institutions.start_client(
            name, self.port, "--recipe", self.recipe, *more, **options
        )

    def start(self) -> subprocess.Popen[bytes]:
        """Everybody; returns the server."""
        server = self.start_server()
        self.clients = {name: self.start_client(name) for name in NAMES}
        return server

    def wait_for_mark(self) -> None:
        until(self.mark.exists, PATIENCE, "round 2")

    @property
    def status(self) -> dict[str, Any]:
        return current_status(self.out)

    def finish(self, server: subprocess.Popen[bytes]) -> None:
        """The server must come to a good end."""
        if server.wait(PATIENCE):
            raise AssertionError(f"the server failed: {self.institutions.said('server.log')}")

    def events(self) -> str:
        """What the user was told so far."""
        if not (self.out / "status.json").exists():
            return ""
        return "\n".join(text for _, text in self.status["events"])


class Dropping(Wrapper):
    """One client is absent from one round."""

    def deliver(self, calls: Sequence[Call]) -> Iterator[Reply]:
        for call in calls:
            if (call.client, call.round, call.evaluation) == (VICTIM, 2, False):
                yield Reply(call.client, error=Absent(call.client, "left out"))
            else:
                yield from self.engine.deliver([call])


def expected(scene: Scene, dropped: bool) -> tuple[list[str], bytes, dict[str, bytes]]:
    """The same run in this process, with nobody waiting for anything."""
    scene.mark.touch()
    recipe = load_recipe(scene.recipe)
    table = recipe.table
    settings = {k: v for k, v in table.items() if v is not None and k != "clients"}
    near = recipe_of(merged(settings, {"groups": groups()}), "near")
    folder = scene.folder / "near"
    run = Run(assemble(near, 0, None).federation, near.algorithm("fragile"), near.run, 0, folder)
    if dropped:
        run.engine = lambda host: Dropping(Embedded(host))
    run.go()
    return outcome(folder, dict.fromkeys(NAMES, folder / "clients"))


def outcome(run: Path, states: dict[str, Path]) -> tuple[list[str], bytes, dict[str, bytes]]:
    """Everything about a run that must not depend on what was done to it."""
    state = Fragile.state_type()
    last = files.load(max(run.glob("round-*.ckpt")), {state.__name__: state})
    kept = {
        f"{name}/{stamp}": state
        for name, folder in states.items()
        for stamp, state in kept_states(folder).get(name, {}).items()
    }
    return measured(run), encode(last["server"]), kept


def client(scene: Scene) -> str:
    server = scene.start()
    scene.wait_for_mark()
    scene.clients[VICTIM].kill()
    scene.clients[VICTIM].wait()
    scene.start_client(VICTIM)
    scene.finish(server)
    return "a killed client came back and was asked again"


def stopped(scene: Scene) -> str:
    server = scene.start()
    scene.wait_for_mark()
    os.kill(scene.clients[VICTIM].pid, signal.SIGSTOP)
    over = time.monotonic() + scene.deadline + 1  # the client's own is later: calls take a while
    until(lambda: scene.status.get("round") == 3, PATIENCE, "round 3")
    time.sleep(max(0.0, over - time.monotonic()))
    os.kill(scene.clients[VICTIM].pid, signal.SIGCONT)
    scene.finish(server)
    assert f"continued without client {VICTIM}: did not answer within" in scene.events()
    assert "too late" in scene.institutions.said(f"{VICTIM}.log")
    return "the round continued without a client that was stopped, and the next one with it"


def server(scene: Scene) -> str:
    first = scene.start()
    scene.wait_for_mark()
    first.kill()
    first.wait()
    scene.finish(scene.start_server())
    return "a killed server went on where it was, and its clients found it"


def superlink(scene: Scene) -> str:
    process = scene.start()
    scene.wait_for_mark()
    (child,) = children(process.pid, "flower-superlink")
    os.kill(child, signal.SIGKILL)
    scene.finish(process)
    return "a killed SuperLink was started again"


def twins(scene: Scene) -> str:
    process = scene.start()
    scene.wait_for_mark()
    twin = scene.folder / "twin"
    shutil.copytree(scene.folder / VICTIM, twin, ignore=shutil.ignore_patterns("state"))
    scene.start_client(VICTIM, folder=twin, log="twin.log")
    until(lambda: "another client with this name" in scene.institutions.said("twin.log"), PATIENCE)
    scene.finish(process)
    assert "connected to" not in scene.institutions.said("twin.log")
    return "a second client of the same name was refused and told why"


def keys(scene: Scene) -> str:
    elsewhere = Institutions(scene.folder / "elsewhere", ["foreign"])
    revoked = scene.institutions.admit("revoked")
    scene.institutions.server.revoke("revoked")
    foreign = elsewhere.folder / "foreign"
    process = scene.start()
    scene.wait_for_mark()
    for name, folder in (("foreign", foreign), ("revoked", revoked.folder)):
        scene.start_client(name, folder=folder)
    until(lambda: "does not accept this key" in scene.institutions.said("revoked.log"), PATIENCE)
    until(
        lambda: "is not signed by the authority" in scene.institutions.said("foreign.log"), PATIENCE
    )
    scene.finish(process)
    return "a foreign and a revoked key were refused and told why"


def strangers(scene: Scene) -> str:
    process = scene.start_server()
    other = scene.folder / "other.toml"
    other.write_text(scene.recipe.read_text().replace("lr = 0.1", "lr = 0.2"))
    a = scene.institutions.start_client("a-0", scene.port, "--recipe", other)
    b = scene.start_client(VICTIM, first="import consort; consort.__version__ = '9.9'; ")
    scene.start_client("c-0")
    said = scene.institutions.said
    until(lambda: "client a-0: the client's --recipe differs" in scene.events(), PATIENCE)
    until(lambda: f"client {VICTIM}: this client has Consort 9.9" in scene.events(), PATIENCE)
    assert "refused: the client's --recipe differs" in said("a-0.log")
    for process_ in (a, b):
        process_.terminate()
        process_.wait(30)
    scene.start_client("a-0")
    scene.start_client(VICTIM)
    scene.finish(process)
    return "another recipe and another version were named before the first round"


def disk(scene: Scene) -> str:
    folder = scene.folder / VICTIM / "state"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], check=True)
    try:
        process = scene.start()
        scene.wait_for_mark()
        filler = folder / "filler"
        with contextlib.suppress(OSError), filler.open("wb") as file:
            while True:
                file.write(bytes(4096))
                file.flush()
        assert process.wait(PATIENCE) == 1
        assert f"client {VICTIM}: its disk is full" in scene.institutions.said("server.log")
        filler.unlink()
        scene.finish(scene.start_server())
        scene.kept = shutil.copytree(folder, scene.folder / "kept")
        scene.institutions.close()
    finally:
        subprocess.run(["umount", "-l", folder], check=True)
    shutil.copytree(scene.kept, folder, dirs_exist_ok=True)
    return "the run stopped with the client's name, and went on when there was room"


def network(scene: Scene) -> str:
    here, there = f"consort-s{os.getpid()}", f"consort-c{os.getpid()}"
    address = "10.79.0.1"
    scene.institutions = Institutions(scene.folder / "netted", hosts=[address])
    with namespaces(here, there, address):
        inside, outside = (["ip", "netns", "exec", name] for name in (here, there))
        process = scene.start_server(*inside, listen=address)
        for name in NAMES:
            prefix = outside if name == VICTIM else inside
            scene.start_client(name, host=address, prefix=prefix)
        scene.wait_for_mark()
        link = [*outside, "ip", "link", "set", "veth-c"]
        subprocess.run([*link, "down"], check=True)
        time.sleep(60)
        subprocess.run([*link, "up"], check=True)
        scene.finish(process)
        scene.institutions.close()
    return "a client whose network was cut for a minute came back"


@contextlib.contextmanager
def namespaces(here: str, there: str, address: str) -> Iterator[None]:
    """Two networks with a cable between them."""

    def ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True)

    try:
        for name in (here, there):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", here, "link", "add", "veth-s", "type", "veth", "peer", "veth-c", "netns", there)
        ip("-n", here, "addr", "add", f"{address}/24", "dev", "veth-s")
        ip("-n", there, "addr", "add", "10.79.0.2/24", "dev", "veth-c")
        ip("-n", here, "link", "set", "veth-s", "up")
        ip("-n", there, "link", "set", "veth-c", "up")
        yield
    finally:
        for name in (here, there):
            subprocess.run(["ip", "netns", "del", name], check=False)


def children(parent: int, command: str) -> list[int]:
    """The processes that a process has started, by what they run."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, IndexError, ValueError):
            owner = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if owner == parent and command in (entry / "cmdline").read_text():
                found.append(int(entry.name))
    return found


FAULTS = {f.__name__: f for f in (
    client, stopped, server, superlink, twins, keys, strangers, disk, network,
)}  # fmt: skip
WAITS = {"client": 600.0, "disk": 15.0, "network": 90.0, "stopped": 10.0}
"""Seconds that the victim waits in its call; as long as it takes to do it harm."""


def main(name: str) -> None:
    """Does the worst, and compares."""
    with tempfile.TemporaryDirectory(prefix="consort-fault-") as place:
        deadline = 120.0 if name == "stopped" else PATIENCE
        scene = Scene(Path(place), WAITS.get(name, 20.0), deadline)
        start = time.monotonic()
        try:
            told = FAULTS[name](scene)
        except BaseException:
            for log in sorted(Path(place).rglob("*.log")):
                print(f"--- {log.name}", log.read_text(errors="replace")[-1500:], file=sys.stderr)
            raise
        finally:
            scene.institutions.close()
        seconds = time.monotonic() - start
        session = json.loads((scene.out / "exchanges.json").read_text())["session"]
        homes = {n: scene.institutions.folder / n / "state" / session for n in NAMES}
        found, right = outcome(scene.out, homes), expected(scene, name == "stopped")
    for what, one, other in zip(("rows", "server", "clients"), found, right, strict=True):
        if one != other:
            sys.exit(f"{name}: the {what} differ")
    print(f"{name}: {told}. Same numbers after {seconds:.0f} s.", flush=True)


if __name__ == "__main__":
    from tests.faults.flower_faults import FAULTS as EVERY
    from tests.faults.flower_faults import main  # so that others find this module by its name

    for each in EVERY if sys.argv[1] == "all" else sys.argv[1:]:
        main(each)
