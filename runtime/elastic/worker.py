"""A worker: meets the others, receives layers, trains, and meets anew when the supervisor says so."""

import gc
import os
import sys
import time
import warnings
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path

import msgspec
import torch

from runtime.elastic.faults import JobFault, PeerLost, SupervisorLost, TurnedAway
from runtime.elastic.groups import Groups
from runtime.elastic.identity import identity_of
from runtime.elastic.job import ElasticJob, load_job
from runtime.elastic.layer import Layer
from runtime.elastic.messages import (
    GENERATION,
    Config,
    Done,
    Failed,
    Generation,
    Hello,
    Progress,
    Reached,
    Report,
)
from runtime.elastic.moments import Moments
from runtime.elastic.parts import PartWriter, load_layers
from runtime.elastic.sockets import Sockets
from runtime.elastic.store import Line
from runtime.elastic.sums import from_fixed
from runtime.elastic.transfer import Exchange, made_for
from runtime.elastic.walk import BEHIND, ENDING, LEAVING, LOSS, Held, Walk
from runtime.elastic.watching import LEFT_ALONE, Watch
from solvers.ir.errors import BayplanError

REMEMBERED = 256
"""Losses of so many last steps are told when a generation ends, and kept with parts of checkpoints.

Neighbours are at most one step apart, but a supervisor that waits for a core may be many short steps behind: if it goes
then, the parts are a checkpoint only with the losses that it never heard.
"""
FAULT = 2
BYE, AGAIN = b"bye", b"again"
"""How a generation whose last step has counted ends: for good, or because somebody has not heard that."""


class Worker:
    """One node's process: its layers, the step before which it stands, and the generation whose layers these are."""

    def __init__(self, config: Config, node: int) -> None:
        torch.set_num_threads(1)
        self.config, self.node = config, node
        self.job: ElasticJob = load_job(config.job, torch.device("cpu"))
        self.identity = identity_of(config.job, self.job, config.canonical)
        self.line = Line(config.host, config.port, config.timeout_s)
        self.sockets = Sockets()
        self.groups = Groups(config.host, config.port, config.timeout_s, self.sockets)
        self.moments = Moments(node, config.injections, self.line.tell)
        self.watch = Watch(config, self.sockets, self.line)
        self.parts: PartWriter | None = None
        if config.saving is not None:
            self.parts = PartWriter(Path(config.saving.folder), node, config.timeout_s / 2, self.line.tell)
        self.layers: dict[int, Layer] = {}
        self.coming: dict[int, Layer] = {}
        self.base, self.reached = -1, -1  # the generations of `layers`, and of `coming` once all of them are there
        self.step, self.final = 0, False
        self.losses: dict[int, float] = {}

    def run(self) -> None:
        """Until the training is over; raises `JobFault` or `SupervisorLost`."""
        number = self._greet(None)
        while True:
            plan = self._plan(number)
            if plan is None:
                number = self._left_behind()
                continue
            try:
                over, why = self._generation(plan), ""
            except PeerLost as error:
                over, why = False, str(error)
            self._leave(broken=bool(why))
            if over:
                return
            self.line.tell(self._report(plan, why))
            number = plan.number + 1

    def _greet(self, before: int | None) -> int:
        """Says hello; returns the generation that this process is called to."""
        self.line.tell(Hello(node=self.node, pid=os.getpid(), identity=self.identity, again=before))
        called = self.line.read(f"call/{self.node}").decode()
        if not called.isdecimal():
            raise TurnedAway(called)
        return int(called)

    def _plan(self, number: int) -> Generation | None:
        """What this node does in a generation; None: the others have gone on without it."""
        members = msgspec.json.decode(self.line.read(f"members/{number}"), type=list[int])
        if self.node not in members:
            return None
        return GENERATION.decode(self.line.read(f"plan/{number}/{self.node}"))

    def _left_behind(self) -> int:
        """Comes back as a new node, with nothing."""
        before = self.node
        self.layers, self.coming, self.base, self.reached, self.final = {}, {}, -1, -1, False
        self.node = int(self.line.read(f"renamed/{before}"))
        self.moments = Moments(self.node, self.config.injections, self.line.tell)
        if self.parts:
            self.parts.node = self.node
        return self._greet(before)

    def _report(self, plan: Generation, why: str) -> Report:
        return Report(
            node=self.node, generation=plan.number, step=self.step, final=self.final,
            arrived=self.reached == plan.number or self.base == plan.number, why=why, losses=self.losses,
        )  # fmt: skip

    def _leave(self, *, broken: bool) -> None:
        self.groups.close(broken=broken)
        gc.collect()  # what an error still refers to would keep connections open

    def _generation(self, plan: Generation) -> bool:
        """Whether the training is over after it; False: meet anew. Raises `PeerLost`."""
        self._settle_before(plan)
        self.moments.at("regroup", plan.step)
        self.groups.open(plan.number, self.node, plan.members, plan.groups)
        self.line.tell(Reached(node=self.node, generation=plan.number, what="grouped"))
        self._receive(plan)
        if plan.step == self.config.steps:  # its last checkpoint, of which a part may have gone with somebody
            self._save(plan, ending=False)
        held = Held(self.job, self.layers, self.groups, plan.groups, plan.shapes, self.moments)
        while self.step < self.config.steps:
            if self._train(plan, held):
                return False
        if self.parts:
            self.parts.wait()
        digests = {number: layer.digest() for number, layer in self.layers.items()}
        self.line.tell(Done(node=self.node, generation=plan.number, digests=digests))
        return self.line.read(f"end/{plan.number}") == BYE

    def _settle_before(self, plan: Generation) -> None:
        """Comes to the layers and the step that the generation goes on with."""
        if plan.base == self.reached:
            self._take(self.coming, plan.base)
        self.coming, self.reached = {}, -1
        if plan.fresh:
            self.layers, self.final = {}, False
        elif self.final and self.step == plan.step - 1:
            self._update()  # the vote has counted for others: all gradients are final
        if self.layers and self.step != plan.step:
            raise JobFault(
                f"node {self.node} stands before step {self.step}, generation {plan.number} before step {plan.step}: "
                "report this"
            )
        for layer in self.layers.values():
            layer.forget()
        self.step, self.final = plan.step, False

    def _receive(self, plan: Generation) -> None:
        """Layers from peers; once everybody has theirs, those that are no longer this node's go."""
        own = range(*plan.layers) if plan.layers else range(0)
        if plan.fresh:
            self.layers = {number: Layer(self.job, number, self.config.canonical) for number in own}
            if plan.checkpoint:
                load_layers(Path(plan.checkpoint), self.layers)
        fresh = made_for(self.job, plan.moves, self.node, self.config.canonical)
        exchange = Exchange(self.node, self.layers, self.groups, self.moments)
        received = exchange.run(plan.moves, fresh, plan.step)
        self.coming = {number: fresh[number] if number in fresh else self.layers[number] for number in own}
        self.reached = plan.number
        self.groups.wait(self.groups.add_up(torch.ones(1)))
        self._take(self.coming, plan.number)
        self.line.tell(Reached(node=self.node, generation=plan.number, what="transferred", received_bytes=received))

    def _take(self, layers: dict[int, Layer], number: int) -> None:
        self.layers, self.coming, self.base, self.reached = layers, {}, number, -1

    def _train(self, plan: Generation, held: Held) -> bool:
        """A step; whether all are to meet anew after it."""
        began = time.perf_counter()
        held.layers = self.layers
        walk = Walk(held, self.step)
        walk.gradients(plan.actions)
        self.final = True
        self.moments.at("vote", self.step)
        walk.vote[LEAVING] = int(self.watch.paused >= plan.number)
        walk.vote[ENDING] = int(self.watch.ending)
        self.groups.wait(self.groups.add_up(walk.vote))
        self.moments.at("unheard", self.step)
        loss = self._counted(walk)
        self.moments.at("update", self.step)
        self._update()
        took_us = round((time.perf_counter() - began) * 1e6)
        if self.node == plan.members[0]:
            self._tell_progress(plan, loss, took_us)
        self._save(plan, ending=bool(walk.vote[ENDING]))
        return bool(walk.vote[LEAVING])

    def _tell_progress(self, plan: Generation, loss: float, took_us: int) -> None:
        news = Progress(node=self.node, generation=plan.number, step=self.step - 1, loss=loss, took_us=took_us)
        try:
            self.line.tell(news)
        except SupervisorLost:
            if self.config.saving is None or not self.config.saving.on_exit:
                raise  # else the next vote says that all save and end

    def _save(self, plan: Generation, *, ending: bool) -> None:
        """A part of a checkpoint, where one is due; raises `SupervisorLost` where it was to be the last."""
        saving = self.config.saving
        if saving is None or self.parts is None:
            return
        if ending or self.step == self.config.steps or (saving.every and self.step % saving.every == 0):
            mine = [layer for number, layer in self.layers.items() if self._saves(plan, number)]
            self.parts.save(mine, self.step, plan.number, self.losses, partial(self._is_over, plan.number))
        if ending:
            self.parts.wait()
            raise SupervisorLost(f"the training was ended from outside; step {self.step - 1} was the last")

    def _is_over(self, number: int) -> bool:
        """Whether a generation has ended, so that nothing of it is to be waited for; never once all are to save."""
        return self.sockets.is_lost(number) and not self.watch.ending

    def _saves(self, plan: Generation, layer: int) -> bool:
        """Of those that have a layer, one saves it; which one changes from layer to layer."""
        owners = plan.groups.get(layer, (self.node,))
        return owners[layer % len(owners)] == self.node

    def _counted(self, walk: Walk) -> float:
        """The step's loss, once every microbatch has counted exactly once."""
        counts = walk.vote[BEHIND:].tolist()
        wrong = [f"{number} {count} times" for number, count in enumerate(counts) if count != 1]
        if wrong:
            raise JobFault(f"in step {walk.step} not every microbatch counted once ({', '.join(wrong)}): report this")
        loss = float(from_fixed(walk.vote[LOSS], self.job.microbatches))
        self.losses[walk.step] = loss
        self.losses = {step: old for step, old in self.losses.items() if step > walk.step - REMEMBERED}
        return loss

    def _update(self) -> None:
        for layer in self.layers.values():
            layer.update()
        self.step, self.final = self.step + 1, False


def preload(config: Config) -> None:
    """Imports what forked workers will need; nothing of torch may run before they are forked."""
    import_module("torch._dynamo")  # which the first optimizer imports, in seconds
    import_module(config.job.partition(":")[0])
    if config.saving is not None:
        import_module("torch.distributed.checkpoint")
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # as is meant: each saves its own
    gc.collect()
    gc.freeze()  # what has been imported is not garbage: a worker looks through the rest only, in milliseconds


def work(config: Config, node: int) -> int:
    """Runs a worker; the exit code. What goes wrong is a sentence on stderr, and told to the supervisor if it lives."""
    worker: Worker | None = None
    try:
        worker = Worker(config, node)
        worker.run()
    except SupervisorLost as error:
        print(f"node {node}: {error}", file=sys.stderr)
        return LEFT_ALONE
    except TurnedAway as error:
        print(error, file=sys.stderr)
        return FAULT
    except Exception as error:
        sentence = str(error) if isinstance(error, BayplanError) else f"{type(error).__name__}: {error}"
        print(f"node {node}: {sentence}", file=sys.stderr)
        if worker is not None:
            with suppress(SupervisorLost):
                worker.line.tell(Failed(node=node, sentence=sentence))
        return FAULT
    return 0
