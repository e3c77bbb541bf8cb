"""Steps of real models, measured on the simulated device by shapes: transformers' own, and a U-Net of ours."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from experiments.hardware import read_hardware
from runtime.device import use_sim
from runtime.profile import profile_step
from solvers.ir.names import unknown
from solvers.ir.recompute import RecomputeGraphProblem
from solvers.recompute.graph.instances import at_position
from solvers.recompute.graph.make import make_graph_problem

HARDWARE = "a100-sxm-80"
TOKENS, BATCH, SIDE, VOCABULARY, WIDTH, LAYERS = 256, 16, 224, 8192, 256, 4
Loss = Callable[[nn.Module], torch.Tensor]
GPT = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": 4, "vocab_size": VOCABULARY}
LLAMA = {**GPT, "intermediate_size": 2 * WIDTH, "num_key_value_heads": 2, "head_dim": WIDTH // 4}
BERT = {**GPT, "intermediate_size": 4 * WIDTH}
VISION = {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "num_attention_heads": 4, "intermediate_size": 4 * WIDTH,
          "image_size": SIDE, "num_labels": 10}  # fmt: skip
TEXT: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": 4, "vocab_size": VOCABULARY}),
    "gpt-neox": ("GPTNeoXForCausalLM", BERT),
    "llama": ("LlamaForCausalLM", LLAMA),
    "qwen2": ("Qwen2ForCausalLM", LLAMA),
    "gemma": ("GemmaForCausalLM", LLAMA),
    "phi": ("PhiForCausalLM", {**BERT, "num_key_value_heads": 4}),
    "falcon": ("FalconForCausalLM", GPT),
    "bloom": ("BloomForCausalLM", {"hidden_size": WIDTH, "n_layer": LAYERS, "n_head": 4, "vocab_size": VOCABULARY}),
    "opt": ("OPTForCausalLM", {**GPT, "ffn_dim": 4 * WIDTH, "word_embed_proj_dim": WIDTH}),
    "bert": ("BertForMaskedLM", BERT),
    "roberta": ("RobertaForMaskedLM", BERT),
    "albert": ("AlbertForMaskedLM", {**BERT, "embedding_size": 64}),
    "electra": ("ElectraForMaskedLM", {**BERT, "embedding_size": 64}),
    "distilbert": ("DistilBertForMaskedLM", {"dim": WIDTH, "n_layers": LAYERS, "n_heads": 4, "hidden_dim": 1024}),
    "t5": ("T5ForConditionalGeneration", {"d_model": WIDTH, "d_kv": 64, "d_ff": 512, "num_layers": 3, "num_heads": 4,
                                          "vocab_size": VOCABULARY, "decoder_start_token_id": 0}),
    "bart": ("BartForConditionalGeneration", {"d_model": WIDTH, "encoder_layers": 3, "decoder_layers": 3,
                                              "encoder_attention_heads": 4, "decoder_attention_heads": 4,
                                              "encoder_ffn_dim": 512, "decoder_ffn_dim": 512,
                                              "vocab_size": VOCABULARY}),
}  # fmt: skip
IMAGES: dict[str, tuple[str, dict[str, Any]]] = {
    "vit": ("ViTForImageClassification", VISION),
    "deit": ("DeiTForImageClassification", VISION),
    "beit": ("BeitForImageClassification", VISION),
    "swin": ("SwinForImageClassification", {"embed_dim": 48, "depths": [2, 2, 2], "num_heads": [2, 4, 8],
                                            "image_size": SIDE}),
    "convnext": ("ConvNextForImageClassification", {"hidden_sizes": [48, 96, 192, 384], "depths": [2, 2, 2, 2]}),
    "resnet": ("ResNetForImageClassification", {"hidden_sizes": [64, 128, 256, 512], "depths": [2, 2, 2, 2],
                                                "embedding_size": 32}),
    "regnet": ("RegNetForImageClassification", {"hidden_sizes": [32, 64, 128, 256], "depths": [2, 2, 2, 2],
                                                "groups_width": 16}),
    "mobilenet-v2": ("MobileNetV2ForImageClassification", {"depth_multiplier": 0.5}),
    "segformer": ("SegformerForImageClassification", {"hidden_sizes": [32, 64, 96, 128], "depths": [1, 1, 1, 1]}),
}  # fmt: skip
TRACED = (*TEXT, *IMAGES, "unet")
"""By name: transformers, and vision."""


def traced(name: str, position: float) -> RecomputeGraphProblem:
    """The step of that model as a problem, its budget at that position; nothing is computed."""
    device = use_sim(hardware=read_hardware(HARDWARE), shapes_only=True, races="off").device
    torch.manual_seed(0)
    model, loss = _built(name, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        found = loss(model)
        found.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return found

    graph = profile_step(step, device, name=name, model=model, optimizer=optimizer)
    return at_position(make_graph_problem(graph, read_hardware(HARDWARE)), position)


def _built(name: str, device: torch.device) -> tuple[nn.Module, Loss]:
    if name == "unet":
        return _unet(device)
    import transformers

    known = TEXT | IMAGES
    if name not in known:
        raise unknown("traced model", name, TRACED)
    head, settings = known[name]
    made = getattr(transformers, head)
    config = made.config_class(**settings)
    model = made._from_config(config, attn_implementation="eager").to(device).train()
    if name in IMAGES:
        images, labels = torch.randn(BATCH, 3, SIDE, SIDE).to(device), torch.zeros(BATCH, dtype=torch.long).to(device)
        return model, lambda own: own(pixel_values=images, labels=labels).loss
    text = torch.ones(BATCH, TOKENS, dtype=torch.long).to(device)
    return model, lambda own: own(input_ids=text, labels=text).loss


class UNet(nn.Module):
    """Three levels down and up with skip connections."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        sizes = [width, 2 * width, 4 * width]
        self.down = nn.ModuleList(_double(a, b) for a, b in zip([3, *sizes], sizes, strict=False))
        self.bottom = _double(sizes[-1], 2 * sizes[-1])
        self.up = nn.ModuleList(_double(3 * size, size) for size in reversed(sizes))
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """A mask of each image."""
        skips, x = [], images
        for part in self.down:
            skips.append(part(x))
            x = functional.max_pool2d(skips[-1], 2)
        x = self.bottom(x)
        for part in self.up:
            x = part(torch.cat([functional.interpolate(x, scale_factor=2.0), skips.pop()], 1))
        masks: torch.Tensor = self.head(x)
        return masks


def _double(before: int, after: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(),
        nn.Conv2d(after, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(),
    )  # fmt: skip


def _unet(device: torch.device) -> tuple[nn.Module, Loss]:
    images, masks = torch.randn(8, 3, 128, 128).to(device), torch.zeros(8, 128, 128, dtype=torch.long).to(device)
    return UNet().to(device), lambda own: functional.cross_entropy(own(images), masks)
