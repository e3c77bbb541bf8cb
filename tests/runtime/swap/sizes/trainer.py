"""The Trainer of transformers on texts that its collator pads to the longest of each batch, two batches a step."""

import os
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from importlib import import_module
from typing import Any

import torch
import transformers

from runtime.device import clock, memory_stats, reset_peak_memory
from runtime.swap import SessionReport, session
from runtime.swap.report import IterationSummary, SessionCounts
from tests.runtime.swap.models.language import ENDS, bert
from tests.runtime.swap.models.program import Program, Record, record
from tests.runtime.swap.sizes.programs import VOCABULARY, lengths_of
from tests.runtime.swap.sizes.trials import LATE, SHARE, STEPS, Trial, ready

ROWS = 8


def trainer(device: torch.device, told: Callable[[int], None]) -> Any:
    """A Trainer, which says when it has done a step."""
    os.environ["ACCELERATE_TORCH_DEVICE"] = str(device)
    import_module("accelerate.state").AcceleratorState._reset_state(reset_partial_state=True)
    draw = torch.Generator().manual_seed(7)
    texts = [torch.randint(2, VOCABULARY, (length,), generator=draw) for length in lengths_of(2 * ROWS * STEPS, draw)]

    def padded(batch: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        own = [one["input_ids"] for one in batch]
        ids = torch.nn.utils.rnn.pad_sequence(own, batch_first=True, padding_value=ENDS["pad_token_id"])
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(text) for text in own], batch_first=True)
        return {"input_ids": ids, "attention_mask": mask, "labels": ids}

    class Steps(transformers.TrainerCallback):  # type: ignore[misc]
        """Counts."""

        def on_step_end(self, _: Any, state: Any, control: Any, **__: Any) -> None:
            told(state.global_step)

    torch.manual_seed(0)
    arguments = transformers.TrainingArguments(
        output_dir=tempfile.gettempdir(), per_device_train_batch_size=ROWS, gradient_accumulation_steps=2,
        max_steps=STEPS, learning_rate=1e-3, report_to=[], save_strategy="no", logging_steps=1, disable_tqdm=True,
        seed=3, optim="adamw_torch",
    )  # fmt: skip
    made = transformers.Trainer(
        model=bert("sdpa").to(device),
        args=arguments,
        data_collator=padded,
        train_dataset=[{"input_ids": text} for text in texts],
        callbacks=[Steps()],
    )
    made.remove_callback(transformers.PrinterCallback)
    return made


def run(budget: int | None) -> tuple[Record, float, int, list[IterationSummary], SessionReport | None]:
    """What training leaves, the time of its last steps, the device's peak, and what a session tells."""
    device = ready(launches=True)
    at: dict[int, int] = {}
    now = clock(device)
    training = trainer(device, lambda step: at.update({step: now()}))
    reset_peak_memory(device)
    seen: list[IterationSummary] = []
    report = None
    with nullcontext() if budget is None else session(budget, device=device, watch=seen.append) as swapping:
        training.train()
        if swapping is not None:
            report = swapping.report()
    late_us = (at[STEPS] - at[STEPS - LATE]) / 1000
    losses = [torch.tensor(one["loss"]) for one in training.state.log_history if "loss" in one]
    model, optimizer = training.model, training.optimizer.optimizer
    left = record(Program(model, optimizer, lambda: losses[-1]), losses)
    return left, late_us, memory_stats(device).peak_bytes, seen, report


def attempt(share: float = SHARE) -> Trial:
    """As `trials.attempt`."""
    plain, plain_us, peak, _, _ = run(None)
    left, late_us, held, seen, report = run(int(share * peak))
    return Trial(
        program="hf-trainer",
        budget_bytes=int(share * peak),
        peak_bytes=held,
        counts=sum((ran.counts for ran in seen[-LATE:]), SessionCounts()),
        slower=late_us / plain_us,
        equal=not left.differences(plain),
        report=report,
    )
