"""Gemma 4's assistant as a torch module with transformers' layers."""

from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoConfig, AutoModel, PretrainedConfig

from speccompile.compiler.checkpoints.json_files import CONFIG, read_json_object
from speccompile.compiler.step.monkeypatch import patched_attribute
from speccompile.drafters.assistant.reading import TEXT
from speccompile.drafters.weights import load_head
from speccompile.errors import CheckpointError
from speccompile.plan.head import HeadPlan


class SparseHead(nn.Module):
    """Head that computes logits for the `top_k` best groups of tokens; other tokens get the lowest logit minus 1.

    The lowest logit is taken per row. transformers takes it over all rows, but it drafts one row at a time.
    """

    def __init__(self, vocabulary: int, width: int, centroids: int, top_k: int) -> None:
        super().__init__()
        self.top_k = top_k
        self.centroids = nn.Linear(width, centroids, bias=False)
        self.token_ordering = nn.Buffer(torch.zeros(vocabulary, dtype=torch.int64))

    def forward(self, hidden: Tensor, table: Tensor) -> Tensor:
        """Return logits [B, T, V] of hidden [B, T, h] with the embedding table [V, h]."""
        best = self.centroids(hidden).topk(self.top_k, -1).indices  # [B, T, k]
        groups = self.token_ordering.view(self.centroids.weight.shape[0], -1)  # [C, V / C]
        tokens = groups[best].flatten(2)  # [B, T, k * V / C]
        logits = (functional.embedding(tokens, table) @ hidden[..., None])[..., 0]
        others = (logits.amin(-1, keepdim=True) - 1.0).expand(-1, -1, table.shape[0])
        return others.scatter(2, tokens, logits)


class Assistant(nn.Module):
    """Modules of the assistant, with the parameter names of its folder."""

    def __init__(self, head: HeadPlan) -> None:
        super().__init__()
        config = assistant_config(head)
        with every_layer_shares(config):
            self.model = AutoModel.from_config(config)
        width, vocabulary = config.hidden_size, config.vocab_size
        self.pre_projection = nn.Linear(2 * head.hidden_size, width, bias=False)
        self.post_projection = nn.Linear(width, head.hidden_size, bias=False)
        centroids, top_k = head.switches["centroids"], head.switches["top_k"]
        if isinstance(centroids, int) and isinstance(top_k, int):
            self.masked_embedding = SparseHead(vocabulary, width, centroids, top_k)
        self.is_sparse = centroids is not None

    def logits(self, hidden: Tensor) -> Tensor:
        """Return logits float32 [B, T, V] of the final norm's output [B, T, h]."""
        table = self.model.embed_tokens.weight
        if self.is_sparse:
            return self.masked_embedding(hidden, table)
        return functional.linear(hidden, table)


def load_assistant(head: HeadPlan) -> Assistant:
    """Load the assistant with its weights. Raise CheckpointError if `token_ordering` is no permutation of tokens."""
    network = load_head(Assistant(head), head)
    if network.is_sparse:
        order = network.masked_embedding.token_ordering
        places = torch.bincount(order.clamp(min=0, max=len(order) - 1), minlength=len(order))
        if not bool((places == 1).all()):
            source = head.tensors["masked_embedding.token_ordering"]
            wrong = int((places != 1).nonzero()[0])
            raise CheckpointError(
                f"{head.folder / source.file}: {source.name}: received token {wrong} {int(places[wrong])} times, "
                f"expected each of the {len(order)} tokens once",
                hint="copy or download the file again",
            )
    return network


def assistant_config(head: HeadPlan) -> PretrainedConfig:
    """Return transformers' config of the assistant's layers."""
    text = (read_json_object(head.folder / CONFIG) or {})[TEXT]
    config = AutoConfig.for_model(**text)
    config.num_kv_shared_layers = config.num_hidden_layers
    return config


def every_layer_shares(config: PretrainedConfig) -> AbstractContextManager[None]:
    """Patch configs of this class in a `with` block, so that transformers makes all layers without keys and values.

    transformers' property looks for a layer that shares its keys and values, and raises if there is none (5.23.0).
    """
    return patched_attribute(
        type(config), "kv_sharing_modes", property(lambda each: ["reuse"] * each.num_hidden_layers)
    )
