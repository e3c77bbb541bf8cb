"""Models of transformers, cut into layers: losses are the whole model's, with its weights and with its optimizer."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from runtime.elastic import Options, from_transformers, load_job, parse_kills, plain_names, train, train_alone
from runtime.elastic.layer import Layer
from runtime.elastic.parts import plain
from solvers.ir import InvalidInput

pytest.importorskip("transformers")

VOCABULARY, MICROBATCHES, STEPS = 29, 3, 4
ADAM = partial(torch.optim.AdamW, lr=1e-2)


def gpt2(**more: Any) -> Any:
    from transformers import GPT2Config

    return GPT2Config(
        n_layer=3, n_embd=16, n_head=2, vocab_size=VOCABULARY, n_positions=12, bos_token_id=0, eos_token_id=0,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **{"tie_word_embeddings": False, **more},
    )  # fmt: skip


def llama(**more: Any) -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        num_hidden_layers=3, hidden_size=16, num_attention_heads=4, num_key_value_heads=2, intermediate_size=24,
        vocab_size=VOCABULARY, max_position_embeddings=12, bos_token_id=0, eos_token_id=0, **more,
    )  # fmt: skip


def batches(step: int, microbatch: int) -> tuple[Tensor, Tensor]:
    """Two rows of ten tokens; labels are the tokens, which the library's loss shifts."""
    found = (torch.arange(20).view(2, 10) * (3 + microbatch) + 5 * step) % VOCABULARY
    return found, found


@pytest.mark.parametrize("make", [gpt2, llama])
def test_losses_are_those_of_the_whole_model(make: Callable[[], Any]) -> None:
    from transformers import AutoModelForCausalLM

    config = make()
    torch.manual_seed(1)
    whole = AutoModelForCausalLM.from_config(config)
    weights = {name: value.clone() for name, value in whole.state_dict().items()}
    job = from_transformers(config, batches, ADAM, microbatches=MICROBATCHES, weights=weights)
    assert len(job.layers) == 3
    optimizer, expected = ADAM(whole.parameters()), []
    for step in range(STEPS):
        total = 0.0
        for microbatch in range(MICROBATCHES):
            tokens, labels = batches(step, microbatch)
            loss = whole(input_ids=tokens, labels=labels, use_cache=False).loss / MICROBATCHES
            loss.backward()
            total += float(loss.detach())
        optimizer.step()
        optimizer.zero_grad()
        expected.append(total)
    found = train_alone(job, STEPS).losses
    assert found == pytest.approx(expected, rel=2e-5)
    assert found[-1] < found[0]


@pytest.mark.parametrize("make", [gpt2, llama])
def test_names_lead_back_to_the_whole_model(make: Callable[[], Any]) -> None:
    from transformers import AutoModelForCausalLM

    config = make()
    job = from_transformers(config, batches, ADAM, microbatches=1, seed=4)
    state = plain([Layer(job, number, canonical=False) for number in range(len(job.layers))])["model"]
    names = plain_names(config)
    assert sorted(names.values()) == sorted(state)
    whole = AutoModelForCausalLM.from_config(config)
    whole.load_state_dict({name: state[own] for name, own in names.items()})
    tokens, labels = batches(0, 0)
    found = whole(input_ids=tokens, labels=labels).loss
    assert float(found.detach()) == pytest.approx(train_alone(job, 1).losses[0], rel=1e-5)


def test_first_weights_are_drawn_as_the_library_draws_them() -> None:
    """GPT-2's projections back into the residual stream begin smaller, by the root of twice the blocks."""
    config = gpt2(initializer_range=0.5)
    layer = Layer(from_transformers(config, batches, ADAM, microbatches=1), 1, canonical=False).module
    inward, back = layer.get_parameter("block.mlp.c_fc.weight"), layer.get_parameter("block.mlp.c_proj.weight")
    assert float(inward.detach().std()) == pytest.approx(0.5, rel=0.1)
    assert float(back.detach().std()) == pytest.approx(0.5 / 6**0.5, rel=0.1)
    assert float(layer.get_parameter("block.ln_1.weight").detach().min()) == 1.0
    assert not layer.get_parameter("block.mlp.c_fc.bias").any()


def test_what_cannot_be_cut_is_refused() -> None:
    from transformers import BertConfig

    with pytest.raises(InvalidInput, match=r"^the gpt2's embeddings are its head, too, but layers share no parameters"):
        from_transformers(gpt2(tie_word_embeddings=True), batches, ADAM, microbatches=1)
    with pytest.raises(InvalidInput, match=r"^the model is a bert, but layers are cut of gpt2 and llama only"):
        from_transformers(BertConfig(), batches, ADAM, microbatches=1)
    with pytest.raises(InvalidInput, match=r"^the weights lack transformer.wte.weight and \d+ more of \d+: give"):
        from_transformers(gpt2(), batches, ADAM, microbatches=1, weights={})


@pytest.mark.soak
def test_a_llama_goes_on_when_a_process_is_killed(tmp_path: Path) -> None:
    """4 processes, then 3, and 2 after it was resumed from a checkpoint: every bit as in one process."""
    name = "tests.runtime.elastic.jobs:tiny_llama"
    injections, joins = parse_kills("1@2.backward")
    options = Options(
        canonical=True, injections=injections, joins=joins, hang_s=60, timeout_s=60, checkpoint_dir=tmp_path,
        checkpoint_every=3,
    )  # fmt: skip
    outcome = train(name, nodes=4, steps=6, pipeline=2, options=options)
    alone = train_alone(load_job(name, torch.device("cpu")), 8)
    assert outcome.losses == alone.losses[:6]
    assert outcome.nodes[:2] == (4, 3)
    resumed = train(name, nodes=2, steps=8, pipeline=2, options=Options(
        canonical=True, hang_s=60, timeout_s=60, checkpoint_dir=tmp_path, resume=True
    ))  # fmt: skip
    assert (resumed.losses, resumed.digests) == (alone.losses, alone.digests)
