"""Gemma 4's assistant: it reads the target's KV cache and has none itself. All drafts have the same position."""

import torch
from torch import Tensor, nn

from speccompile.compiler.step.attention import HOOK, CachedPass, attending_through
from speccompile.compiler.step.decoder import Decoder
from speccompile.compiler.step.draft import Accepted, Drafter, State
from speccompile.compiler.step.draft.network import DraftNetwork, DraftRound
from speccompile.compiler.step.layer_attention import LayerAttention
from speccompile.contract import CACHED_KINDS, COMPONENTS
from speccompile.drafters.assistant.network import Assistant, load_assistant
from speccompile.drafters.assistant.reading import SLIDING, borrowed_layers
from speccompile.drafters.context import DrafterContext, token_by_token
from speccompile.errors import CheckpointError
from speccompile.plan.head import HeadPlan


def make(context: DrafterContext) -> Drafter:
    """Return the autoregressive drafter, for any tree."""
    return token_by_token(context, AssistantReader(context.head, context.target(), load_assistant(context.head)))


class AssistantReader(DraftNetwork):
    """h' = layers(pre_projection([embedding of the token ; h])), with queries alone, over the target's keys and values
    of the committed tokens; logits = head(h'), and h of the next token is post_projection(h').

    The first h is the output of the target's final norm at the last committed token. Every draft has the bonus token's
    position. A sliding-window layer attends to one row more than its window, as in transformers.
    """

    has_cache = False

    def __init__(self, head: HeadPlan, target: Decoder, network: Assistant) -> None:
        super().__init__()
        self.taps, self.size, self.network = head.taps, head.vocabulary_size, network
        self.embed: nn.Module = target.model.get_input_embeddings()  # with the scale that it may have
        self.clamp, self.layers, self.borrows = target.clamp, target.layers, borrowed_layers(head)
        self.cache = target.shape.dtype
        network.model.set_attn_implementation(HOOK)
        config = network.model.config
        self.kinds = list(config.layer_types)
        # The last window + 1 rows before the bonus token, which has no row itself: distances 1 to window + 1.
        self.windows = [config.sliding_window + 2 if kind == SLIDING else 0 for kind in self.kinds]
        self.places = {kind: self.kinds.index(kind) for kind in self.kinds}  # the first layer of each kind, in order
        theirs, rings = target.cache_shapes(), target.rings()
        self.shapes = {kind: [theirs[f"{name}.{self.borrows[kind]}"] for name in CACHED_KINDS] for kind in self.places}
        self.rings = [place for kind, place in self.places.items() if self.borrows[kind] in rings]
        self._check(head)

    def _check(self, head: HeadPlan) -> None:
        """Raise CheckpointError if the number or width of the target's key heads does not fit the assistant's."""
        for layer in self.network.model.layers:
            attention = layer.self_attn
            heads, width = self.layers[self.borrows[attention.layer_type]].key_shape
            own = self.network.model.config.num_attention_heads // attention.num_key_value_groups
            if (heads, width) != (own, attention.head_dim):
                raise CheckpointError(
                    f"{head.folder}: received an assistant whose layer {attention.layer_idx} reads {own} heads of "
                    f"width {attention.head_dim}, expected {heads} of width {width}, which the target has",
                    hint="use the assistant that was trained for this target",
                )

    def attentions(self) -> list[LayerAttention]:
        """Return the attentions of its layers. The first layer of each kind holds the cache that all of them read."""
        found = []
        for index, (kind, window) in enumerate(zip(self.kinds, self.windows, strict=True)):
            theirs, place = self.layers[self.borrows[kind]], self.places[kind]
            source = None if place == index else place
            found.append(LayerAttention(theirs.key_shape, theirs.value_shape, window, source=source))
        return found

    def states(self) -> list[State]:
        return []

    def target_caches(self) -> list[State]:
        return [
            State(f"{COMPONENTS[0]}.{name}.{self.borrows[kind]}", torch.float32, shape, cache=self.cache)
            for kind, shapes in self.shapes.items()
            for name, shape in zip(CACHED_KINDS, shapes, strict=True)
        ]

    def begin(self, accepted: Accepted, states: list[Tensor]) -> "AssistantReading":
        return AssistantReading(self, accepted, states)


class AssistantReading(DraftRound):
    """A round of the assistant. The constructor processes the bonus token."""

    def __init__(self, reader: AssistantReader, accepted: Accepted, caches: list[Tensor]) -> None:
        assert accepted.features is not None, "a drafter with taps is given features"
        self.reader, self.caches, self.end = reader, caches, accepted.length + accepted.n_path
        self.position = reader.clamp(self.end)[:, None]  # [B, 1]: of the bonus token
        self.bonus = accepted.path.gather(1, accepted.n_path[:, None])
        last = (accepted.n_path - 1).clamp(min=0)[:, None, None].expand(-1, -1, accepted.features.shape[2])
        self.logits = self._run(self.bonus, accepted.features.gather(1, last))

    def forward_drafts(self, tokens: Tensor, depth: int, ancestors: Tensor, parents: Tensor) -> Tensor:
        """See `DraftRound.forward_drafts`. Of the earlier drafts, a draft reads its parent's output alone."""
        return self._run(tokens, self.hidden.gather(1, parents[:, :, None].expand(-1, -1, self.hidden.shape[2])))

    def _run(self, tokens: Tensor, hidden: Tensor) -> Tensor:
        """Return logits float32 [B, T, V] of tokens int64 [B, T] and hidden [B, T, H]."""
        network, reader = self.reader.network, self.reader
        current, shared = self._begin(tokens)
        read = network.pre_projection(torch.cat([reader.embed(tokens), hidden], -1))
        with attending_through(current):
            found = network.model(
                inputs_embeds=read, position_ids=self.position.expand(tokens.shape), use_cache=False,
                attention_mask=dict.fromkeys(reader.kinds), shared_kv_states=shared,
                logits_to_keep=None,  # None keeps all: with a number, transformers drops rows and fails
            )  # fmt: skip
        self.hidden = network.post_projection(found.last_hidden_state)
        return network.logits(found.last_hidden_state).to(torch.float32)

    def _begin(self, tokens: Tensor) -> tuple[CachedPass, dict[str, tuple[Tensor, Tensor]]]:
        """Return a pass over the target's caches, and transformers' shared KV states: one row per cache, masked out."""
        reader, shared = self.reader, {}
        attentions = reader.attentions()
        current = CachedPass(
            self.caches, self.end, reader.windows, layers=attentions, dtype=reader.cache, rings=reader.rings
        )
        position = self.position.expand(tokens.shape)
        current.set_positions(position, self.position, torch.zeros_like(position, dtype=torch.bool)[:, :, None])
        for kind, place in reader.places.items():
            rows = (torch.zeros(tokens.shape[0], shape[1], 1, shape[3]) for shape in reader.shapes[kind])
            shared[kind] = current.layers[place].update(*rows)
        return current, shared

    def commit(self) -> list[Tensor]:
        """Return no states."""
        return []
