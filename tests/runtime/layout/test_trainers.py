"""Loops of trainers: HF Trainer, Accelerate and Lightning, where they are installed; every bit is plain training's."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader

from runtime.device import SimDevice
from runtime.layout import report, unwrap, wrap
from solvers.ir.layout import LayoutPlan
from tests.runtime.layout.models import Language, batch
from tests.runtime.layout.training import ROOM, Layouts, Trained, adamw, trained


@pytest.fixture
def on_sim(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accelerate finds the device that it is told."""
    state = pytest.importorskip("accelerate.state")
    monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", "sim:0")
    state.AcceleratorState._reset_state(reset_partial_state=True)


def rows() -> Any:
    """Samples in a fixed order."""
    return DataLoader([tuple(part[0] for part in batch(number, samples=1)) for number in range(24)], batch_size=4)  # type: ignore[arg-type]


def decaying(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))


def prepared(layouts: Layouts | None) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A model wholly on the device, or wrapped with nothing persistent."""
    if layouts is None:
        torch.manual_seed(0)
        model: nn.Module = Language(tied=True).to("sim")
        torch.manual_seed(1)
        return model, adamw(list(model.parameters()))
    plan = layouts.random_plan(3)
    return layouts.wrapped(LayoutPlan(persistent=(), buffers=len(layouts.problem.chunks), policies=plan.policies))


def accelerated(layouts: Layouts | None, clip: float) -> Trained:
    accelerate: Any = pytest.importorskip("accelerate")

    accelerator = accelerate.Accelerator(gradient_accumulation_steps=2)
    own, inner = prepared(layouts)
    model, optimizer, scheduler, data = accelerator.prepare(own, inner, decaying(inner), rows())
    losses = []
    for inputs, targets in data:
        with accelerator.accumulate(model):
            loss = functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
            accelerator.backward(loss)
            if accelerator.sync_gradients and clip:
                losses.append(accelerator.clip_grad_norm_(model.parameters(), clip).cpu())
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            losses.append(loss.detach().cpu())
    done = trained(own, losses)
    if layouts is not None:
        unwrap(own)
    return done


@pytest.mark.parametrize("clip", [0.0, 0.05])
def test_accelerate(sim: SimDevice, on_sim: None, clip: float) -> None:
    assert accelerated(Layouts(lambda: Language(tied=True)), clip).same_as(accelerated(None, clip))


@pytest.mark.parametrize("options", [{}, {"max_grad_norm": 0.0}, {"gradient_accumulation_steps": 2}])
def test_hf_trainer(sim: SimDevice, on_sim: None, tmp_path: Any, options: dict[str, Any]) -> None:
    """`optimizers=` is the wrapped one; the trainer asks forward for its arguments, and moves the model."""
    transformers = pytest.importorskip("transformers")
    samples = [{"input_ids": one, "labels": one} for one in batch(0, samples=16)[0]]

    def run(wrapped: bool) -> Trained:
        shape = transformers.GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=3, n_head=2)
        torch.manual_seed(0)
        model: Any = transformers.GPT2LMHeadModel(shape)
        optimizer = adamw(list(model.parameters() if wrapped else model.to("sim").parameters()))
        if wrapped:
            wrap(model, optimizer, budget="2MiB", host_budget=ROOM, solver="zero3-offload", device="sim:0")
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path), per_device_train_batch_size=2, max_steps=4, logging_steps=1, report_to=[],
            save_strategy="no", disable_tqdm=True, **options,
        )  # fmt: skip
        trainer = transformers.Trainer(
            model=model, args=arguments, train_dataset=samples, optimizers=(optimizer, decaying(optimizer))
        )
        trainer.train()
        told = [(one["loss"], one["grad_norm"]) for one in trainer.state.log_history if "loss" in one]
        done = trained(model, [torch.tensor(pair) for pair in told])
        if wrapped:
            assert report(model).departures == 0 and not report(model).plan.persistent
            unwrap(model)
        return done

    assert run(True).same_as(run(False))


@pytest.mark.parametrize("options", [{}, {"accumulate_grad_batches": 2}, {"gradient_clip_val": 0.05}])
def test_lightning(sim: SimDevice, options: dict[str, Any]) -> None:
    """At its end the trainer moves everything to the host: the module gives the model back before."""
    lightning = pytest.importorskip("lightning")

    class Sim(lightning.pytorch.accelerators.Accelerator):  # type: ignore[misc, name-defined]
        """The simulated device, as Lightning asks for one."""

        def setup_device(self, device: torch.device) -> None: ...

        def teardown(self) -> None: ...

        @staticmethod
        def parse_devices(devices: object) -> list[torch.device]:
            return [sim.device]

        get_parallel_devices = parse_devices

        @staticmethod
        def auto_device_count() -> int:
            return 1

        @staticmethod
        def is_available() -> bool:
            return True

        @staticmethod
        def name() -> str:
            return "sim"

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        """Holds a model, wrapped or not."""

        def __init__(self, layouts: Layouts | None) -> None:
            super().__init__()
            self.inner, self.optimizer = prepared(layouts)
            self.wrapped, self.losses, self.done = layouts is not None, list[Tensor](), list[Trained]()

        def training_step(self, rows: Any, number: int) -> Tensor:
            inputs, targets = rows
            loss = functional.cross_entropy(self.inner(inputs).flatten(0, 1), targets.flatten())
            self.losses.append(loss.detach().cpu())
            return loss

        def configure_optimizers(self) -> Any:
            schedule = {"scheduler": decaying(self.optimizer), "interval": "step"}
            return {"optimizer": self.optimizer, "lr_scheduler": schedule}

        def on_train_end(self) -> None:
            self.done.append(trained(self.inner, self.losses))
            if self.wrapped:
                unwrap(self.inner)

    def run(layouts: Layouts | None) -> Trained:
        module = Module(layouts)
        strategy = lightning.pytorch.strategies.SingleDeviceStrategy(device=sim.device)
        quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
        trainer = lightning.Trainer(accelerator=Sim(), strategy=strategy, devices=1, max_epochs=1, **quiet, **options)
        trainer.fit(module, rows())
        (done,) = module.done
        assert isinstance(done, Trained)
        return done

    assert run(Layouts(lambda: Language(tied=True))).same_as(run(None))
