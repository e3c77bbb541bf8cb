"""The supervisor: starts processes, notices which are gone, has plans made, and calls the next generation.

One file: what happens to a training is one story, and each event may come in any state of it.
"""

import queue
import time
from collections.abc import Collection, Mapping

import msgspec

from runtime.elastic.ahead import Ahead
from runtime.elastic.checkpoint import Checkpoint
from runtime.elastic.children import Ended, Started
from runtime.elastic.events import Change, EventLog, Stopwatch
from runtime.elastic.identity import difference
from runtime.elastic.keeper import Kept
from runtime.elastic.messages import (
    Config,
    Done,
    Failed,
    Generation,
    Hello,
    Killed,
    Late,
    Progress,
    Reached,
    Report,
    Saved,
    Sent,
)
from runtime.elastic.outcome import Outcome
from runtime.elastic.plans import Decided, Layout, Planning
from runtime.elastic.posts import Beginning, Gathering, Node, Posts
from runtime.elastic.walk import Shapes
from runtime.elastic.watching import beat_key, tell_key
from runtime.elastic.worker import AGAIN, BYE
from solvers.ir.errors import BayplanError, InvalidInput

TICK_S = 0.05
START_S = 300
"""Within this time all processes must have said hello."""
MOST_VAIN = 3
"""So many generations in a row may end without a step while nodes stay the same."""
HEARD_S = 0.5
"""A message that took longer is logged: the supervisor was given no core, or its thread was busy."""
GRACE_S = 5.0
"""What the nursery may take to make a checkpoint of what workers have saved, before it is ended."""


class Supervisor:
    """One training, from the first hello to the last digest."""

    def __init__(
        self, config: Config, posts: Posts, planning: Planning, log: EventLog, joins: Mapping[int, list[str]]
    ) -> None:
        self.config, self.planning, self.log = config, planning, log
        self.ahead = Ahead(planning)
        self.store, self.inbox, self.children, self.keeper = posts
        self.joins = {step: list(whats) for step, whats in joins.items()}
        self.nodes: dict[int, Node] = {}
        self.born: dict[int, int] = {}  # the node that each process started as
        self.numbers = 0
        self.generation, self.members = 0, tuple[int, ...]()
        self.decided: Decided | None = None  # of the generation at hand
        self.settled, self.base = Layout(()), -1  # whose layers are there for sure, and of which generation
        self.step = 0
        self.resumed: int | None = None
        self.checkpoint: Checkpoint | None = None  # that the next generation begins from
        self.gathering: Gathering | None = None
        self.pausing = False
        self.vain = 0  # generations in a row that ended without a step, though nobody had ended or come
        self.changes: list[Change] = []
        self.losses: dict[int, float] = {}
        self.took_us: dict[int, int] = {}
        self.done: dict[int, Done] = {}
        self.sizes: list[int] = []
        self.killed_ns: dict[int, int] = {}
        self.shapes: Shapes = ()
        self.identity: Mapping[str, str] = {}  # what every process must be
        self.watch = Stopwatch()

    # Starting

    def begin(self, how: Beginning) -> None:
        """Starts processes, has the first layout made meanwhile, and calls the first generation."""
        self.shapes, self.identity, count = how.shapes, how.identity, how.nodes
        if how.resumed is not None:
            self._go_back(how.resumed)
            self.resumed = self.step
            self.log.add("resumed", step=self.step, checkpoint=how.resumed.path.name)
        numbers = [self._number() for _ in range(count)]
        for node in numbers:
            self.children.start(node)
        decided = how.layout(numbers)
        until = time.monotonic() + START_S
        while not all(node in self.nodes and self.nodes[node].ready for node in numbers):
            if time.monotonic() > until:
                raise InvalidInput(f"not all of {count} processes have started within {START_S} s: start fewer")
            self._take(TICK_S)
        self._call(decided, numbers, Stopwatch(), "")

    def _number(self) -> int:
        self.numbers += 1
        return self.numbers - 1

    # The loop

    def run(self) -> Outcome:
        """Until every member has said that it is done, and the last checkpoint is whole."""
        looked = time.monotonic()
        while not (self._is_done() and not self.keeper.busy):
            self._take(TICK_S)
            if time.monotonic() - looked >= TICK_S:  # it asks the store for every heart: not after every message
                self._look_for_hangs()
                looked = time.monotonic()
            self._go_on()
        self.store.set(f"end/{self.generation}", BYE.decode())
        self.log.add("done", steps=self.config.steps)
        return self._outcome()

    def _is_done(self) -> bool:
        return bool(self.members) and set(self.members) <= self.done.keys() and self.gathering is None

    def let_save(self) -> None:
        """Has everybody save after the step they are in, and end; nobody answers any more."""
        for node in self.nodes.values():
            if not node.gone:
                self.store.queue_push(tell_key(node.pid), "save 0")
        self.children.let_save(self.config.timeout_s + GRACE_S)

    def _take(self, wait_s: float) -> None:
        """One piece of news, if there is any."""
        try:
            news = self.inbox.get(timeout=wait_s)
        except queue.Empty:
            return
        if isinstance(news, Started):
            self.nodes.setdefault(news.node, Node(news.pid))  # its hello may have come before
            self.born[news.pid] = news.node
            self.log.add("started", node=news.node, pid=news.pid)
        elif isinstance(news, Ended):
            self._ended(news)
        elif isinstance(news, Kept):
            self.keeper.kept(news)
        else:
            self._told(news)

    def _ended(self, news: Ended) -> None:
        if news.pid == self.children.nursery_pid:
            raise InvalidInput(f"the process that starts workers has ended: {self.children.said('nursery')}")
        for number, node in self.nodes.items():
            if node.pid == news.pid and not node.gone:
                node.gone, node.ready = True, False
                self.log.add("ended", node=number, status=news.status)
                if not self.members:
                    raise InvalidInput(f"node {number} has ended at its start: {self.children.said(number)}")
                if number in self.members:
                    self._gather(f"node {number} has ended ({_how(news.status)})", number)

    def _told(self, sent: Sent) -> None:
        message = sent.message
        if sum(waited := sent.waited_us(time.monotonic_ns())) > HEARD_S * 1e6:
            self.log.add(
                "heard-late", sent.at_ns, what=type(message).__name__, to_ear_us=waited[0], in_ear_us=waited[1]
            )
        if isinstance(message, Hello):
            self._hello(message)
        elif isinstance(message, Report):
            self._reported(message, sent.at_ns)
        elif isinstance(message, Reached):
            self._reached(message, sent.at_ns)
        elif isinstance(message, Progress):
            self._progress(message, sent.at_ns)
        elif isinstance(message, Done):
            if message.generation == self.generation:
                self.done[message.node] = message
        elif isinstance(message, Saved):
            self.keeper.saved(message, self.losses)
        elif isinstance(message, Killed):
            self.killed_ns[message.node] = sent.at_ns
            role = self.decided.layout.role(message.node) if self.decided else "spare"
            self.log.add(
                "injected", sent.at_ns, node=message.node, moment=message.moment, how=message.how, step=message.step,
                role=role,
            )  # fmt: skip
        elif isinstance(message, Late):
            self.log.add(
                "late", sent.at_ns, node=self.born.get(message.pid), pid=message.pid, generation=message.generation,
                where=message.where,
            )  # fmt: skip
        elif isinstance(message, Failed):
            raise InvalidInput(f"node {message.node}: {message.sentence}")

    def _hello(self, message: Hello) -> None:
        known = self.nodes.setdefault(message.node, Node(message.pid))
        if other := difference(message.identity, self.identity):
            sentence = (
                f"node {message.node} is not what the supervisor is, in {other}: start all from the same installation, "
                "with the same job and settings"
            )
            self.store.set(f"call/{message.node}", sentence)
            if not self.members:
                raise InvalidInput(sentence)
            self.log.add("refused", node=message.node, why=sentence)
            self.log.warn(f"{sentence}; training goes on without it")
            return
        known.ready = True
        self.log.add("ready", node=message.node, again=message.again)

    def _progress(self, message: Progress, at_ns: int) -> None:
        if message.generation != self.generation:
            return
        self.vain = 0
        self._lost_and_found(message.step, message.loss)
        self.took_us[message.step] = message.took_us
        self.log.add(
            "step", at_ns, step=message.step, loss=message.loss, took_us=message.took_us, nodes=len(self.members)
        )
        watch = self.changes[-1].watch if self.changes else None
        if watch is not None and watch.stepped is None:
            watch.stepped = at_ns
            self.log.add(
                "recovered", at_ns, generation=self.generation, parts_us=watch.parts_us(), stop_us=watch.stop_us()
            )
        for what in self.joins.pop(message.step, ()):
            self._join(what)

    def _lost_and_found(self, step: int, loss: float) -> None:
        """A step may be told twice; with sums in fixed point it is the same each time."""
        before = self.losses.get(step)
        if self.config.canonical and before is not None and before != loss:
            raise BayplanError(f"step {step} counted with a loss of {before!r}, and again with {loss!r}: report this")
        self.losses[step] = loss
        self.children.counted(step, loss)

    def _join(self, what: str) -> None:
        """A stopped process goes on, or a fresh one is started."""
        if what == "fresh":
            self.children.start(self._number())
            return
        stopped = [node for node in self.nodes.values() if node.hung and not node.gone]
        if not stopped:
            raise InvalidInput("no process is stopped, so none can return: stop one before, as in 3@5.forward.stop")
        self.children.resume(stopped[0].pid)
        stopped[0].gone = True  # under this number; it says hello under another

    # A generation ends

    def _look_for_hangs(self) -> None:
        """Members whose heart does not beat, and those that do not leave a generation which has ended."""
        now = time.monotonic()
        for number in self.members:
            node = self.nodes[number]
            if node.gone or node.hung:
                continue
            silent_s = now - float(self.store.get(beat_key(node.pid)))
            late = self.gathering is not None and number not in self.gathering.reports
            if silent_s > self.config.hang_s:
                self._hangs(number, f"node {number} has been silent for {silent_s:.1f} s")
            elif late and self.gathering is not None and now - self.gathering.began_s > self.config.timeout_s:
                self._hangs(number, f"node {number} does not leave generation {self.generation}")

    def _hangs(self, number: int, why: str) -> None:
        self.nodes[number].hung = True
        self.log.add("hung", node=number, why=why)
        self._gather(why, number)

    def _gather(self, why: str, number: int) -> Gathering:
        """Members are to leave the generation and say where they stand."""
        now = time.monotonic_ns()
        if self.gathering is None:
            watch = Stopwatch(failed=self.killed_ns.get(number), known=now)
            self.gathering = Gathering(watch, why, time.monotonic())
            for node in (self.nodes[member] for member in self.members):
                if not node.gone:
                    self.store.queue_push(tell_key(node.pid), f"lost {self.generation}")
            self.store.set(f"end/{self.generation}", AGAIN.decode())
            self.log.add("lost", now, generation=self.generation, why=why)
        elif self.gathering.watch.failed is None:  # others had noticed before we did
            self.gathering.watch.failed = self.killed_ns.get(number)
        return self.gathering

    def _reported(self, message: Report, at_ns: int) -> None:
        if message.generation != self.generation or message.node not in self.members or self.nodes[message.node].hung:
            return
        gathering = self.gathering
        if gathering is None:
            joining = self.pausing and not message.why
            why = "" if joining else f"node {message.node} has lost its peers ({message.why})"
            gathering = self._gather(why, message.node)
            if joining:
                gathering.watch.failed = gathering.watch.known
        gathering.reports[message.node] = message
        self.log.add("left", at_ns, node=message.node, generation=message.generation, step=message.step)
        for step, loss in message.losses.items():
            self._lost_and_found(step, loss)

    def _go_on(self) -> None:
        """Calls the next generation once all members have reported or are gone, or asks for one when nodes wait."""
        if self.gathering is None:
            self._pause_for_joiners()
            return
        left = [number for number in self.members if not (self.nodes[number].gone or self.nodes[number].hung)]
        if any(number not in self.gathering.reports for number in left):
            return
        gathering, self.gathering, self.pausing = self.gathering, None, False
        gathering.watch.stopped = time.monotonic_ns()
        reports = [gathering.reports[number] for number in left]
        if self.decided is not None and reports and all(report.arrived for report in reports):
            self.settled, self.base = self.decided.layout, self.generation
        self.step = max((report.step for report in reports), default=self.step)
        nodes = sorted({*left, *self._waiting()})
        if not nodes:
            raise InvalidInput(f"no process is left ({gathering.why}): start with more nodes")
        self._call(self._decide(nodes), nodes, gathering.watch, gathering.why)

    def _decide(self, nodes: Collection[int]) -> Decided:
        """From the layers that are there for sure; anew while the first ones, or those of a checkpoint, are not."""
        cut_short = self.decided is not None and bool(self.decided.restored) and self.settled is not self.decided.layout
        if cut_short or not self.settled.pipelines:
            return self.planning.anew(nodes, "the layers were not all there yet")
        return self.planning.decide(self.settled, nodes)

    def _waiting(self) -> list[int]:
        return [number for number, node in self.nodes.items() if node.ready and not node.gone]

    def _pause_for_joiners(self) -> None:
        """Nodes that wait are let in after the next step; those that the plan has no stage for stand by as members."""
        waiting = self._waiting()
        stepped = not self.changes or self.changes[-1].watch.stepped is not None
        if waiting and stepped and not self.pausing and not self.done:
            self.pausing = True
            for member in self.members:
                self.store.queue_push(tell_key(self.nodes[member].pid), f"pause {self.generation}")
            self.log.add("join", nodes=waiting)

    # The next generation

    def _call(self, decided: Decided, nodes: list[int], watch: Stopwatch, why: str) -> None:
        """Tells the nodes what they do; those that are left out are given new numbers, should they return."""
        before, number = self.members, self.generation + 1
        first = not before
        restored = self._restored(decided.restored) if decided.restored else ""
        back, self.checkpoint = self.checkpoint, None
        runs = decided.layout.runs()
        for node in nodes:
            plan = Generation(
                number=number, members=tuple(nodes), base=self.base, step=self.step, layers=runs.get(node),
                groups=dict(decided.groups), moves=decided.moves, fresh=first or bool(restored),
                shapes=self.shapes, actions=decided.walks.get(node, ()), checkpoint=str(back.path) if back else "",
            )  # fmt: skip
            self.store.set(f"plan/{number}/{node}", msgspec.json.encode(plan).decode())
        self.store.set(f"members/{number}", msgspec.json.encode(nodes).decode())
        joined = [node for node in nodes if self.nodes[node].ready]
        for node in joined:
            self.nodes[node].ready = False
            self.store.set(f"call/{node}", str(number))
        lost = [node for node in before if node not in nodes]
        self._require_use(why, changed=bool(lost or joined))
        if watch.failed is None and lost:  # None stays where nobody told
            watch.failed = min((self.killed_ns[node] for node in lost if node in self.killed_ns), default=None)
        for node in nodes:
            self.killed_ns.pop(node, None)  # whoever goes on has not failed: an answer lost on purpose is over
        for node in lost:
            if self.nodes[node].hung:
                self.store.set(f"renamed/{node}", str(self._number()))
        watch.decided = time.monotonic_ns()
        self.generation, self.members, self.decided = number, tuple(nodes), decided
        self.sizes.append(len(nodes))
        self.done = {}
        if not first:
            change = Change(
                number, self.step, len(nodes), tuple(lost), tuple(joined), len(decided.moves),
                decided.layout.text(), why, restored, watch,
            )  # fmt: skip
            self.changes.append(change)
        watch.waiting = {"grouped": set(nodes), "transferred": set(nodes)}
        self.watch = watch
        self.log.add(
            "generation", watch.decided, number=number, nodes=nodes, layout=decided.layout.text(), step=self.step,
            lost=lost, joined=joined, moved=len(decided.moves), restored=restored,
            pipelines=msgspec.to_builtins(decided.layout.pipelines), failed=sorted(decided.layout.failed),
            moves=[[one.layer, one.source, one.target] for one in decided.moves],
        )  # fmt: skip

    def _require_use(self, why: str, *, changed: bool) -> None:
        """Refuse to go on where the same nodes meet again and again, and none of their steps counts."""
        self.vain = 0 if changed else self.vain + 1
        if self.vain > MOST_VAIN:
            raise InvalidInput(
                f"generations ended {self.vain} times without a step though nobody has ended ({why}): give more than "
                f"timeout_s={self.config.timeout_s:g}"
            )

    def _restored(self, reason: str) -> str:
        """Peers cannot give all layers, so all layers go back to one step: an optimizer's steps must agree."""
        found = self.keeper.go_back(self.step)
        if found is not None:
            self._go_back(found)
            return f"{reason}; all layers go back to the checkpoint before step {self.step}"
        self.step = 0
        self.losses.clear()
        return f"{reason}; there is no checkpoint, so training begins anew"

    def _go_back(self, checkpoint: Checkpoint) -> None:
        self.checkpoint, self.step = checkpoint, checkpoint.manifest.step
        self.losses = dict(enumerate(checkpoint.manifest.losses))
        for step, loss in self.losses.items():
            self.children.counted(step, loss)

    def _reached(self, message: Reached, at_ns: int) -> None:
        if message.generation != self.generation:
            return
        left = self.watch.waiting[message.what]
        left.discard(message.node)
        self.watch.received_bytes += message.received_bytes
        received = {"received_bytes": message.received_bytes} if message.what == "transferred" else {}
        self.log.add(message.what, at_ns, node=message.node, generation=message.generation, **received)
        if left:
            return
        if message.what == "grouped":
            self.watch.grouped = at_ns
            return
        self.watch.transferred = at_ns
        assert self.decided is not None
        self.settled, self.base = self.decided.layout, self.generation
        self.ahead.want(self.decided.layout, len(self.members))

    def _outcome(self) -> Outcome:
        steps, held = range(self.config.steps), dict[int, set[str]]()
        for done in self.done.values():
            for layer, digest in done.digests.items():
                held.setdefault(layer, set()).add(digest)
        return Outcome(
            losses=tuple(self.losses[step] for step in steps),
            digests=tuple(min(held[layer]) for layer in sorted(held)),
            replicas_equal=all(len(found) == 1 for found in held.values()),
            nodes=tuple(self.sizes),
            recoveries=tuple(change.recovery() for change in self.changes),
            step_us=tuple(self.took_us[step] for step in steps if step in self.took_us),
            events=tuple(self.log.events),
            warnings=tuple(self.log.warnings),
            resumed=self.resumed,
        )


def _how(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"exit code {status}"
