"""Models for the study: `ddefuzz check ddefuzz.checking.models:gpt2`. And what torch says of a model without ddefuzz.

They are the examples of torch's ExportDB, and families of transformers with random weights and tiny sizes. Nothing is
downloaded. What is unbacked in the families: the sequence length; of models with a cache, its length too; the batch
size of models of images.
"""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Literal, NamedTuple

import torch

from ddefuzz.checking.study import Plain
from ddefuzz.execute.observe import captured_output
from ddefuzz.execute.protocol import Subject
from ddefuzz.execute.stages import as_exported
from ddefuzz.execute.subject import prepare
from ddefuzz.execute.user_code import said
from ddefuzz.instrument import torch_api


class Family(NamedTuple):
    """The model's class, its configuration's class, what the configuration has to be for a tiny model, and its inputs.

    `cached` are token ids and the keys and values of earlier ones.
    """

    model: str
    config: str
    settings: Mapping[str, Any]
    inputs: Literal["ids", "cached", "image"] = "ids"


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


def _transformer_of_images(**more: Any) -> dict[str, Any]:
    return _settings(image_size=16, patch_size=4, **more)


_GPT2 = {"vocab_size": 64, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}

FAMILIES: dict[str, Family] = {
    "albert": Family("AlbertModel", "AlbertConfig", _settings(embedding_size=16)),
    "beit": Family("BeitModel", "BeitConfig", _transformer_of_images(out_indices=[1]), "image"),
    "bert": Family("BertModel", "BertConfig", _settings()),
    "bloom": Family("BloomModel", "BloomConfig", {"vocab_size": 64, "hidden_size": 16, "n_layer": 2, "n_head": 2}),
    "cohere": Family("CohereModel", "CohereConfig", _decoder()),
    "convnext": Family(
        "ConvNextModel",
        "ConvNextConfig",
        {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2, "patch_size": 2},
        "image",
    ),
    "deberta_v2": Family("DebertaV2Model", "DebertaV2Config", _settings()),
    "deit": Family("DeiTModel", "DeiTConfig", _transformer_of_images(), "image"),
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
    "llama-cached": Family("LlamaModel", "LlamaConfig", _decoder(), "cached"),
    "mistral": Family("MistralModel", "MistralConfig", _decoder()),
    "mixtral": Family("MixtralModel", "MixtralConfig", _decoder(num_local_experts=2, num_experts_per_tok=1)),
    "mobilenet_v2": Family("MobileNetV2Model", "MobileNetV2Config", {"depth_multiplier": 0.25}, "image"),
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
    "qwen2-cached": Family("Qwen2Model", "Qwen2Config", _decoder(), "cached"),
    "qwen3": Family("Qwen3Model", "Qwen3Config", _decoder(head_dim=8)),
    "regnet": Family(
        "RegNetModel",
        "RegNetConfig",
        {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "groups_width": 8},
        "image",
    ),
    "resnet": Family(
        "ResNetModel",
        "ResNetConfig",
        {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"},
        "image",
    ),
    "roberta": Family("RobertaModel", "RobertaConfig", _settings()),
    "stablelm": Family("StableLmModel", "StableLmConfig", _decoder()),
    "swin": Family(
        "SwinModel",
        "SwinConfig",
        {
            "image_size": 16,
            "patch_size": 2,
            "embed_dim": 8,
            "depths": [1, 1],
            "num_heads": [2, 2],
            "window_size": 4,
        },
        "image",
    ),
    "t5-encoder": Family(
        "T5EncoderModel",
        "T5Config",
        {"vocab_size": 64, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2},
    ),
    "vit": Family("ViTModel", "ViTConfig", _transformer_of_images(), "image"),
}


def names(group: str) -> tuple[str, ...]:
    """The names of the models of a group; of the families, those that the installed transformers has."""
    if group == "ExportDB":
        return tuple(torch_api.bound(torch_api.EXPORTDB)())
    try:
        library = import_module("transformers")
    except ImportError:
        return ()
    return tuple(name for name, family in FAMILIES.items() if hasattr(library, family.model))


def __getattr__(name: str) -> Callable[[], dict[str, Any]]:
    """A function that makes the model of this name with its arguments."""
    if name in FAMILIES:
        return lambda: _of_family(FAMILIES[name])
    examples = torch_api.bound(torch_api.EXPORTDB)() if not name.startswith("_") else {}
    if name in examples:
        return lambda: _of_exportdb(examples[name])
    raise AttributeError(name)


def _of_exportdb(example: Any) -> dict[str, Any]:
    return {
        "callable": copy.deepcopy(example.model),
        "args": copy.deepcopy(tuple(example.example_args)),
        "kwargs": copy.deepcopy(dict(example.example_kwargs)),
        "dynamic_shapes": example.dynamic_shapes,
    }


def _of_family(family: Family) -> dict[str, Any]:
    library = import_module("transformers")
    more = {} if family.inputs == "image" else {"use_cache": False}
    config = getattr(library, family.config)(**family.settings, **more)
    model = getattr(library, family.model)(config).eval()
    if family.inputs == "image":
        return {"callable": model, "args": (torch.randn(3, 3, 16, 16),), "unbacked": {0: [0]}}
    ids = torch.arange(10).view(2, 5) + 3
    if family.inputs == "ids":
        return {"callable": model, "args": (ids,), "unbacked": {0: [1]}}
    return {
        "callable": model,
        "args": (),
        "kwargs": {"input_ids": ids, "past_key_values": _cache(library, config)},
        "unbacked": {"input_ids": {1: "length"}, "past_key_values": {2: "cached"}},
    }


def _cache(library: Any, config: Any) -> Any:
    """Keys and values of 6 earlier tokens in each layer. The class is registered as torch.export needs it."""
    import_module("transformers.integrations.executorch").register_dynamic_cache_export_support()
    cache = library.DynamicCache(config=config)
    heads, width = config.num_key_value_heads, config.hidden_size // config.num_attention_heads
    for layer in range(config.num_hidden_layers):
        cache.update(torch.randn(2, heads, 6, width), torch.randn(2, heads, 6, width), layer)
    return cache


def plain_export(subject: Subject) -> Plain:
    """`torch.export.export`, non-strict."""
    return _timed(subject, torch.export.export)


def plain_draft(subject: Subject) -> Plain:
    """`torch.export.draft_export`."""
    return _timed(subject, torch.export.draft_export)


def _timed(subject: Subject, capture: Any) -> Plain:
    exported = as_exported(prepare(subject))
    with captured_output(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        started = time.process_time()
        try:
            program = capture(
                exported.module, exported.args, exported.kwargs, dynamic_shapes=exported.dynamic_shapes, strict=False
            )
        except Exception as error:  # noqa: BLE001 what torch raises is the result
            return Plain(said(error)[:200], time.process_time() - started)
        seconds = time.process_time() - started
    report = getattr(program, torch_api.DRAFT_REPORT, None)
    return Plain("", seconds, len(getattr(report, "failures", ())))
