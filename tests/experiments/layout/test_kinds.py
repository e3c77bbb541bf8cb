"""Models of several kinds: what of each is trained, and that each gives a loss."""

import torch

from experiments.layout.kinds import BATCH, CONTEXT, WORDS, kinds, seeded


def test_every_model_has_a_loss_and_is_the_same_each_time() -> None:
    words = torch.arange(BATCH * CONTEXT).view(BATCH, CONTEXT) % WORDS
    for name, make in kinds().items():
        model, again = seeded(make).eval(), seeded(make).eval()
        with torch.no_grad():
            loss = model(words, words)
            assert torch.isfinite(loss) and torch.equal(loss, again(words, words)), name


def test_what_is_trained() -> None:
    shares: dict[str, float] = {}
    for name, make in kinds().items():
        sizes = [(one.numel(), one.requires_grad) for one in make().parameters()]
        shares[name] = sum(size for size, trained in sizes if trained) / sum(size for size, _ in sizes)
    assert shares["GPT"] == shares["GPT, head tied"] == 1
    assert 0.5 < shares["GPT, 3 blocks frozen"] < 0.7 and shares["GPT with adapters"] < 0.1
