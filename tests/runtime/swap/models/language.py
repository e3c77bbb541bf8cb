"""Transformers' own language models, tiny and random, with activations several times larger than their parameters."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    OPTConfig,
    OPTForCausalLM,
)

from tests.runtime.swap.models.program import Build, Program

Attention = Literal["eager", "sdpa"]
VOCABULARY, WIDTH, LAYERS, HEADS, TOKENS, BATCH = 96, 64, 2, 4, 64, 8
ENDS = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 1}
GATED = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": 2 * WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS // 2,
    "max_position_embeddings": TOKENS,
    **ENDS,
}


def gpt2(attention: Attention) -> Any:
    """Tied embeddings, dropout everywhere, Conv1D projections."""
    config = GPT2Config(vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, n_positions=TOKENS, **ENDS)
    return GPT2LMHeadModel._from_config(config, attn_implementation=attention)


def llama(attention: Attention) -> Any:
    """Rotary positions, grouped queries, RMS norms, SwiGLU."""
    return LlamaForCausalLM._from_config(LlamaConfig(**GATED), attn_implementation=attention)


def mistral(attention: Attention) -> Any:
    """Attention within a sliding window, half as long as the text."""
    config = MistralConfig(**GATED, sliding_window=TOKENS // 2)
    return MistralForCausalLM._from_config(config, attn_implementation=attention)


def mixtral(attention: Attention) -> Any:
    """Two of four experts for each token, one after the other or grouped: operands' sizes depend on the data."""
    experts = "grouped_mm" if attention == "sdpa" else "eager"
    config = MixtralConfig(**GATED, num_local_experts=4, num_experts_per_tok=2, output_router_logits=True)
    return MixtralForCausalLM._from_config(config, attn_implementation=attention, experts_implementation=experts)


def opt(attention: Attention) -> Any:
    """Learned positions, ReLU, dropout; whole layers are dropped at random."""
    config = OPTConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        ffn_dim=4 * WIDTH,
        num_hidden_layers=LAYERS + 1,
        num_attention_heads=HEADS,
        max_position_embeddings=TOKENS,
        word_embed_proj_dim=WIDTH,
        layerdrop=0.2,
        **ENDS,
    )
    return OPTForCausalLM._from_config(config, attn_implementation=attention)


def bert(attention: Attention) -> Any:
    """Attention in both directions, norms after the residuals."""
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=4 * WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        max_position_embeddings=TOKENS,
        pad_token_id=1,
    )
    return BertForMaskedLM._from_config(config, attn_implementation=attention)


def language_model(make: Callable[[Attention], Any], attention: Attention) -> Build:
    """Trains one on fixed batches of two lengths, padded in part, with AdamW and a clipped norm."""

    def build(device: torch.device) -> Program:
        torch.manual_seed(0)
        model = make(attention).to(device).train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
        texts = [
            torch.randint(2, VOCABULARY, (BATCH, length)).to(device) for length in (TOKENS, TOKENS, 3 * TOKENS // 4)
        ]
        masks = [torch.ones_like(text) for text in texts]
        for mask in masks:
            mask[0, -8:] = 0
        count = 0

        def step() -> torch.Tensor:
            nonlocal count
            text, mask = texts[count % len(texts)], masks[count % len(texts)]
            count += 1
            optimizer.zero_grad()
            loss: torch.Tensor = model(input_ids=text, attention_mask=mask, labels=text, use_cache=False).loss
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss.detach()

        return Program(model, optimizer, step)

    return build


MODELS = {"gpt2": gpt2, "llama": llama, "mistral": mistral, "mixtral": mixtral, "opt": opt, "bert": bert}
LANGUAGE: dict[str, Build] = {
    f"{name}-{attention}": language_model(make, attention)
    for name, make in MODELS.items()
    for attention in ("eager", "sdpa")
}
