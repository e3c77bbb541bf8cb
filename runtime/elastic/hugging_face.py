"""GPT-2 and Llama of the library transformers as elastic jobs: its own blocks, cut between any two of them.

The first layer has the embeddings in front of its block, the last one has norm and head behind. Between layers travel
hidden states of shape (microbatch, sequence, hidden); positions, rotary angles and the causal mask are made in each
layer from the shape of what it gets.
"""

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from runtime.elastic.job import ElasticJob
from solvers.ir.errors import InvalidInput


class Family(NamedTuple):
    """Where a kind of model keeps its parts: in `base`; `tables` make hidden states of tokens."""

    base: str
    tables: tuple[str, ...]
    blocks: str
    norm: str


FAMILIES = {
    "gpt2": Family("transformer", ("wte", "wpe", "drop"), "h", "ln_f"),
    "llama": Family("model", ("embed_tokens",), "layers", "norm"),
}
HEAD = "lm_head"


def from_transformers(
    config: Any,
    batches: Callable[[int, int], tuple[Tensor, Tensor]],
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer],
    *,
    microbatches: int,
    seed: int = 0,
    weights: Mapping[str, Tensor] | None = None,
    device: torch.device | None = None,
) -> ElasticJob:
    """The job that trains the causal language model of a `GPT2Config` or `LlamaConfig`, one layer for each block.

    `batches` gives (input_ids, labels), both of shape (microbatch, sequence), as the model's own forward takes them:
    the loss is the model's, and shifts labels itself. `weights` is a state of the whole model under its own names, for
    the first step; without it weights are drawn as the library draws them, by `seed`. Raises `InvalidInput` for another
    kind of model, and for embeddings that are also the head: layers share no parameters.
    """
    family = FAMILIES.get(config.model_type)
    if family is None:
        raise InvalidInput(f"the model is a {config.model_type}, but layers are cut of {' and '.join(FAMILIES)} only")
    if config.tie_word_embeddings:
        raise InvalidInput(
            f"the {config.model_type}'s embeddings are its head, too, but layers share no parameters: set "
            "tie_word_embeddings=False, so that the head has weights of its own (give them in `weights` as a copy of "
            "the embeddings, to begin with the same)"
        )
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):  # shapes only: each layer is given memory by whoever holds it
        whole = AutoModelForCausalLM.from_config(config)
    place = device or torch.device("cpu")
    names = plain_names(config)
    return ElasticJob(
        layers=[
            partial(_made, whole, family, number, place, _own(weights, names, number))
            for number in range(config.num_hidden_layers)
        ],
        loss=partial(_loss, whole.loss_function, config.vocab_size),
        batches=batches,
        optimizer=optimizer,
        microbatches=microbatches,
        seed=seed,
    )


def plain_names(config: Any) -> dict[str, str]:
    """Each weight's name in the library's model, and in a checkpoint of the job (there behind `model.`).

    So `{name: state["model"][plain] for name, plain in plain_names(config).items()}` loads into the library's model.
    """
    from transformers import AutoModelForCausalLM

    family = FAMILIES[config.model_type]
    with torch.device("meta"):
        whole = AutoModelForCausalLM.from_config(config)
    return {name: _plain(name, family, config.num_hidden_layers - 1) for name in whole.state_dict()}


def _plain(name: str, family: Family, last: int) -> str:
    if name.startswith(f"{HEAD}."):
        return f"{last}.{name}"
    rest = name.removeprefix(f"{family.base}.")
    if rest.startswith(f"{family.blocks}."):
        number, _, inner = rest.removeprefix(f"{family.blocks}.").partition(".")
        return f"{number}.block.{inner}"
    return f"{last if rest.startswith(f'{family.norm}.') else 0}.{rest}"


def _own(weights: Mapping[str, Tensor] | None, names: Mapping[str, str], number: int) -> dict[str, Tensor] | None:
    """A layer's weights by its own names, from those of the whole model."""
    if weights is None:
        return None
    if lacking := [name for name in names if name not in weights]:
        raise InvalidInput(
            f"the weights lack {lacking[0]} and {len(lacking) - 1} more of {len(names)}: give a state of the whole "
            "model under its own names"
        )
    front = f"{number}."
    return {plain.removeprefix(front): weights[name] for name, plain in names.items() if plain.startswith(front)}


def _loss(function: Callable[..., Tensor], vocabulary: int, logits: Tensor, labels: Tensor) -> Tensor:
    return function(logits=logits, labels=labels, vocab_size=vocabulary)


def _made(
    whole: Any, family: Family, number: int, device: torch.device, weights: Mapping[str, Tensor] | None
) -> nn.Module:
    """A layer with memory: the library's modules, its way to draw weights or those given."""
    kind = Gpt2Layer if family is FAMILIES["gpt2"] else LlamaLayer
    layer = kind(whole, family, number)
    layer.to_empty(device=device)
    if weights is None:
        with torch.no_grad():
            layer.apply(whole._init_weights)  # inner modules first, as the library does
    else:
        layer.load_state_dict(weights)
    layer.place(device)
    return layer


class _BlockLayer(nn.Module):
    """One block of the whole model, with what is in front of the first one, and behind the last one."""

    def __init__(self, whole: Any, family: Family, number: int) -> None:
        super().__init__()
        base = getattr(whole, family.base)
        self.config, self.first = whole.config, number == 0
        self.last = number == whole.config.num_hidden_layers - 1
        if self.first:
            for name in family.tables:
                self.add_module(name, deepcopy(getattr(base, name)))
        self.block: Any = deepcopy(getattr(base, family.blocks)[number])
        if self.last:
            self.add_module(family.norm, deepcopy(getattr(base, family.norm)))
            self.add_module(HEAD, deepcopy(whole.lm_head))
        self._behind = (family.norm, HEAD) if self.last else ()

    def place(self, device: torch.device) -> None:
        """Makes what is no state, once the layer has memory."""

    def mask(self, hidden: Tensor) -> tuple[Any, Tensor]:
        """The causal mask as the library's attention wants it, and positions, for hidden states of this shape."""
        from transformers.masking_utils import create_causal_mask

        positions = torch.arange(hidden.shape[1], device=hidden.device).unsqueeze(0)
        found = create_causal_mask(
            config=self.config, inputs_embeds=hidden, attention_mask=None, past_key_values=None, position_ids=positions
        )
        return found, positions

    def behind(self, hidden: Tensor) -> Tensor:
        """Norm and head, where they are this layer's."""
        for name in self._behind:
            hidden = self.get_submodule(name)(hidden)
        return hidden


class Gpt2Layer(_BlockLayer):
    """A block of GPT-2."""

    def forward(self, given: Tensor) -> Tensor:
        """Hidden states of tokens or hidden states; the last one's are logits."""
        hidden = given
        if self.first:
            positions = torch.arange(given.shape[1], device=given.device).unsqueeze(0)
            tokens, places, drop = (self.get_submodule(name) for name in ("wte", "wpe", "drop"))
            hidden = drop(tokens(given) + places(positions))
        mask, positions = self.mask(hidden)
        return self.behind(self.block(hidden, None, mask, use_cache=False, position_ids=positions))


class LlamaLayer(_BlockLayer):
    """A block of Llama."""

    def place(self, device: torch.device) -> None:
        """Rotary angles: they depend on the configuration only, so they are no state and do not travel."""
        from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

        self._rotary: Any = LlamaRotaryEmbedding(config=self.config).to(device)

    def forward(self, given: Tensor) -> Tensor:
        """Hidden states of tokens or hidden states; the last one's are logits."""
        hidden = self.get_submodule("embed_tokens")(given) if self.first else given
        mask, positions = self.mask(hidden)
        angles = self._rotary(hidden, position_ids=positions)
        return self.behind(
            self.block(
                hidden, attention_mask=mask, position_embeddings=angles, position_ids=positions, past_key_values=None,
                use_cache=False,
            )
        )  # fmt: skip
