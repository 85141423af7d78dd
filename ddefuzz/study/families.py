"""Families of transformers with random weights and tiny configurations: `ddefuzz check ddefuzz.study.families:gpt2`.

They are made without any download. The sequence length is unbacked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, NamedTuple

import torch


class Family(NamedTuple):
    """The model's class, its configuration's class, and what the configuration has to be for a tiny model."""

    model: str
    config: str
    settings: Mapping[str, Any]


def _settings(**more: Any) -> dict[str, Any]:
    return {
        "vocab_size": 64,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 64,
        **more,
    }


def _decoder(**more: Any) -> dict[str, Any]:
    return _settings(num_key_value_heads=2, pad_token_id=0, bos_token_id=1, eos_token_id=2, **more)


_GPT2 = {"vocab_size": 64, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}

FAMILIES: dict[str, Family] = {
    "albert": Family("AlbertModel", "AlbertConfig", _settings(embedding_size=16)),
    "bert": Family("BertModel", "BertConfig", _settings()),
    "bloom": Family("BloomModel", "BloomConfig", {"vocab_size": 64, "hidden_size": 16, "n_layer": 2, "n_head": 2}),
    "cohere": Family("CohereModel", "CohereConfig", _decoder()),
    "distilbert": Family(
        "DistilBertModel",
        "DistilBertConfig",
        {"vocab_size": 64, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32},
    ),
    "electra": Family("ElectraModel", "ElectraConfig", _settings(embedding_size=16)),
    "falcon": Family("FalconModel", "FalconConfig", _settings()),
    "gemma": Family("GemmaModel", "GemmaConfig", _decoder(head_dim=8)),
    "gemma2": Family("Gemma2Model", "Gemma2Config", _decoder(head_dim=8)),
    "gpt2": Family("GPT2Model", "GPT2Config", _GPT2),
    "gpt_neo": Family(
        "GPTNeoModel",
        "GPTNeoConfig",
        {
            "vocab_size": 64,
            "hidden_size": 16,
            "num_layers": 2,
            "num_heads": 2,
            "max_position_embeddings": 64,
            "attention_types": [[["global", "local"], 1]],
        },
    ),
    "gpt_neox": Family("GPTNeoXModel", "GPTNeoXConfig", _settings()),
    "gptj": Family("GPTJModel", "GPTJConfig", {**_GPT2, "rotary_dim": 4}),
    "granite": Family("GraniteModel", "GraniteConfig", _decoder()),
    "llama": Family("LlamaModel", "LlamaConfig", _decoder()),
    "mistral": Family("MistralModel", "MistralConfig", _decoder()),
    "mixtral": Family("MixtralModel", "MixtralConfig", _decoder(num_local_experts=2, num_experts_per_tok=1)),
    "mpnet": Family("MPNetModel", "MPNetConfig", _settings()),
    "olmo": Family("OlmoModel", "OlmoConfig", _decoder()),
    "opt": Family(
        "OPTModel",
        "OPTConfig",
        {
            "vocab_size": 64,
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "ffn_dim": 32,
            "max_position_embeddings": 64,
            "word_embed_proj_dim": 16,
        },
    ),
    "phi": Family("PhiModel", "PhiConfig", _decoder()),
    "phi3": Family("Phi3Model", "Phi3Config", _decoder()),
    "qwen2": Family("Qwen2Model", "Qwen2Config", _decoder()),
    "qwen3": Family("Qwen3Model", "Qwen3Config", _decoder(head_dim=8)),
    "roberta": Family("RobertaModel", "RobertaConfig", _settings()),
    "stablelm": Family("StableLmModel", "StableLmConfig", _decoder()),
}


def names() -> tuple[str, ...]:
    """The families that the installed transformers has; none if it is not installed."""
    try:
        library = import_module("transformers")
    except ImportError:
        return ()
    return tuple(name for name, family in FAMILIES.items() if hasattr(library, family.model))


def __getattr__(name: str) -> Callable[[], dict[str, Any]]:
    if name not in FAMILIES:
        raise AttributeError(name)
    family = FAMILIES[name]

    def factory() -> dict[str, Any]:
        library = import_module("transformers")
        config = getattr(library, family.config)(**family.settings, use_cache=False)
        model = getattr(library, family.model)(config).eval()
        ids = torch.arange(10).view(2, 5) + 3
        return {"callable": model, "args": (ids,), "unbacked": {0: [1]}}

    return factory
