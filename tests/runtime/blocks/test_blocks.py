"""Blocks are found by structure, wherever the model keeps them."""

import pytest
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from runtime.blocks.blocks import find_parts
from runtime.profile.memory import find_blocks
from solvers.ir.errors import InvalidInput
from tests.runtime.profile.memory.models import Masked, chain, rectified


def test_layers_of_a_list() -> None:
    assert list(find_blocks(Masked(3, 8))) == ["layers.0", "layers.1", "layers.2"]


def test_alike_children_among_others_of_a_sequence() -> None:
    assert list(find_blocks(chain(3))) == ["1", "2", "3"]


def test_composed_blocks_win_over_bare_layers_of_an_outer_sequence() -> None:
    assert list(find_blocks(rectified(2))) == ["1.0", "1.1"]  # and not the two linear layers around them


def test_bare_layers_are_blocks_where_nothing_larger_repeats() -> None:
    assert list(find_blocks(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU()))) == ["0", "2"]


def test_parametrized_layers_are_alike() -> None:
    layers = [nn.Sequential(weight_norm(nn.Linear(4, 4)), nn.Tanh()) for _ in range(2)]
    assert list(find_blocks(nn.Sequential(*layers, nn.Linear(4, 1)))) == ["0", "1"]


def test_sequences_of_different_inside_are_not_alike() -> None:
    one = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.LayerNorm(4))
    other = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 4))
    with pytest.raises(InvalidInput, match="has no repeated blocks: put layers"):
        find_blocks(nn.Sequential(one, other))


def test_stages_of_a_network_give_all_their_blocks() -> None:
    stages = nn.ModuleList(nn.ModuleList(chain(1)[1] for _ in range(count)) for count in (2, 3))  # type: ignore[index]
    assert list(find_blocks(stages)) == ["0.0", "0.1", "1.0", "1.1", "1.2"]


def test_hugging_face_models_need_nothing() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=2, n_embd=8, n_head=2, vocab_size=10, n_positions=8)
    assert list(find_blocks(transformers.GPT2LMHeadModel(config))) == ["transformer.h.0", "transformer.h.1"]
    config = transformers.T5Config(
        num_layers=2, d_model=8, num_heads=2, d_kv=4, d_ff=8, vocab_size=10, decoder_start_token_id=0
    )
    assert list(find_blocks(transformers.T5ForConditionalGeneration(config))) == [
        "encoder.block.0",
        "encoder.block.1",
        "decoder.block.0",
        "decoder.block.1",
    ]


def test_a_model_without_blocks_is_refused_in_a_sentence() -> None:
    with pytest.raises(InvalidInput, match="Linear has no repeated blocks"):
        find_blocks(nn.Linear(3, 3))


def test_where_nothing_repeats_plans_of_the_whole_step_take_the_models_parts() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
            self.ways = nn.ModuleDict({"a": nn.Linear(8, 4), "b": nn.GRU(8, 4)})
            self.pool = nn.AvgPool2d(2)

    assert list(find_parts(Net())) == ["down", "ways.a", "ways.b"]
    assert list(find_parts(nn.Sequential(Net()))) == ["0.down", "0.ways.a", "0.ways.b"]
    assert list(find_parts(Masked(3, 8))) == ["layers.0", "layers.1", "layers.2"]
    with pytest.raises(InvalidInput, match="Linear has no repeated blocks"):
        find_parts(nn.Linear(3, 3))


def test_of_dictionaries_of_modules_the_modules_are_blocks() -> None:
    """A dictionary is never called: a session about it would see no operator."""
    layers = nn.ModuleList(
        nn.ModuleDict({"attention": nn.MultiheadAttention(8, 2), "ways": nn.Sequential(nn.Linear(8, 8), nn.GELU())})
        for _ in range(2)
    )
    assert list(find_blocks(layers)) == ["0.attention", "0.ways", "1.attention", "1.ways"]
