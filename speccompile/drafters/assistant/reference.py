"""Reference: transformers' assistant over the target's caches of the whole text, in the loop of its candidate generator
(`SinglePositionMultiTokenCandidateGenerator`) after a prefill of all known tokens.

transformers' `generate` shows the assistant more after rejections: rows of rejected drafts stay in the shared caches.
"""

import json
from dataclasses import replace
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from speccompile.compiler.checkpoints.json_files import CONFIG, read_json_object
from speccompile.compiler.models.eager import attend_eagerly, round_caches
from speccompile.compiler.prove.drafts import DrafterInputs, ReferenceLogits
from speccompile.compiler.prove.reference import Logits
from speccompile.compiler.step.media_rows import padding
from speccompile.drafters.assistant.network import Assistant, every_layer_shares
from speccompile.drafters.assistant.reading import FULL, KINDS, TEXT, borrowed_layers
from speccompile.drafters.context import DrafterContext
from speccompile.drafters.formula import committed_caches
from speccompile.drafters.probe import before_norm
from speccompile.drafters.small import write_small
from speccompile.drafters.weights import read_tensors
from speccompile.plan.head import HeadPlan


def teachers(context: DrafterContext) -> list[ReferenceLogits]:
    """Return one reference: the assistant over the target's eager caches."""
    model, assistant, borrowed = context.eager(), _assistant(context.head), borrowed_layers(context.head)
    padding(model, context.inputs.media.padded if context.inputs.media else ())
    attend_eagerly(model)
    attend_eagerly(round_caches(assistant, context.inputs.target_cache))  # the target's rows are all that it reads
    embed = model.get_input_embeddings().forward  # of a placeholder its own row, which the target itself never reads

    @torch.no_grad()
    def logits(fed: DrafterInputs, drafts: list[int]) -> Logits:
        *committed, bonus = fed.known
        caches = committed_caches(model, fed)
        shared = {kind: (caches.layers[each].keys, caches.layers[each].values) for kind, each in borrowed.items()}
        shared = dict.fromkeys(KINDS, next(iter(shared.values()))) | shared  # transformers' masks need both types
        assert fed.features is not None
        hidden, position, found = torch.tensor(fed.features[None, -1:]), torch.tensor([[len(committed)]]), []
        for token in [bonus, *drafts]:
            read = torch.cat([embed(torch.tensor([[token]])), hidden], -1)
            output = assistant(inputs_embeds=read, position_ids=position, shared_kv_states=shared)
            found.append(output.logits[0, 0])
            hidden = output.last_hidden_state
        return torch.stack(found).float().numpy()

    return [logits]


def _assistant(head: HeadPlan) -> PreTrainedModel:
    """Return transformers' model with the weights of the folder."""
    config = AutoConfig.for_model(**(read_json_object(head.folder / CONFIG) or {}))
    with every_layer_shares(config.get_text_config()):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    tensors = read_tensors(head)
    model.load_state_dict(tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"]})
    return model.eval().requires_grad_(False)


def small(head: HeadPlan, hidden_size: int, vocabulary_size: int, target_layers: int, folder: Path) -> HeadPlan:
    """Return a small assistant with the same number of layers, all over a small target's last layer; with a sparse head
    if `head` has one."""
    written = read_json_object(head.folder / CONFIG) or {}
    layers, centroids = written[TEXT]["num_hidden_layers"], vocabulary_size // 2
    text = {
        "model_type": written[TEXT]["model_type"], "vocab_size": vocabulary_size, "hidden_size": hidden_size,
        "intermediate_size": 48, "num_hidden_layers": layers, "layer_types": [FULL] * layers,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "global_head_dim": 16,
        "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0,
    }  # fmt: skip
    is_sparse = head.switches["centroids"] is not None
    sparse = {"centroids": centroids, "top_k": centroids // 2} if is_sparse else dict.fromkeys(("centroids", "top_k"))
    made = replace(
        head, folder=folder, files=(), hidden_size=hidden_size, vocabulary_size=vocabulary_size,
        switches={**dict.fromkeys(KINDS), FULL: target_layers - 1, **sparse},
    )  # fmt: skip
    folder.mkdir(parents=True)
    (folder / CONFIG).write_text(json.dumps({"model_type": written["model_type"], TEXT: text}))
    shapes = {name: tuple(tensor.shape) for name, tensor in Assistant(made).state_dict().items()}
    scalars = {name: torch.ones(1) for name in shapes if name.endswith("layer_scalar")}
    order = {name: torch.arange(vocabulary_size).flip(0) for name in shapes if name.endswith("token_ordering")}
    return replace(made, tensors=write_small(shapes, folder, vocabulary_size, scalars | order))


readings = before_norm  # the most frequent mistake: the input of the final norm instead of its output
